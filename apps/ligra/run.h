/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of an application: their result, what was measured, the report. */
#ifndef LIGRA_RUN_H
#define LIGRA_RUN_H

#include <stdint.h>

#include "graph/format/source.h"
#include "ligra/framework/app.h"

/* What an application computed: array has an entry for each vertex (struct app). */
struct result {
	const struct app *app;
	struct app_params params; /* iterations: those made */
	void *array;
};

/* result.c: a result as a file, so that another process can check it that has the memory for it. */

size_t result_bytes(const struct app *app, uint64_t vertices);

/* 0; -EIO, -ENOSPC and the like. */
int result_write(const char *path, const struct graph *g, const struct result *r,
		 struct soda_graph_error *err);

/*
 * Read a result into local memory; the caller frees r_p->array with free().  0; -EINVAL: not a
 * result, damaged, or of another graph; -EIO, -ENOMEM.
 */
int result_read(const char *path, const struct graph *g, struct result *r_p,
		struct soda_graph_error *err);

/* The run of median time. */
struct measured {
	double seconds, cpu_seconds;
	unsigned rounds;
	uint64_t faults, bytes_fetched, bytes_written_back;
	uint64_t prefetched, prefetch_useless; /* chunks */
	uint64_t pss_bytes;		       /* after the run; the most of all runs */
};

/*
 * r_p: app and params are set; receives the result of the last run, its array
 * in `arrays`, where the application's other arrays lie, too.  The caller frees
 * it with mem_free().  0 or an error of an allocation.
 */
int run_app(const struct graph *g, struct mem *arrays, unsigned repeat, struct result *r_p,
	    struct measured *median_p, struct soda_graph_error *err);

struct report {
	const struct graph *g;
	const struct result *result;
	struct measured measured;
	double load_seconds;
	const struct mem *arrays; /* `peak` is what the application had at a time */
	bool verified;
};

/* report.c.  One JSON object, one member a line.  0; -EIO, -ENOSPC and the like; -ENOMEM. */
int report_write(const char *path, const struct report *r, struct soda_graph_error *err);

/*
 * Touch so many bytes and give them back.  The host of a virtual machine has no memory yet behind a
 * page that was never touched, or that it took back: its first touch costs several times a copy,
 * and would be counted against the part that happens to be given the page.  The kernel hands out
 * next the pages that are freed here.  0 or -ENOMEM.
 */
int warm_up(uint64_t bytes, struct soda_graph_error *err);

/* Seconds of a monotonic clock. */
double clock_seconds(void);

#endif
