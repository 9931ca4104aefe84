/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Graphs, or square sparse matrices, whose rows are dealt out to ranks: vertex v is row v / n of
 * rank v % n.  Read from a file of any format that `soda graph convert` reads, or drawn (R-MAT).
 */
#ifndef EXAMPLES_MESSAGES_GRAPH_H
#define EXAMPLES_MESSAGES_GRAPH_H

#include "graph/format/source.h"
#include "ranks.h"

/* What the programs on graphs take: [-u] [-s SCALE] [-e EDGES_PER_VERTEX] [FILE]. */
struct graph_options {
	const char *path; /* NULL: drawn */
	struct soda_graph_random random;
	bool unverified; /* -u: do not compute it once more, alone */
};
void graph_options(int argc, char **argv, struct graph_options *o);

struct edges {
	struct soda_graph_edge *all;
	size_t n, room;
};
void edges_add(struct edges *e, uint32_t from, uint32_t to);

/*
 * The edges that keep() wants for a rank, which it may turn around. NULL: all. Every rank reads
 * all of them. Ends the process with a sentence on an error. *vertices_p: of the whole graph.
 */
typedef bool keep_fn(const struct ranks *r, struct soda_graph_edge *e);
void edges_read(const struct ranks *r, const struct graph_options *o, keep_fn *keep,
		struct edges *e, uint64_t *vertices_p);
/* keep(): edges that leave this rank's vertices. */
bool keep_mine(const struct ranks *r, struct soda_graph_edge *e);

/* Rows first, first + step, first + 2 step ... of a matrix: row i has to[begin[i]] and so on. */
struct rows {
	uint32_t n;
	uint64_t *begin; /* n + 1 */
	uint32_t *to;	 /* ascending in a row */
};
/*
 * Sort edges into rows, and forget them: of rank's of n, or, 0 of 1, of all.  All of them belong
 * there.
 */
void rows_build(struct rows *rows, struct edges *e, uint64_t vertices, unsigned rank, unsigned n);
void rows_free(struct rows *rows);

#endif
