/* SPDX-License-Identifier: BSD-3-Clause */
/* From a binary triple that SODA wrote to the other formats. */
#ifndef SODA_GRAPH_EXPORT_H
#define SODA_GRAPH_EXPORT_H

#include <stdint.h>

#include "graph/format/triple.h"

enum soda_graph_format {
	SODA_GRAPH_TRIPLE,    /* not a format to export to */
	SODA_GRAPH_ADJACENCY, /* Ligra's text */
	SODA_GRAPH_SNAP,      /* an edge list, with the input's ids */
	SODA_GRAPH_MTX,	      /* Matrix Market, pattern, or real for weights */
	SODA_GRAPH_GAP,	      /* GAP's .sg, which has no weights */
};

/*
 * Write PATH's graph as one file in another format.  Labels are kept in edge
 * lists only.  A symmetric graph is written with each edge in both directions,
 * in Matrix Market once.  Weights are written so that they read back as the same numbers.
 * 0; -ERANGE: too large for the format; -EINVAL: damaged, or weights for GAP; -EIO, -ENOSPC and
 * the like; -ENOMEM.  On failure the file is removed.
 */
int soda_graph_export(const char *path, enum soda_graph_format format, const char *file,
		      struct soda_graph_error *err);

/*
 * The serialized graph of the GAP benchmark suite (Beamer, Asanovic,
 * Patterson): this header, 64-bit offsets of the vertices and of the end,
 * 32-bit targets; of a directed graph the same again for the in-edges.
 */

struct soda_graph_gap_header {
	uint8_t directed;
	uint64_t edges, vertices; /* targets; an undirected edge is two */
} __attribute__((packed));

#endif
