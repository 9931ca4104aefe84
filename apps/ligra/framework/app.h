/* SPDX-License-Identifier: BSD-3-Clause */
/* The applications, and the parameters that all of them take. */
#ifndef LIGRA_APP_H
#define LIGRA_APP_H

#include "ligra/framework/ligra.h"

struct app_params {
	uint32_t source;     /* the vertex to begin at, for applications that have one */
	unsigned iterations; /* pagerank: at most */
	double epsilon;	     /* pagerank: stop when the ranks move by less in sum; 0: never */
};

/* The defaults that Ligra has. */
#define APP_PARAMS_DEFAULTS                                                                        \
	{                                                                                          \
		.iterations = 100, .epsilon = 1e-7                                                 \
	}

struct app {
	const char *name;
	const char *summary;
	/*
	 * Compute.  result: an entry of entry_bytes for each vertex, overwritten.
	 * Returns the iterations or rounds made.  Out of memory: l->failed.
	 */
	unsigned (*run)(struct ligra *l, const struct app_params *params, void *result);
	/*
	 * The same result from a serial reference that shares nothing with `run`
	 * and reads the out-edges only.  0, printing a line; -EBADMSG with what is
	 * wrong; -ENOMEM.
	 */
	int (*check)(const struct graph *g, const struct app_params *params, const void *result,
		     struct soda_graph_error *err);
	size_t entry_bytes;
	unsigned parts;	     /* of the graph that it reads */
	bool source;	     /* begins at one vertex */
	bool symmetric_only; /* defined on symmetric graphs only */
};

extern const struct app app_bfs, app_pagerank, app_radii, app_bc, app_components, app_kcore,
	app_mis, app_triangle, app_bellman_ford;

/* All of them, the paper's five first; NULL at the end. */
extern const struct app *const apps[];

/* NULL: there is none of that name. */
const struct app *app_find(const char *name);

#endif
