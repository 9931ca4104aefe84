/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where edges come from: an edge list or a generator.  A source is read in
 * several passes, each in small batches, so that the list is never in memory.
 * Every pass gives the same edges.
 */
#ifndef LIGRA_EDGE_SOURCE_H
#define LIGRA_EDGE_SOURCE_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

struct edge {
	uint32_t from, to;
};

struct edge_source {
	/* The ids are 0 .. vertices-1, all of which exist; 0: any ids, those that occur exist. */
	uint64_t vertices;
	/* Begin a pass.  0; -EIO, -ESTALE: the input has changed or cannot be read again. */
	int (*rewind)(struct edge_source *source, struct error *err);
	/* The next edges: how many, at most `max`; 0 at the end; -EINVAL: malformed; -EIO. */
	long (*next)(struct edge_source *source, struct edge *edges, size_t max, struct error *err);
	void (*close)(struct edge_source *source);
};

/*
 * An edge list as SNAP publishes them, plain or gzipped: two vertex ids of at
 * most 32 bits a line, separated by blanks; empty lines and lines that begin
 * with # or % are skipped; lines end in LF or CRLF, the last one may lack it.
 * 0, or what open(2) says.
 */
int snap_open(const char *path, struct edge_source **source_p, struct error *err);

struct rmat_params {
	unsigned scale; /* 2^scale vertices, 1 to 31 */
	uint64_t edges;
	double a, b, c; /* the quadrants' probabilities; the fourth has the rest */
	uint64_t seed;
};
#define RMAT_DEFAULTS                                                                              \
	{                                                                                          \
		.a = 0.5, .b = 0.1, .c = 0.1, .seed = 1                                            \
	}

/*
 * A recursive-matrix random graph (Chakrabarti, Zhan, Faloutsos, SDM 2004):
 * edge i depends on the parameters and i alone, never on the threads.
 * 0 or -EINVAL.
 */
int rmat_open(const struct rmat_params *params, struct edge_source **source_p, struct error *err);

#endif
