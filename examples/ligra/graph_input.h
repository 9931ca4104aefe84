/* SPDX-License-Identifier: BSD-3-Clause */
/* The graph that a command line asks for: a file of either kind, or a generated one. */
#ifndef LIGRA_GRAPH_INPUT_H
#define LIGRA_GRAPH_INPUT_H

#include "edge_source.h"
#include "graph.h"

struct graph_input {
	const char *path; /* NULL: generate by rmat */
	struct rmat_params rmat;
	bool symmetric;
};

/*
 * Load at least `parts` into `mem` and drop the others; the caller destroys the
 * graph.  0, or the error of the loader, with the file and what was expected.
 */
int graph_input_load(const struct graph_input *input, unsigned parts, struct mem *mem,
		     struct graph *g_p, struct error *err);

#endif
