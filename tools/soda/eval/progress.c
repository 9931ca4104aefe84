/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda eval`: how long what is left may take.  Before anything has been run it is an order of
 * magnitude, from what each edge took on a 2-core machine; each result corrects it for its like.
 */
#include <stdio.h>
#include <string.h>

#include "soda/eval/results.h"

/* Nanoseconds for each edge, start, load and verification included. */
static const double app_ns[SODA_EVAL_APPS_MAX] = { 40, 70, 90, 80, 50, 150, 50, 600, 150 };

enum { BESIDE_FACTOR = 2 };

#define START_S 0.2 /* of processes */

/* A graph whose files are not there yet: each edge that is drawn is stored in both directions. */
static double edges_of(const struct soda_eval_graph *graph)
{
	unsigned long long drawn;

	if (graph->edges)
		return (double)graph->edges;
	return sscanf(graph->spec, "%*[a-z]:%*[0-9]:%llu", &drawn) == 1 ? 2.0 * (double)drawn : 0;
}

static double rough(const struct soda_eval_plan *plan, const struct soda_eval_run *run)
{
	double edges = edges_of(&plan->graphs[run->graph]);

	return (START_S + edges * 1e-9 * app_ns[run->app] * soda_eval_mode_factor(run->mode)) *
	       (run->processes > 1 ? BESIDE_FACTOR : 1);
}

/* Which run of a graph a result is of; false: of another graph. */
static bool recognise(const json_t *result, const struct soda_eval_plan *plan, uint32_t graph,
		      struct soda_eval_run *run_p)
{
	const char *name = json_string_value(json_object_get(result, "graph"));
	const char *app_name = json_string_value(json_object_get(result, "app"));
	const char *mode_name = json_string_value(json_object_get(result, "mode"));
	int app = app_name ? soda_eval_name_find(soda_eval_app_names, app_name) : -1;
	int mode = mode_name ? soda_eval_name_find(soda_eval_mode_names, mode_name) : -1;

	if (!name || strcmp(name, plan->graphs[graph].name) != 0 || app < 0 || mode < 0)
		return false;
	*run_p = (struct soda_eval_run){
		.graph = graph,
		.app = (uint32_t)app,
		.mode = (enum soda_eval_mode)mode,
		.processes = (uint32_t)json_integer_value(json_object_get(result, "processes")),
	};
	return true;
}

/* Seconds that some results took, and that were guessed for them. */
struct sum {
	double taken, rough;
	uint32_t n;
};

static void count(struct sum *sum, double taken, double thought)
{
	sum->taken += taken;
	sum->rough += thought;
	sum->n++;
}

double soda_eval_progress_guess(const struct soda_eval_results *results,
				const struct soda_eval_plan *plan, const struct soda_eval_run *run)
{
	struct sum same = { 0 }, app = { 0 }, graph = { 0 };
	double thought = rough(plan, run);
	const json_t *result;
	size_t i;

	json_array_foreach(results->runs, i, result)
	{
		double taken = json_number_value(json_object_get(result, "wall_seconds"));
		struct soda_eval_run of;

		if (taken <= 0 || !recognise(result, plan, run->graph, &of))
			continue;
		count(&graph, taken, rough(plan, &of));
		if (of.app != run->app)
			continue;
		count(&app, taken, rough(plan, &of));
		if (of.mode == run->mode && of.processes == run->processes)
			count(&same, taken, rough(plan, &of));
	}
	if (same.n)
		return same.taken / same.n;
	if (app.rough > 0)
		return thought * app.taken / app.rough;
	return graph.rough > 0 ? thought * graph.taken / graph.rough : thought;
}

void soda_eval_progress_format(double seconds, char text[SODA_EVAL_DURATION_BYTES])
{
	unsigned long s = seconds > 0 ? (unsigned long)(seconds + 0.5) : 0, min = (s + 30) / 60;

	if (s < 90)
		snprintf(text, SODA_EVAL_DURATION_BYTES, "%lu s", s);
	else if (min < 90)
		snprintf(text, SODA_EVAL_DURATION_BYTES, "%lu min", min);
	else
		snprintf(text, SODA_EVAL_DURATION_BYTES, "%lu h %02lu min", min / 60, min % 60);
}
