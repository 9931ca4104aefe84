/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: results.json and results.csv. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "soda/eval/eval.h"
#include "soda/eval/results.h"

static FILE *create(const struct soda_eval_plan *plan, const char *name)
{
	char path[PATH_MAX];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", plan->out, name);
	out = fopen(path, "w");
	if (!out)
		fprintf(stderr, "soda eval: %s: %s\n", path, strerror(errno));
	return out;
}

static int finish(const struct soda_eval_plan *plan, const char *name, FILE *out)
{
	int bad = ferror(out);

	if (!fclose(out) && !bad)
		return 0;
	fprintf(stderr, "soda eval: %s/%s: cannot write: %s\n", plan->out, name, strerror(errno));
	return errno ? -errno : -EIO;
}

/* The graphs in the plan's order. */
static json_t *graphs(const struct soda_eval_report *report)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < report->plan->graphs_n; i++)
		json_array_append_new(list, soda_eval_graph_describe(&report->plan->graphs[i]));
	return list;
}

/* The folder's disk, for the page. */
static json_t *disk(const struct soda_eval_report *report)
{
	return json_pack("{sb si}", "in_memory", soda_eval_readahead_none(report->plan->out),
			 "readahead_default_kib", (int)SODA_EVAL_READAHEAD_KIB);
}

int soda_eval_write_json(const struct soda_eval_report *report)
{
	json_t *all = json_pack("{ss si sO sO? ss so so so sO}", "format", "soda-eval", "version",
				1, "commands", report->results->commands, "machine",
				report->machine, "memory_cap", report->cap, "disk", disk(report),
				"plan", soda_eval_plan_describe(report->plan), "graphs",
				graphs(report), "runs", report->results->runs);
	FILE *out = create(report->plan, "results.json");
	int err = out && all ? 0 : -EIO;

	if (out) {
		json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
		fputc('\n', out);
		err = finish(report->plan, "results.json", out);
	}
	json_decref(all);
	return err;
}

static const char *const columns[] = {
	"graph",
	"app",
	"mode",
	"processes",
	"repetition",
	"seconds",
	"verified",
	"valid",
	"vertices",
	"edges",
	"faults",
	"bytes_fetched",
	"bytes_written_back",
	"object_bytes",
	"array_bytes",
	"arrays",
	"buffer_bytes",
	"memory_limit_bytes",
	"memory_peak_bytes",
	"oom_kills",
	"hits",
	"late_hits",
	"misses",
	"useless_bytes",
	"programs_bytes",
	"interface_bytes",
	"host_cpu_ns",
	"agent_cpu_ns",
	"server_cpu_ns",
	"readahead_kib",
	"background_runs",
	"store_bytes",
	"store_hits",
	"store_waits",
	"store_fills",
};
static const char *const traffic_columns[] = { "on_demand", "prefetch", "write_back", "preload",
					       "total" };

enum {
	COLUMNS = sizeof(columns) / sizeof(columns[0]),
	TRAFFIC_COLUMNS = sizeof(traffic_columns) / sizeof(traffic_columns[0]),
};

/* A value that is not there becomes an empty field. */
static void put_field(FILE *out, const json_t *value)
{
	if (json_is_string(value))
		fputs(json_string_value(value), out);
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "yes" : "no", out);
	else if (json_is_integer(value))
		fprintf(out, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		fprintf(out, "%.9g", json_real_value(value));
}

int soda_eval_write_csv(const struct soda_eval_report *report)
{
	FILE *out = create(report->plan, "results.csv");
	const json_t *run;
	size_t i;

	if (!out)
		return -EIO;
	for (i = 0; i < COLUMNS; i++)
		fprintf(out, "%s,", columns[i]);
	for (i = 0; i < TRAFFIC_COLUMNS; i++)
		fprintf(out, "traffic_%s%s", traffic_columns[i],
			i + 1 < TRAFFIC_COLUMNS ? "," : "\n");
	json_array_foreach(report->results->runs, i, run)
	{
		const json_t *traffic = json_object_get(run, "traffic");

		for (int c = 0; c < COLUMNS; c++) {
			put_field(out, json_object_get(run, columns[c]));
			fputc(',', out);
		}
		for (int c = 0; c < TRAFFIC_COLUMNS; c++) {
			put_field(out, json_object_get(traffic, traffic_columns[c]));
			fputc(c + 1 < TRAFFIC_COLUMNS ? ',' : '\n', out);
		}
	}
	return finish(report->plan, "results.csv", out);
}
