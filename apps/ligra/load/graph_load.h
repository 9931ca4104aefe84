/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_GRAPH_LOAD_H
#define LIGRA_GRAPH_LOAD_H

#include "ligra/framework/graph.h"

/*
 * Load the parts in `parts` (PART_BIT()s) of the triple that SODA wrote to
 * `path`, check them (graph_check(); not if mem->trusted), and drop nothing else; the caller
 * destroys the graph.  In memory that is files (served, mmap) each part is one,
 * otherwise it is read into an object.
 * 0; -EINVAL: not such a triple, of the wrong size; -EBADMSG: damaged; -EIO,
 * -ENOMEM; what open(2) or soda_alloc_file() say.
 */
int graph_load(const char *path, unsigned parts, struct mem *mem, struct graph *g_p,
	       struct soda_graph_error *err);

#endif
