/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_BFS_H
#define LIGRA_BFS_H

#include "graph.h"

/* The parts of the graph that it reads. */
#define BFS_PARTS (PARTS_OUT | PARTS_IN)

/*
 * Breadth-first search: parents[v] is the vertex that v was reached from, the
 * source is its own parent, and VERTEX_NONE was not reached.  Steps from a
 * small frontier go along its out-edges, those from a large one look for a
 * parent along the in-edges of what is left (Beamer, Asanovic, Patterson, SC
 * 2012, with Ligra's threshold).  parents: `vertices` entries, overwritten.
 * 0 or an error of an allocation.
 */
int bfs_run(const struct graph *g, uint32_t source, uint32_t *parents, struct error *err);

#endif
