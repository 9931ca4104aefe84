/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bring the runs of a graph of which only the `out` parts are there, in any
 * order, into ascending order, and make its `in` parts.  Transposing visits
 * the vertices in order and so leaves sorted runs: the graph transposed twice
 * is the graph sorted, without a sort.
 */
#ifndef LIGRA_GRAPH_SORT_H
#define LIGRA_GRAPH_SORT_H

#include "graph.h"

/* 0 or an error of an allocation; the graph is then to be destroyed. */
int graph_sort_directed(struct graph *g, struct error *err);

/* The same where each edge lies in both directions; repeated edges go. */
int graph_sort_symmetric(struct graph *g, struct error *err);

#endif
