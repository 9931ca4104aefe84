/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: one plan of what several commands have run in one folder. */
#include <stdio.h>
#include <string.h>

#include "soda/base/json.h"
#include "soda/eval/results.h"

static void add_graph(struct soda_eval_plan *plan, const char *name, const json_t *described)
{
	struct soda_eval_graph *graph = plan->graphs;
	uint32_t i = 0;

	while (i < plan->graphs_n && strcmp(graph[i].name, name) != 0)
		i++;
	if (i == SODA_EVAL_GRAPHS_MAX)
		return;
	if (i == plan->graphs_n) {
		plan->graphs_n++;
		snprintf(graph[i].name, sizeof(graph[i].name), "%s", name);
		graph[i].spec = soda_json_text(described, "spec");
	}
	soda_eval_graph_recall(&graph[i], described);
}

static void add_app(struct soda_eval_plan *plan, int app)
{
	for (uint32_t i = 0; i < plan->apps_n; i++)
		if (plan->apps[i] == (uint32_t)app)
			return;
	plan->apps[plan->apps_n++] = (uint32_t)app;
}

/* Modes stand in the order of their table, whichever was run first. */
static void add_mode(struct soda_eval_plan *plan, int mode)
{
	unsigned set = 1u << mode;

	for (uint32_t i = 0; i < plan->modes_n; i++)
		set |= 1u << plan->modes[i];
	plan->modes_n = 0;
	for (mode = 0; mode < SODA_EVAL_MODES; mode++)
		if (set >> mode & 1)
			plan->modes[plan->modes_n++] = (enum soda_eval_mode)mode;
}

static void add_run(struct soda_eval_plan *plan, const json_t *run)
{
	int app = soda_eval_name_find(soda_eval_app_names, soda_json_text(run, "app"));
	int mode = soda_eval_name_find(soda_eval_mode_names, soda_json_text(run, "mode"));
	json_int_t repetition = json_integer_value(json_object_get(run, "repetition"));

	if (app >= 0)
		add_app(plan, app);
	if (mode >= 0)
		add_mode(plan, mode);
	if (repetition >= plan->repeat && repetition < SODA_EVAL_REPEAT_MAX)
		plan->repeat = (uint32_t)repetition + 1;
	plan->background |= json_integer_value(json_object_get(run, "processes")) > 1;
}

void soda_eval_plan_widen(struct soda_eval_plan *plan, const struct soda_eval_results *results)
{
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach(results->graphs, name, value) add_graph(plan, name, value);
	json_array_foreach(results->runs, i, value) add_run(plan, value);
	plan->runs = NULL;
	plan->runs_n = 0;
}
