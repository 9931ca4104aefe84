/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: which runs there are, in which order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soda/base/json.h"
#include "soda/eval/eval.h"

#define MODE_TEXT(name, text, factor, traits) text,
#define MODE_FACTOR(name, text, factor, traits) factor,
#define MODE_TRAITS(name, text, factor, traits) traits,

const char *const soda_eval_mode_names[] = { SODA_EVAL_MODE_TABLE(MODE_TEXT) NULL };
static const double factors[] = { SODA_EVAL_MODE_TABLE(MODE_FACTOR) };
static const unsigned traits[] = { SODA_EVAL_MODE_TABLE(MODE_TRAITS) };

bool soda_eval_mode_has(enum soda_eval_mode mode, enum soda_eval_trait trait)
{
	return traits[mode] & trait;
}

double soda_eval_mode_factor(enum soda_eval_mode mode)
{
	return factors[mode];
}

const char *const soda_eval_app_names[] = { "bfs",	    "pagerank", "radii", "bc",
					    "components",   "kcore",	"mis",	 "triangle",
					    "bellman-ford", NULL };

int soda_eval_name_find(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

/* Add a run of each mode of one application on one graph; modes take turns in being first. */
static void add_turn(struct soda_eval_plan *plan, struct soda_eval_run run)
{
	for (uint32_t i = 0; i < plan->modes_n; i++) {
		run.mode = plan->modes[(i + run.repetition) % plan->modes_n];
		/* The first run in local memory says what the others may have. */
		if (run.repetition == 0)
			run.mode = plan->modes[i];
		if (run.processes == 1 || soda_eval_mode_has(run.mode, SODA_EVAL_BESIDE))
			plan->runs[plan->runs_n++] = run;
	}
}

int soda_eval_plan_make(struct soda_eval_plan *plan)
{
	uint32_t processes = plan->background ? 2 : 1;
	size_t most =
		(size_t)plan->repeat * plan->graphs_n * plan->apps_n * plan->modes_n * processes;
	struct soda_eval_run run;

	plan->runs_n = 0;
	plan->runs = calloc(most ? most : 1, sizeof(*plan->runs));
	if (!plan->runs)
		return -ENOMEM;
	for (run.repetition = 0; run.repetition < plan->repeat; run.repetition++)
		for (run.graph = 0; run.graph < plan->graphs_n; run.graph++)
			for (uint32_t a = 0; a < plan->apps_n; a++)
				for (run.processes = 1; run.processes <= processes;
				     run.processes++) {
					/* The longest ones, once. */
					if (plan->quick && run.processes > 1 && run.repetition > 0)
						continue;
					run.app = plan->apps[a];
					add_turn(plan, run);
				}
	return 0;
}

static json_t *names(const struct soda_eval_plan *plan, bool apps)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < (apps ? plan->apps_n : plan->modes_n); i++)
		json_array_append_new(list,
				      json_string(apps ? soda_eval_app_names[plan->apps[i]]
						       : soda_eval_mode_names[plan->modes[i]]));
	return list;
}

json_t *soda_eval_plan_setting(const struct soda_eval_plan *plan)
{
	return json_pack("{si si sI sI sI si sb ss sb}", "threads", plan->threads, "iterations",
			 plan->iterations, "chunk_bytes", (json_int_t)plan->chunk_bytes,
			 "cache_bytes", (json_int_t)plan->cache_bytes, "limit_bytes",
			 (json_int_t)plan->limit_bytes, "dpu_cpu_pct", plan->cpu_pct, "shm",
			 plan->shm, "link", plan->link.rate, "warm", true);
}

void soda_eval_plan_adopt(struct soda_eval_plan *plan, const json_t *setting)
{
	const char *rate = json_string_value(json_object_get(setting, "link"));

	plan->threads = (uint32_t)soda_json_count(setting, "threads");
	plan->iterations = (uint32_t)soda_json_count(setting, "iterations");
	plan->chunk_bytes = soda_json_count(setting, "chunk_bytes");
	plan->cache_bytes = soda_json_count(setting, "cache_bytes");
	plan->limit_bytes = soda_json_count(setting, "limit_bytes");
	plan->cpu_pct = (uint32_t)soda_json_count(setting, "dpu_cpu_pct");
	plan->shm = json_is_true(json_object_get(setting, "shm"));
	snprintf(plan->link.rate, sizeof(plan->link.rate), "%s", rate ? rate : "");
}

json_t *soda_eval_plan_describe(const struct soda_eval_plan *plan)
{
	json_t *all = soda_eval_plan_setting(plan), *graphs = json_array();

	for (uint32_t i = 0; i < plan->graphs_n; i++)
		json_array_append_new(graphs, json_string(plan->graphs[i].spec));
	json_object_set_new(all, "graphs", graphs);
	json_object_set_new(all, "apps", names(plan, true));
	json_object_set_new(all, "modes", names(plan, false));
	json_object_set_new(all, "repeat", json_integer(plan->repeat));
	json_object_set_new(all, "background", json_boolean(plan->background));
	return all;
}

json_t *soda_eval_graph_describe(const struct soda_eval_graph *graph)
{
	return json_pack("{ss ss sb sI sI sI sI}", "name", graph->name, "spec", graph->spec,
			 "symmetric", graph->symmetric, "vertices", (json_int_t)graph->vertices,
			 "edges", (json_int_t)graph->edges, "vertex_bytes",
			 (json_int_t)graph->vertex_bytes, "edge_bytes",
			 (json_int_t)graph->edge_bytes);
}

void soda_eval_graph_recall(struct soda_eval_graph *graph, const json_t *described)
{
	graph->symmetric = json_is_true(json_object_get(described, "symmetric"));
	graph->vertices = soda_json_count(described, "vertices");
	graph->edges = soda_json_count(described, "edges");
	graph->vertex_bytes = soda_json_count(described, "vertex_bytes");
	graph->edge_bytes = soda_json_count(described, "edge_bytes");
}
