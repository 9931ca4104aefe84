/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The results so far: OUT/runs.jsonl, a line for each thing known as soon as it is known, so
 * that an evaluation goes on where it was interrupted, and may be made in parts: other graphs,
 * applications, modes, more repetitions, as long as the setting is the same.
 *
 *	{"setting": ...}	the first line
 *	{"command": ...}	what was typed, and when
 *	{"graph": ...}		a graph, once it has been made
 *	{"run": ...}		a run
 */
#ifndef SODA_EVAL_RESULTS_H
#define SODA_EVAL_RESULTS_H

#include <stdio.h>

#include "soda/eval/eval.h"
#include "soda/stage/guard.h"

struct soda_eval_results {
	char path[PATH_MAX];
	json_t *commands; /* an array of {"text", "date"} */
	json_t *graphs;	  /* by name */
	json_t *runs;	  /* an array; of several results of one run the last one counts */
	uint32_t found;	  /* valid runs that were there when it was opened */
};

enum soda_eval_begin {
	SODA_EVAL_GO_ON, /* keep the file's results, if there is a file */
	SODA_EVAL_FRESH, /* drop the file's results */
	SODA_EVAL_LOOK,	 /* only read the file, and take the setting from it */
};

/*
 * Open and read OUT/runs.jsonl.  0; -EEXIST: it has another setting, or another graph of the same
 * name; -ENOENT: LOOK, and there is no file; negative errno; after a message.  Close in either
 * case.
 */
int soda_eval_results_open(struct soda_eval_results *results, struct soda_eval_plan *plan,
			   enum soda_eval_begin begin);
/* kind: "command", "graph" or "run"; takes the reference. 0 or negative errno after a message. */
int soda_eval_results_add(struct soda_eval_results *results, const char *kind, json_t *what);
/* The valid result of this run, borrowed; NULL: there is none. */
json_t *soda_eval_results_find(const struct soda_eval_results *results,
			       const struct soda_eval_plan *plan, const struct soda_eval_run *run);
void soda_eval_results_close(struct soda_eval_results *results);

/*
 * parts.c.  For a report: add to the plan the graphs, applications, modes and repetitions of all
 * results, but no runs.  The plan then points to texts of the results.
 */
void soda_eval_plan_widen(struct soda_eval_plan *plan, const struct soda_eval_results *results);

/*
 * progress.c.  Guess the seconds that a run will take, preparation and verification included: from
 * results of the same graph, application and mode, or else of other ones; 0: the graph's size is
 * not known.
 */
double soda_eval_progress_guess(const struct soda_eval_results *results,
				const struct soda_eval_plan *plan, const struct soda_eval_run *run);
/* "45 s", "12 min", "2 h 05 min" */
enum { SODA_EVAL_DURATION_BYTES = 48 };
void soda_eval_progress_format(double seconds, char text[SODA_EVAL_DURATION_BYTES]);

/* files.c.  The files of numbers that `soda eval` ends with; the page is made of the first. */
struct soda_eval_report {
	const struct soda_eval_plan *plan;
	const struct soda_eval_results *results;
	const char *cap; /* how memory was capped, a sentence */
	json_t *machine; /* borrowed; NULL: nothing was run */
};

/* Each 0, or negative errno after a message. */
int soda_eval_write_json(const struct soda_eval_report *report); /* OUT/results.json */
int soda_eval_write_csv(const struct soda_eval_report *report);	 /* OUT/results.csv */

/*
 * table.c.  For people: for each application the medians of its valid runs in local memory and in
 * far memory, how many times as long it took there, how many runs were verified; and a sentence
 * that sums it up.
 */
void soda_eval_table(FILE *out, const struct soda_eval_report *report);

/* drive.c.  Does the runs one after the other, and writes their results. */
struct soda_eval_drive {
	struct soda_eval_plan *plan;
	const char *command; /* as it was typed */
	enum soda_eval_begin begin;
	struct soda_eval_readahead disk; /* the disk's setting before the first run */
};

/* Before soda_bench_guard_run: find out what the clean-up needs. */
void soda_eval_drive_prepare(struct soda_eval_drive *drive);
/* For soda_bench_guard_run; arg is the drive. */
int soda_eval_drive_run(void *arg, const struct soda_bench_guarded *guarded);
void soda_eval_drive_clean(void *arg, const struct soda_bench_guarded *guarded);

#endif
