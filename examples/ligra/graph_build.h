/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From edges in any order to a graph with ascending neighbours.
 *
 * A directed graph keeps self-loops and repeated edges, so its edges are the
 * input's lines.  A symmetric one gets each edge in both directions, once,
 * and no self-loops.  (Ligra's converter makes the same choice.)
 * Ids with gaps become 0, 1, 2 ... in the same order: a vertex is an id that occurs.
 */
#ifndef LIGRA_GRAPH_BUILD_H
#define LIGRA_GRAPH_BUILD_H

#include "edge_source.h"
#include "graph.h"

/*
 * Read the source in two passes, three where its ids must be learnt first, and
 * make every part of the graph in `mem`; one part at a time is in use besides
 * the result.  The caller destroys the graph.
 * 0, or the error of the source or of an allocation; -ESTALE: the passes differ.
 */
int graph_build(struct edge_source *source, bool symmetric, struct mem *mem, struct graph *g_p,
		struct error *err);

#endif
