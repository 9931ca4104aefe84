/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/run/results.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/run.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"

static int complain(const char *path, const char *what)
{
	fprintf(stderr, "soda run: --report %s: %s\n", path, what);
	return -1;
}

#define AT(field) offsetof(struct soda_run_sample, field)

static const struct {
	const char *name;
	size_t offset;
} columns[] = {
	{ "at_ns", AT(at_ns) },	    { "reserved", AT(reserved) }, { "resident", AT(resident) },
	{ "buffer", AT(buffer) },   { "faults", AT(faults) },	  { "zero_fills", AT(zero_fills) },
	{ "fetched", AT(fetched) }, { "written", AT(written) },	  { "stalled_ns", AT(stalled_ns) },
};

/* The file that goes with a page: .json in the place of .html, or after the whole name. */
static void name_numbers(const char *page, char path[PATH_MAX])
{
	size_t n = strlen(page);

	if (n > 5 && strcmp(page + n - 5, ".html") == 0)
		n -= 5;
	snprintf(path, PATH_MAX, "%.*s.json", (int)n, page);
}

/* How many samples, from the first on, are in order: a program may end while it thins them out. */
static uint32_t in_order(const struct soda_run_samples *samples, struct soda_run_sample *out)
{
	uint32_t n = atomic_load(&samples->n), kept = 0;

	for (uint32_t i = 0; i < n && i < SODA_RUN_SAMPLES; i++)
		if (!kept || samples->samples[i].at_ns > out[kept - 1].at_ns)
			out[kept++] = samples->samples[i];
	return kept;
}

/* For each counter, the list of its values. */
static json_t *lists_of(const struct soda_run_samples *samples)
{
	static struct soda_run_sample s[SODA_RUN_SAMPLES];
	uint32_t n = in_order(samples, s);
	json_t *out = json_object();

	for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++) {
		json_t *list = json_array();

		for (uint32_t i = 0; i < n; i++) {
			uint64_t value;

			memcpy(&value, (const char *)&s[i] + columns[c].offset, sizeof(value));
			json_array_append_new(list, json_integer((json_int_t)value));
		}
		json_object_set_new(out, columns[c].name, list);
	}
	return out;
}

/* The SODA settings in the environment that the program had. */
static json_t *settings(void)
{
	static const char *const names[] = { "SODA_BUFFER",    "SODA_SERVER",	     "SODA_DPU",
					     "SODA_CHUNK",     "SODA_RUN_THRESHOLD", "SODA_MODE",
					     "SODA_MECHANISMS" };
	json_t *out = json_object();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]))
			json_object_set_new(out, names[i], soda_json_text_of(getenv(names[i])));
	return out;
}

/* 0, or -1 with one line on standard error. */
static int write_numbers(const char *path, char *const *argv, int status,
			 const struct soda_run_samples *samples)
{
	json_t *all = json_pack("{ss si so si so so so}", "format", "soda-run", "version", 1,
				"command", soda_json_command(argv), "status", status, "machine",
				soda_machine_describe(), "settings", settings(), "samples",
				lists_of(samples));
	FILE *out = all ? fopen(path, "w") : NULL;
	int bad = !out;

	if (out) {
		bad = json_dumpf(all, out, JSON_COMPACT) || fputc('\n', out) == EOF;
		bad |= fclose(out);
	}
	json_decref(all);
	return bad ? complain(path, strerror(errno)) : 0;
}

static struct soda_run_samples *samples;
static char numbers[PATH_MAX]; /* the path of the JSON file */

static int share(void)
{
	char number[16];
	int fd = memfd_create("soda-run-samples", 0); /* the program inherits it */

	if (fd < 0 || ftruncate(fd, sizeof(*samples)))
		return -1;
	samples = mmap(NULL, sizeof(*samples), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (samples == MAP_FAILED)
		return -1;
	samples->magic = SODA_RUN_SAMPLES_MAGIC;
	snprintf(number, sizeof(number), "%d", fd);
	return setenv("SODA_RUN_SAMPLES", number, 1);
}

/*
 * Before the program starts: that its numbers can be written, and the memory for samples, which
 * the program finds by its environment.  Whether a page can be drawn does not keep it from
 * running.  0, or -1 with one line on standard error.
 */
int soda_run_numbers_open(const char *path)
{
	int fd;

	name_numbers(path, numbers);
	fd = open(numbers, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return complain(numbers, strerror(errno));
	close(fd);
	return share() ? complain(path, strerror(errno)) : 0;
}

void soda_run_numbers_close(const char *path, char *const *argv, int status)
{
	if (!write_numbers(numbers, argv, status, samples))
		soda_report_make("soda run", numbers, path);
}
