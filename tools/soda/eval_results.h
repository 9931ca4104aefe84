/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The results so far: OUT/runs.jsonl, a line for each thing known as soon as it is known, so
 * that an evaluation goes on where it was interrupted.
 *
 *	{"plan": ...}	the first line
 *	{"graph": ...}	a graph, once it has been made
 *	{"run": ...}	a run
 */
#ifndef SODA_EVAL_RESULTS_H
#define SODA_EVAL_RESULTS_H

#include "eval.h"

struct soda_eval_results {
	char path[PATH_MAX];
	json_t *graphs; /* by name */
	json_t *runs;	/* an array; the last one of a kind counts */
	uint32_t found; /* valid runs that were there when it was opened */
};

/*
 * Read what is there, make it where nothing is.  fresh: forget what was there.  0;
 * -EEXIST: of another plan; negative errno; after a message.  Close in either case.
 */
int soda_eval_results_open(struct soda_eval_results *results, const struct soda_eval_plan *plan,
			   bool fresh);
/* kind: "graph" or "run"; takes the reference. 0 or negative errno after a message. */
int soda_eval_results_add(struct soda_eval_results *results, const char *kind, json_t *what);
/* Borrowed; NULL: none that is valid. */
json_t *soda_eval_results_find(const struct soda_eval_results *results,
			       const struct soda_eval_plan *plan, const struct soda_eval_run *run);
void soda_eval_results_close(struct soda_eval_results *results);

/* The repetitions of one kind of run, valid and verified ones only. */
struct soda_eval_cell {
	uint32_t n, invalid;
	double seconds, seconds_min, seconds_max; /* median; NAN without a run */
	/* of the run of median time, of two the shorter */
	double traffic_bytes, kinds[4]; /* on demand, prefetch, write-back, preload */
	double programs_bytes;		/* what programs fetched and wrote back */
	double hit_rate;		/* of the dynamic cache's requests; NAN: none */
	double host_cpu_s, agent_cpu_s, server_cpu_s;
};

/* eval_cell.c.  mode and processes as given, everything else of the run ignored. */
void soda_eval_cell_make(const struct soda_eval_results *results, const struct soda_eval_plan *plan,
			 const struct soda_eval_run *kind, struct soda_eval_cell *cell_p);

#endif
