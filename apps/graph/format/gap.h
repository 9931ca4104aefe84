/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The serialized graph of the GAP benchmark suite (Beamer, Asanovic,
 * Patterson): this header, 64-bit offsets of the vertices and of the end,
 * 32-bit targets; of a directed graph the same again for the in-edges.
 */
#ifndef SODA_GRAPH_GAP_H
#define SODA_GRAPH_GAP_H

#include <stdint.h>

struct soda_graph_gap_header {
	uint8_t directed;
	uint64_t edges, vertices; /* targets; an undirected edge is two */
} __attribute__((packed));

#endif
