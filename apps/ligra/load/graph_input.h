/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The graph that a command line asks for: a binary triple that SODA wrote is
 * loaded as it is; every other input becomes one first, in the temporary folder.
 */
#ifndef LIGRA_GRAPH_INPUT_H
#define LIGRA_GRAPH_INPUT_H

#include "ligra/framework/graph.h"

#include "graph/format/source.h"

struct graph_input {
	const char *path; /* NULL: generate an R-MAT graph */
	struct soda_graph_random rmat;
	bool symmetric;
};

/*
 * Load at least `parts` into `mem` and drop the others; the caller destroys the
 * graph.  0, or the error of the loader, with the file and what was expected.
 */
int graph_input_load(const struct graph_input *input, unsigned parts, struct mem *mem,
		     struct graph *g_p, struct soda_graph_error *err);

#endif
