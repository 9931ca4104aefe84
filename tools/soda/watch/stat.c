/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda stat`: the counters of a running program or of a server, for people or as JSON. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "soda/base/source.h"
#include "soda/base/tool.h"
#include "soda/watch/views.h"

struct options {
	uint32_t interval_ms, timeout_ms;
	bool json, all;
};

static const struct soda_option option_table[] = {
	OPTION("interval", 'i', TIME_MS, interval_ms, .arg = "TIME", .min = 10, .max = 86400000,
	       .help = "Repeat after this time until the target ends."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "5s", .min = 1,
	       .max = 3600000, .help = "Longest wait for an answer."),
	OPTION("json", 'j', BOOL, json,
	       .help = "Print each answer as one line of JSON, with every counter."),
	OPTION("all", 'a', BOOL, all,
	       .help = "Print groups of counters that are all 0, too, which are named only."),
};

static const struct soda_conf conf = {
	.program = "soda stat",
	.summary = "show the counters of a running program or of a server",
	.args = "PID|ADDRESS",
	.description =
		"PID is a running program that uses SODA, ADDRESS a memory server "
		"(tcp://HOST:PORT, shm://PATH) or DPU agent. Counters are totals since the start. "
		"Times are shown as percentiles: half of all (p50), 90, 99 and 99.9 of 100 took no "
		"longer; they are within 1/32. Groups, as soda top has them, are named in the last "
		"line where all of their counters are 0. Ratios under 'derived' are of the totals; "
		"with "
		"--json they are left out, and histograms have all their buckets.",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && strcmp(text + n - k, end) == 0;
}

/* Format the value; the key's ending says whether it is a size or a time. */
static void format_value(const char *key, const json_t *value, char *out, size_t bytes)
{
	json_int_t n = json_integer_value(value);
	char size[16];

	if (json_is_string(value))
		snprintf(out, bytes, "%s", json_string_value(value));
	else if (json_is_boolean(value))
		snprintf(out, bytes, "%s", json_is_true(value) ? "yes" : "no");
	else if (json_is_real(value))
		snprintf(out, bytes, "%.3f", json_real_value(value));
	else if (!json_is_integer(value))
		snprintf(out, bytes, "-");
	else if (ends_with(key, "bytes") || strncmp(key, "bytes_", 6) == 0)
		snprintf(out, bytes, "%" JSON_INTEGER_FORMAT " (%s)", n,
			 soda_format_size((uint64_t)n, size));
	else if (ends_with(key, "_ns") && n >= 1000000)
		snprintf(out, bytes, "%" JSON_INTEGER_FORMAT " (%.3f s)", n, (double)n / 1e9);
	else if (ends_with(key, "_ns"))
		snprintf(out, bytes, "%" JSON_INTEGER_FORMAT " (%.1f us)", n, (double)n / 1e3);
	else
		snprintf(out, bytes, "%" JSON_INTEGER_FORMAT, n);
}

/* Whether it counts nothing: 0, or made of nothing else. */
static bool is_zero(const json_t *value)
{
	const char *key;
	json_t *inner;
	size_t i;

	if (json_is_number(value))
		return json_number_value(value) == 0;
	json_object_foreach((json_t *)value, key, inner) if (!is_zero(inner)) return false;
	json_array_foreach(value, i, inner) if (!is_zero(inner)) return false;
	return !json_is_string(value) && !json_is_true(value);
}

static const struct soda_top_view *brief; /* leave out its groups that are 0; NULL: print all */

/* Whether all counters of that group are 0. */
static bool is_still(json_t *counters, const char *group)
{
	const char *key;
	json_t *value;

	json_object_foreach(counters, key, value)
	{
		const char *its = soda_top_group_of(brief, key);

		if (its == group && !is_zero(value))
			return false;
	}
	return true;
}

static bool is_left_out(json_t *counters, const char *key)
{
	const char *group = brief ? soda_top_group_of(brief, key) : NULL;

	return group && is_still(counters, group);
}

/* The last line: which groups were left out. */
static void print_left_out(json_t *counters)
{
	const char *said = "all 0, without --all:";

	for (size_t i = 0; brief && i < brief->rows_n; i++) {
		const char *group = brief->rows[i].label, *key;
		bool has = false;
		json_t *value;

		if (brief->rows[i].kind != SODA_TOP_HEADING || !is_still(counters, group))
			continue;
		json_object_foreach(counters, key, value) has |=
			soda_top_group_of(brief, key) == group;
		if (has)
			printf("%s %s", said, group);
		said = has ? "," : said;
	}
	if (*said == ',')
		putchar('\n');
}

static void print_value(const char *key, json_t *value, int depth);

static void print_object(json_t *object, int depth)
{
	char printable[64];
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (is_left_out(object, key))
			continue;
		snprintf(printable, sizeof(printable), "%s", key);
		soda_make_printable(printable);
		print_value(printable, value, depth);
	}
}

/* Print a histogram in one line. False: the value is something else. */
static bool print_times(const char *key, const json_t *value, int depth)
{
	static const char *const points[] = { "p50", "p90", "p99", "p999", "max" };
	static const char *const names[] = { "p50", "p90", "p99", "p99.9", "max" };
	char text[SODA_TOP_TEXT], name[16];

	if (!json_object_get(value, "buckets"))
		return false;
	soda_top_format_count(json_number_value(json_object_get(value, "count")), text);
	printf("%*s%-*s n %s", depth * 2, "", 26 - depth * 2, key, text);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		const json_t *ns, *n = json_object_get(value, points[i]);

		snprintf(name, sizeof(name), "%s_ns", points[i]);
		ns = json_object_get(value, name);
		if (ns)
			soda_top_format_time(json_number_value(ns), text);
		else
			soda_top_format_count(json_number_value(n), text);
		printf(", %s %s", names[i], text);
	}
	putchar('\n');
	return true;
}

static void print_value(const char *key, json_t *value, int depth)
{
	char text[160], numbered[64];
	size_t i;
	json_t *item;

	if (print_times(key, value, depth))
		return;
	if (json_is_object(value)) {
		printf("%*s%s\n", depth * 2, "", key);
		print_object(value, depth + 1);
	} else if (json_is_array(value)) {
		json_array_foreach(value, i, item)
		{
			snprintf(numbered, sizeof(numbered), "%s[%zu]", key, i);
			print_value(numbered, item, depth);
		}
	} else {
		format_value(key, value, text, sizeof(text));
		soda_make_printable(text);
		printf("%*s%-*s %s\n", depth * 2, "", 26 - depth * 2, key, text);
	}
}

/* The object that has the counters. */
static json_t *counters_of(json_t *answer)
{
	json_t *inner = json_object_get(answer, "soda_stats");

	return inner ? inner : answer;
}

/* Ratios of the counters, over the whole life of the target. */
static void print_derived(json_t *answer)
{
	const struct soda_top_pair pair = { .now = { .counters = counters_of(answer) } };
	const struct soda_top_view *view = soda_top_view_of(pair.now.counters);
	bool headed = false;
	char text[SODA_TOP_TEXT];

	for (size_t i = 0; i < view->rows_n; i++) {
		const struct soda_top_row *row = &view->rows[i];
		double value = soda_top_row_value(row, &pair);

		if ((row->kind != SODA_TOP_SHARE && row->kind != SODA_TOP_MEAN) || isnan(value))
			continue;
		if (!headed)
			puts("derived");
		headed = true;
		soda_top_format(row->kind, value, text);
		printf("  %-24s %s\n", row->label, text);
	}
}

static void complain(const char *target, struct soda_why *why)
{
	bool named = strstr(why->text, target); /* a process says who it is */

	soda_make_printable(why->text);
	fprintf(stderr, "soda stat: %s%s%s\n", named ? "" : target, named ? "" : ": ", why->text);
}

static int print(json_t *answer, const struct options *opt)
{
	if (!opt->json) {
		brief = opt->all ? NULL : soda_top_view_of(counters_of(answer));
		print_object(answer, 0);
		print_derived(answer);
		print_left_out(counters_of(answer));
	}
	if (opt->json && json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII) == 0)
		putchar('\n');
	return fflush(stdout);
}

/* Print one answer, or one after the other until the target ends. Returns an exit code. */
static int report(struct soda_stat_source *source, const struct options *opt)
{
	bool first = true;

	do {
		struct soda_why why;
		json_t *answer = soda_stat_read(source, (int)opt->timeout_ms, &why);
		int err;

		if (!answer) {
			complain(source->target, &why);
			return SODA_EXIT_FAILED;
		}
		if (!first && !opt->json)
			putchar('\n');
		err = print(answer, opt);
		json_decref(answer);
		if (err)
			return SODA_EXIT_FAILED;
		first = false;
		usleep(opt->interval_ms * 1000u);
	} while (opt->interval_ms > 0);
	return SODA_EXIT_OK;
}

int soda_command_stat(int argc, char **argv)
{
	struct options opt = { 0 };
	struct soda_stat_source source;
	struct soda_why why = { "" };
	const char *target;
	int n = soda_tool_options(&conf, argc, argv, &opt, &target, 1), r;

	if (n == 0)
		fprintf(stderr,
			"soda stat: whose counters? a process id or an address; see --help\n");
	if (n < 1)
		return SODA_EXIT_USAGE;
	if (soda_stat_open(&source, target, &why)) {
		fprintf(stderr, "soda stat: %s\n", why.text);
		return SODA_EXIT_FAILED;
	}
	r = report(&source, &opt);
	soda_stat_close(&source, (int)opt.timeout_ms);
	return r;
}
