/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where edges come from: a file of one of several formats, or a generator.  A
 * source is read in passes, each in small batches, so that the edges are never
 * all in memory.  Every pass gives the same edges.
 */
#ifndef SODA_GRAPH_SOURCE_H
#define SODA_GRAPH_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SODA_GRAPH_NONE UINT32_MAX		       /* no vertex */
#define SODA_GRAPH_VERTICES_MAX ((uint64_t)UINT32_MAX) /* SODA_GRAPH_NONE is not one of them */

/* What is wrong with a graph, as a sentence. */
struct soda_graph_error {
	char text[512];
};

/* Write the sentence and return -code, so that `return soda_graph_fail(...)` reads well. */
int soda_graph_fail(struct soda_graph_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

struct soda_graph_edge {
	uint32_t from, to;
};

struct soda_graph_source {
	const char *format; /* for people */
	/* The ids are 0 .. vertices-1, all of which exist; 0: any ids, those that occur exist. */
	uint64_t vertices;
	uint64_t edges;	 /* that will come, for progress; 0: not known */
	bool symmetric;	 /* each edge comes in both directions */
	bool weighable;	 /* soda_graph_source_weigh() may be called */
	double *weights; /* set by that; NULL: the edges' weights are not asked for */
	double (*fraction)(const struct soda_graph_source *source); /* of this pass that is done */
	/* Begin a pass.  0; -EIO, -ESTALE: the input has changed or cannot be read again. */
	int (*rewind)(struct soda_graph_source *source, struct soda_graph_error *err);
	/* The next edges: how many, at most `max`; 0 at the end; -EINVAL: malformed; -EIO. */
	long (*next)(struct soda_graph_source *source, struct soda_graph_edge *edges, size_t max,
		     struct soda_graph_error *err);
	void (*close)(struct soda_graph_source *source);
};

/*
 * A file of any format that can be read, told apart by what it begins with, or
 * PATH.config, which stands for a binary triple.  Text may be gzipped.
 * 0; -EINVAL with the file, the position and what was expected; what open(2) says.
 */
int soda_graph_source_open(const char *path, struct soda_graph_source **source_p,
			   struct soda_graph_error *err);

/*
 * Before the first pass: ask for the edges' weights, from 0 to SODA_GRAPH_WEIGHT_MAX.  From then on
 * next() writes the weight of edges[i] to weights[i], which has room for its `max`, is the caller's
 * and lives as long as the source.
 * 0; -EINVAL: the source has no weights.  Weights that are missing or not in that range are an
 * error of next().
 */
int soda_graph_source_weigh(struct soda_graph_source *source, double *weights,
			    struct soda_graph_error *err);

/* So that no path through SODA_GRAPH_VERTICES_MAX vertices is longer than a double can say. */
#define SODA_GRAPH_WEIGHT_MAX 1e250

/*
 * An edge list as SNAP publishes them: two vertex ids of at most 32 bits a
 * line, separated by blanks, and a third number if weights are asked for; empty lines and lines
 * that begin with # or % are skipped; lines end in LF or CRLF, the last one may lack it.
 */
int soda_graph_snap_open(const char *path, struct soda_graph_source **source_p,
			 struct soda_graph_error *err);

/*
 * A square matrix in the coordinate format of Matrix Market; values are
 * skipped, or are the weights where they are real or integer and not negated by a symmetry; a
 * symmetric one (skew, hermitian) gives both directions.
 */
int soda_graph_mtx_open(const char *path, struct soda_graph_source **source_p,
			struct soda_graph_error *err);

/*
 * Ligra's text: AdjacencyGraph, vertices, edges, the vertices' offsets, the targets.
 * WeightedAdjacencyGraph: and the weights, which must be asked for.
 */
int soda_graph_adjacency_open(const char *path, struct soda_graph_source **source_p,
			      struct soda_graph_error *err);

/* A serialized graph of the GAP benchmark suite, unweighted, 32-bit ids. */
int soda_graph_gap_open(const char *path, struct soda_graph_source **source_p,
			struct soda_graph_error *err);

/* Ligra's binary triple: path is without the ending; its out-edges, with weights if it has them. */
int soda_graph_triple_open(const char *path, struct soda_graph_source **source_p,
			   struct soda_graph_error *err);

struct soda_graph_random {
	unsigned scale;	   /* 2^scale vertices, 1 to 31; 0: `vertices` (uniform only) */
	uint64_t vertices; /* uniform: at least 1 */
	uint64_t edges;	   /* at least 1 */
	double a, b, c;	   /* R-MAT: the quadrants' probabilities; the fourth has the rest */
	uint64_t seed;
};
#define SODA_GRAPH_RANDOM_DEFAULTS                                                                 \
	{                                                                                          \
		.a = 0.5, .b = 0.1, .c = 0.1, .seed = 1                                            \
	}

/*
 * A recursive-matrix random graph (Chakrabarti, Zhan, Faloutsos, SDM 2004):
 * edge i depends on the parameters and i alone, never on the threads.
 * 0; -EINVAL; -ENOMEM.
 */
int soda_graph_rmat_open(const struct soda_graph_random *params,
			 struct soda_graph_source **source_p, struct soda_graph_error *err);

/* Both ends of each edge drawn evenly; otherwise the same. */
int soda_graph_uniform_open(const struct soda_graph_random *params,
			    struct soda_graph_source **source_p, struct soda_graph_error *err);

#endif
