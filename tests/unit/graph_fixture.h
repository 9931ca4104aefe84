/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of examples/ligra share: graphs from literal edge lists. */
#ifndef GRAPH_FIXTURE_H
#define GRAPH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_input.h"

/* A new file with these bytes; the caller calls fixture_remove(). */
char *fixture_file(const void *bytes, size_t count);
char *fixture_gz(const void *bytes, size_t count);
void fixture_remove(char *path);

/* Load an edge list from a temporary file; what graph_input_load() returns. */
int fixture_load(const void *bytes, size_t count, bool symmetric, struct mem *mem,
		 struct graph *g_p, struct error *err);

/* The same for a list that must be right. */
struct graph fixture_graph(const char *text, bool symmetric, struct mem *mem);

#endif
