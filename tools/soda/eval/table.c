/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: the slow-down of each application, in the terminal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/conf/conf.h"
#include "soda/eval/results.h"

/* The runs of one application on one graph, in one mode. */
struct kind {
	double seconds; /* the median; NAN: none is valid */
	uint32_t valid, wanted;
};

/* Numbers for the sentence below the table. */
struct sum {
	double least, most; /* slow-downs */
	uint32_t rows, valid, wanted;
};

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static struct kind look(const struct soda_eval_report *report, uint32_t graph, uint32_t app,
			enum soda_eval_mode mode)
{
	static double all[SODA_EVAL_REPEAT_MAX];
	const struct soda_eval_plan *plan = report->plan;
	struct kind found = { .seconds = (double)NAN, .wanted = plan->repeat };
	struct soda_eval_run run = { .graph = graph, .app = app, .mode = mode, .processes = 1 };

	for (; run.repetition < plan->repeat && run.repetition < SODA_EVAL_REPEAT_MAX;
	     run.repetition++) {
		const json_t *one = soda_eval_results_find(report->results, plan, &run);

		if (one)
			all[found.valid++] = json_number_value(json_object_get(one, "seconds"));
	}
	if (!found.valid)
		return found;
	qsort(all, found.valid, sizeof(all[0]), by_size);
	found.seconds = (all[(found.valid - 1) / 2] + all[found.valid / 2]) / 2;
	return found;
}

static void add(struct sum *sum, double slower, const struct kind *kind)
{
	sum->valid += kind->valid;
	sum->wanted += kind->wanted;
	if (isnan(slower))
		return;
	sum->least = sum->rows && sum->least < slower ? sum->least : slower;
	sum->most = sum->rows && sum->most > slower ? sum->most : slower;
	sum->rows++;
}

static void show(FILE *out, const char *app, const char *mode, const struct kind *dram,
		 const struct kind *fam, struct sum *sum)
{
	double slower = fam->seconds / dram->seconds;

	fprintf(out, "  %-14s %-14s", app, mode);
	if (isnan(slower))
		fprintf(out, " %10s %12s %10s", "-", "-", "-");
	else
		fprintf(out, " %8.3f s %10.3f s %9.1fx", dram->seconds, fam->seconds, slower);
	fprintf(out, "  %s, %u of %u\n", fam->valid == fam->wanted ? "yes" : "NO", fam->valid,
		fam->wanted);
	add(sum, slower, fam);
}

/* Without an agent, and the fastest mode with one. */
static void show_app(FILE *out, const struct soda_eval_report *report, uint32_t graph, uint32_t app,
		     struct sum *sum)
{
	const char *name = soda_eval_app_names[app];
	struct kind dram = look(report, graph, app, SODA_EVAL_DRAM), best = { 0 };
	int which = -1;

	for (uint32_t i = 0; i < report->plan->modes_n; i++) {
		enum soda_eval_mode mode = report->plan->modes[i];
		struct kind kind = look(report, graph, app, mode);

		if (mode == SODA_EVAL_MEMSERVER)
			show(out, name, soda_eval_mode_names[mode], &dram, &kind, sum);
		if (!soda_eval_mode_has(mode, SODA_EVAL_THROUGH_AGENT))
			continue;
		if (which < 0 || isnan(best.seconds) || kind.seconds < best.seconds) {
			which = (int)mode;
			best = kind;
		}
	}
	if (which >= 0)
		show(out, name, soda_eval_mode_names[which], &dram, &best, sum);
}

static void explain(FILE *out, const struct soda_eval_plan *plan, const struct sum *sum)
{
	char limit[32] = "a third of what they compute on";

	if (plan->limit_bytes) {
		char size[16];

		snprintf(limit, sizeof(limit), "%s", soda_format_size(plan->limit_bytes, size));
	}
	if (!sum->rows)
		fputs("No application has a valid run in local memory and one in far memory.\n",
		      out);
	else
		fprintf(out,
			"With %s in local memory, and the rest on a memory server, applications\n"
			"took %.1f to %.1f times as long as with all of it in local memory. %s\n"
			"(memserver: without an agent; below it the fastest mode with one.)\n",
			limit, sum->least, sum->most,
			sum->valid == sum->wanted ? "Each result was verified."
						  : "Some runs are NOT valid.");
}

void soda_eval_table(FILE *out, const struct soda_eval_report *report)
{
	const struct soda_eval_plan *plan = report->plan;
	struct sum sum = { 0 };

	for (uint32_t g = 0; g < plan->graphs_n; g++) {
		fprintf(out, "%s%s\n  %-14s %-14s %10s %12s %10s  %s\n", g ? "\n" : "",
			plan->graphs[g].name, "application", "far memory", "with DRAM",
			"far memory", "slow-down", "verified");
		for (uint32_t a = 0; a < plan->apps_n; a++)
			show_app(out, report, g, plan->apps[a], &sum);
	}
	explain(out, plan, &sum);
}
