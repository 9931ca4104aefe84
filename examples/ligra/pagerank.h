/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_PAGERANK_H
#define LIGRA_PAGERANK_H

#include "graph.h"

/* The parts of the graph that it reads. */
#define PAGERANK_PARTS (PARTS_IN | PART_BIT(PART_OUT_OFFSETS))

#define PAGERANK_DAMPING 0.85

struct pagerank_params {
	unsigned iterations; /* at most */
	double epsilon;	     /* stop when the ranks move by less in sum; 0: never */
};

/*
 * PageRank by power iteration, each vertex pulling along its in-edges; what
 * the vertices without out-edges hold is spread over all, so that the ranks
 * sum to 1.  A repeated edge counts as often as it is there.  ranks:
 * `vertices` entries, overwritten.  Returns the iterations made, at least 0,
 * or an error of an allocation.
 */
int pagerank_run(const struct graph *g, const struct pagerank_params *params, double *ranks,
		 struct error *err);

#endif
