/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: results.json and results.csv. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval_report.h"

FILE *soda_eval_create(const struct soda_eval_plan *plan, const char *name)
{
	char path[PATH_MAX];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", plan->out, name);
	out = fopen(path, "w");
	if (!out)
		fprintf(stderr, "soda eval: %s: %s\n", path, strerror(errno));
	return out;
}

int soda_eval_finish(const struct soda_eval_plan *plan, const char *name, FILE *out)
{
	int bad = ferror(out);

	if (!fclose(out) && !bad)
		return 0;
	fprintf(stderr, "soda eval: %s/%s: cannot write: %s\n", plan->out, name, strerror(errno));
	return errno ? -errno : -EIO;
}

static json_t *real(double value)
{
	return isnan(value) ? json_null() : json_real(value);
}

/* A kind of run: its medians. */
static json_t *summary_of(const struct soda_eval_report *report, const struct soda_eval_run *run)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run dram = *run;
	struct soda_eval_cell cell, base;

	dram.mode = SODA_EVAL_DRAM;
	dram.processes = 1;
	soda_eval_cell_make(report->results, plan, run, &cell);
	soda_eval_cell_make(report->results, plan, &dram, &base);
	return json_pack("{ss ss ss si si so so so so so so so so so so}", "graph",
			 plan->graphs[run->graph].name, "app", soda_eval_app_names[run->app],
			 "mode", soda_eval_mode_names[run->mode], "processes", run->processes,
			 "runs", cell.n, "seconds", real(cell.seconds), "seconds_min",
			 real(cell.seconds_min), "seconds_max", real(cell.seconds_max), "slowdown",
			 real(cell.seconds / base.seconds), "traffic_bytes",
			 real(cell.traffic_bytes), "programs_bytes", real(cell.programs_bytes),
			 "hit_rate", real(cell.hit_rate), "host_cpu_seconds", real(cell.host_cpu_s),
			 "agent_cpu_seconds", real(cell.agent_cpu_s), "server_cpu_seconds",
			 real(cell.server_cpu_s));
}

/* Of an application: what was tried. */
static void add_summaries(const struct soda_eval_report *report, struct soda_eval_run run,
			  json_t *list)
{
	for (run.processes = 1; run.processes <= 2; run.processes++)
		for (uint32_t m = 0; m < report->plan->modes_n; m++) {
			struct soda_eval_cell cell;

			run.mode = report->plan->modes[m];
			soda_eval_cell_make(report->results, report->plan, &run, &cell);
			if (cell.n || cell.invalid)
				json_array_append_new(list, summary_of(report, &run));
		}
}

static json_t *summaries(const struct soda_eval_report *report)
{
	struct soda_eval_run run = { 0 };
	json_t *list = json_array();

	for (run.graph = 0; run.graph < report->plan->graphs_n; run.graph++)
		for (uint32_t a = 0; a < report->plan->apps_n; a++) {
			run.app = report->plan->apps[a];
			add_summaries(report, run, list);
		}
	return list;
}

/* The graphs in the plan's order. */
static json_t *graphs(const struct soda_eval_report *report)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < report->plan->graphs_n; i++)
		json_array_append_new(list, soda_eval_graph_describe(&report->plan->graphs[i]));
	return list;
}

int soda_eval_write_json(const struct soda_eval_report *report)
{
	json_t *all = json_pack("{sO sO ss so so so sO}", "commands", report->results->commands,
				"machine", report->machine, "memory_cap", report->cap, "plan",
				soda_eval_plan_describe(report->plan), "graphs", graphs(report),
				"summary", summaries(report), "runs", report->results->runs);
	FILE *out = soda_eval_create(report->plan, "results.json");
	int err = out && all ? 0 : -EIO;

	if (out) {
		json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
		fputc('\n', out);
		err = soda_eval_finish(report->plan, "results.json", out);
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
};
static const char *const traffic_columns[] = { "on_demand", "prefetch", "write_back", "preload",
					       "total" };

enum {
	COLUMNS = sizeof(columns) / sizeof(columns[0]),
	TRAFFIC_COLUMNS = sizeof(traffic_columns) / sizeof(traffic_columns[0]),
};

/* What is not there is an empty field. */
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
	FILE *out = soda_eval_create(report->plan, "results.csv");
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
	return soda_eval_finish(report->plan, "results.csv", out);
}
