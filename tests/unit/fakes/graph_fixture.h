/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of apps/ligra share: graphs from literal edge lists. */
#ifndef GRAPH_FIXTURE_H
#define GRAPH_FIXTURE_H

#include <setjmp.h>
#include <soda.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/build.h"
#include "ligra/framework/app.h"
#include "ligra/load/load.h"

/* A new file with these bytes; the caller calls fixture_remove(). */
char *fixture_file(const void *bytes, size_t count);
char *fixture_gz(const void *bytes, size_t count);
void fixture_remove(char *path);

/* A path in a new folder, for a triple; the caller calls fixture_triple_remove(). */
char *fixture_triple_path(void);

/* Removes the triple and its folder. */
void fixture_triple_remove(char *path);

/* Build a triple of an edge list there; what soda_graph_build() returns. */
int fixture_build(const char *input, bool symmetric, bool weighted, const char *path,
		  struct soda_graph_error *err);

/* Flip a bit of a byte of PATH + suffix. */
void fixture_flip(const char *path, const char *suffix, long offset);

/* Load an edge list from a temporary file; what graph_input_load() returns. */
int fixture_load(const void *bytes, size_t count, bool symmetric, struct mem *mem,
		 struct graph *g_p, struct soda_graph_error *err);

/*
 * Run an application on local memory that must suffice; params_p->iterations
 * becomes those made.  The caller frees the result with free().
 */
void *fixture_run(const struct app *app, const struct graph *g, struct app_params *params_p);

/* Run it and check what came of it. */
void fixture_run_and_check(const struct app *app, const struct graph *g, struct app_params params);

/* A generated graph of 2^14 vertices with no part left out. */
struct graph fixture_rmat(bool symmetric, struct mem *mem);

/* The same for a list that must be right. */
struct graph fixture_graph(const char *text, bool symmetric, struct mem *mem);

/* fake_soda.c: soda.h on the heap: what it was asked for, and failures. */

struct fake_soda {
	unsigned threads;    /* of the last soda_init() */
	int allocs_left;     /* this many succeed, the next fails with ENOSPC; -1: all succeed */
	unsigned live;	     /* objects that are not freed */
	int init_result;     /* of soda_init() */
	unsigned sequential; /* calls of soda_advise() with SODA_SEQUENTIAL */
	unsigned prefetches; /* calls of soda_prefetch() */
};
extern struct fake_soda fake_soda;

#endif
