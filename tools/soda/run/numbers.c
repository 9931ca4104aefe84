/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/run/numbers.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soda/base/machine.h"

#define AT(field) offsetof(struct soda_run_sample, field)

static const struct {
	const char *name;
	size_t offset;
} columns[] = {
	{ "at_ns", AT(at_ns) },	    { "reserved", AT(reserved) }, { "resident", AT(resident) },
	{ "buffer", AT(buffer) },   { "faults", AT(faults) },	  { "zero_fills", AT(zero_fills) },
	{ "fetched", AT(fetched) }, { "written", AT(written) },	  { "stalled_ns", AT(stalled_ns) },
};

void soda_run_numbers_name(const char *page, char path[PATH_MAX])
{
	size_t n = strlen(page);

	if (n > 5 && strcmp(page + n - 5, ".html") == 0)
		n -= 5;
	snprintf(path, PATH_MAX, "%.*s.json", (int)n, page);
}

/* Those that are in order: a program may end while it thins them out. */
static uint32_t in_order(const struct soda_run_samples *samples, struct soda_run_sample *out)
{
	uint32_t n = atomic_load(&samples->n), kept = 0;

	for (uint32_t i = 0; i < n && i < SODA_RUN_SAMPLES; i++)
		if (!kept || samples->samples[i].at_ns > out[kept - 1].at_ns)
			out[kept++] = samples->samples[i];
	return kept;
}

/* A list of each counter's values. */
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

/* JSON has text alone; an argument may be any bytes. */
static json_t *text_of(const char *argument)
{
	json_t *text = json_string(argument);
	char *copy = text ? NULL : strdup(argument);

	if (!copy)
		return text;
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	text = json_string(copy);
	free(copy);
	return text;
}

static json_t *command_of(char *const *argv)
{
	json_t *out = json_array();

	for (int i = 0; argv[i]; i++)
		json_array_append_new(out, text_of(argv[i]));
	return out;
}

/* What the program had of them, as soda run has set it, or whoever called that. */
static json_t *settings(void)
{
	static const char *const names[] = { "SODA_BUFFER",    "SODA_SERVER",	     "SODA_DPU",
					     "SODA_CHUNK",     "SODA_RUN_THRESHOLD", "SODA_MODE",
					     "SODA_MECHANISMS" };
	json_t *out = json_object();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]))
			json_object_set_new(out, names[i], text_of(getenv(names[i])));
	return out;
}

int soda_run_numbers_write(const char *path, char *const *argv, int status,
			   const struct soda_run_samples *samples)
{
	json_t *all =
		json_pack("{ss si so si so so so}", "format", "soda-run", "version", 1, "command",
			  command_of(argv), "status", status, "machine", soda_machine_describe(),
			  "settings", settings(), "samples", lists_of(samples));
	FILE *out = all ? fopen(path, "w") : NULL;
	int bad = !out;

	if (out) {
		bad = json_dumpf(all, out, JSON_COMPACT) || fputc('\n', out) == EOF;
		bad |= fclose(out);
	}
	json_decref(all);
	if (bad)
		fprintf(stderr, "soda run: --report %s: %s\n", path, strerror(errno));
	return bad ? -1 : 0;
}
