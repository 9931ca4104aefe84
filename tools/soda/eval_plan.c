/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: which runs there are, in which order. */
#include <errno.h>
#include <stdlib.h>

#include "eval.h"

const char *const soda_eval_mode_names[] = {
	[SODA_EVAL_DRAM] = "dram",
	[SODA_EVAL_SSD] = "ssd",
	[SODA_EVAL_MEMSERVER] = "memserver",
	[SODA_EVAL_BASE] = "base",
	[SODA_EVAL_AGG] = "agg",
	[SODA_EVAL_ASYNC] = "async",
	[SODA_EVAL_STATIC] = "static",
	[SODA_EVAL_DYNAMIC] = "dynamic",
	[SODA_EVAL_AGG_ASYNC] = "agg+async",
	[SODA_EVAL_ALL] = "all",
	[SODA_EVAL_MODES] = NULL,
};

const char *const soda_eval_app_names[] = { "bfs",	    "pagerank", "radii", "bc",
					    "components",   "kcore",	"mis",	 "triangle",
					    "bellman-ford", NULL };

/* Modes that are also run beside a background process. */
#define BESIDE                                                                                     \
	(1u << SODA_EVAL_SSD | 1u << SODA_EVAL_MEMSERVER | 1u << SODA_EVAL_BASE |                  \
	 1u << SODA_EVAL_STATIC | 1u << SODA_EVAL_ALL)

/* The modes of one application on one graph; they take turns in being first. */
static void add_turn(struct soda_eval_plan *plan, struct soda_eval_run run)
{
	for (uint32_t i = 0; i < plan->modes_n; i++) {
		run.mode = plan->modes[(i + run.repetition) % plan->modes_n];
		/* The first run in local memory says what the others may have. */
		if (run.repetition == 0)
			run.mode = plan->modes[i];
		if (run.processes == 1 || soda_eval_in(run.mode, BESIDE))
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

json_t *soda_eval_plan_describe(const struct soda_eval_plan *plan)
{
	json_t *graphs = json_array();

	for (uint32_t i = 0; i < plan->graphs_n; i++)
		json_array_append_new(graphs, json_string(plan->graphs[i].spec));
	return json_pack("{so so so si si si sI sI sI si sb sb ss sb}", "graphs", graphs, "apps",
			 names(plan, true), "modes", names(plan, false), "repeat", plan->repeat,
			 "threads", plan->threads, "iterations", plan->iterations, "chunk_bytes",
			 (json_int_t)plan->chunk_bytes, "cache_bytes",
			 (json_int_t)plan->cache_bytes, "limit_bytes",
			 (json_int_t)plan->limit_bytes, "dpu_cpu_pct", plan->cpu_pct, "background",
			 plan->background, "shm", plan->shm, "link", plan->link.rate, "warm", true);
}
