/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `soda run` tells of its programs: a table (--stats), and a page (--report).  What they did
 * is in memory that they share with it (base/tree/tree.h, base/run.h), so that a program that
 * crashes is told of, too.
 */
#ifndef SODA_TOOL_RUN_RESULTS_H
#define SODA_TOOL_RUN_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tree/tree.h"

/* A program that has ended, with all that it has started under --children=all. */
struct soda_run_end {
	const struct soda_tree *tree;
	char *const *argv; /* the program's */
	int status;	   /* its exit status, or 128 + its signal */
	uint64_t took_ns;  /* from its start to its end */
	uint64_t threshold;
	uint64_t local; /* 0: small blocks never go to fabric memory */
	bool quiet;	/* say nothing where no fabric memory was used */
};

/* How many rows the tree has; there is no room for those of further processes. */
static inline uint32_t soda_run_rows(const struct soda_tree *tree)
{
	uint32_t n = atomic_load(&tree->rows_n);

	return n < SODA_TREE_ROWS ? n : SODA_TREE_ROWS;
}

/*
 * table.c: print on standard error what the processes did with fabric memory: of one all that it
 * has told, of several a table, a process a line, and the sum.  Where there was none: why, unless
 * quiet.
 */
void soda_run_table(const struct soda_run_end *end);
/*
 * summary.c: below the table how long the program took, what part of it threads waited, the traffic
 * against the data, and what to change (advice.h).
 */
void soda_run_summary(const struct soda_run_end *end);
/* In place of both one line of JSON, format soda-run-stats, on standard error. */
void soda_run_summary_json(const struct soda_run_end *end);

/*
 * numbers.c.  Before the program starts: that its numbers can be written, as JSON (format soda-run;
 * tools/report reads it), and the memory for samples, which the program finds by its environment.
 * Whether a page can be drawn does not keep it from running.  path: of the page.  0, or -1 with one
 * line on standard error.
 */
int soda_run_numbers_open(const char *path);
/*
 * Write its numbers and the page; without what that needs the numbers remain, and it is said how
 * the page is made.  argv: the program's; status: its exit status, or 128 + its signal.
 */
void soda_run_numbers_close(const char *path, char *const *argv, int status);

#endif
