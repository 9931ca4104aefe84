/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A graph in compressed sparse rows, in both directions.
 *
 * Vertices are 0 .. vertices-1.  The out-neighbours of v are
 * out.targets[out.offsets[v] .. out.offsets[v+1]-1], ascending; `in` is the
 * same for the edges that end in v.  Vertex data (offsets) and edge data
 * (targets) are objects of their own.  A symmetric graph has one set of arrays.
 */
#ifndef LIGRA_GRAPH_H
#define LIGRA_GRAPH_H

#include "mem.h"

#include <stdbool.h>

#define VERTEX_NONE UINT32_MAX
#define VERTICES_MAX ((uint64_t)UINT32_MAX) /* VERTEX_NONE is no vertex */

struct csr {
	uint64_t *offsets; /* vertices + 1 */
	uint32_t *targets; /* edges */
	uint64_t vertices, edges;
};

/* The arrays of a graph, each an object; in this order they lie in a binary file. */
enum graph_part {
	PART_OUT_OFFSETS,
	PART_OUT_TARGETS,
	PART_IN_OFFSETS,
	PART_IN_TARGETS,
	PART_LABELS,
	PARTS
};
#define PART_BIT(part) (1u << (part))
#define PARTS_OUT (PART_BIT(PART_OUT_OFFSETS) | PART_BIT(PART_OUT_TARGETS))
#define PARTS_IN (PART_BIT(PART_IN_OFFSETS) | PART_BIT(PART_IN_TARGETS))
#define PARTS_ALL (PARTS_OUT | PARTS_IN | PART_BIT(PART_LABELS))

struct graph {
	struct mem *mem;
	uint64_t vertices;
	uint64_t edges;	     /* in each direction */
	bool symmetric;	     /* the `in` parts are the `out` parts */
	bool labelled;	     /* the input's ids are not 0 .. vertices-1 */
	struct csr out, in;  /* NULL: not loaded */
	uint32_t *labels;    /* the input's ids, ascending; NULL: not loaded, or not labelled */
	uint32_t sum[PARTS]; /* checksums as loaded */
};

/* What a part is called in statistics and messages. */
const char *graph_part_name(enum graph_part part);

/* Its size: vertices, edges and labelled must be set. */
size_t graph_part_bytes(const struct graph *g, enum graph_part part);

/* Its array, NULL where it is not loaded; a symmetric graph's `in` parts are its `out` parts. */
void *graph_part(const struct graph *g, enum graph_part part);

/* Allocate a part that is not loaded.  0 or an error of mem_alloc(). */
int graph_part_alloc(struct graph *g, enum graph_part part, struct error *err);

void graph_part_free(struct graph *g, enum graph_part part);

/* Free every part that is not in the set of PART_BIT()s. */
void graph_keep(struct graph *g, unsigned parts);

void graph_destroy(struct graph *g);

/* The checksum of a loaded part, computed from memory. */
uint32_t graph_part_sum(const struct graph *g, enum graph_part part);

/* Every loaded part still has the checksum that it was loaded with: 0 or -EBADMSG. */
int graph_check_sums(const struct graph *g, struct error *err);

/* The vertex that the input calls `label`; the labels must be loaded.  0 or -ENOENT. */
int graph_find(const struct graph *g, uint64_t label, uint32_t *vertex_p, struct error *err);

/* The vertex with the most out-edges, the first of several; `out.offsets` must be loaded. */
uint32_t graph_hub(const struct graph *g);

/* The targets of v are those from csr_begin() to before csr_end(). */
static inline uint64_t csr_begin(const struct csr *csr, uint64_t v)
{
	return csr->offsets[v];
}

static inline uint64_t csr_end(const struct csr *csr, uint64_t v)
{
	return csr->offsets[v + 1];
}

static inline uint64_t csr_degree(const struct csr *csr, uint64_t v)
{
	return csr_end(csr, v) - csr_begin(csr, v);
}

/* Degrees, in offsets[0 .. vertices-1], to the ends of the runs; returns their sum. */
uint64_t csr_sum_up(uint64_t *offsets, uint64_t vertices);

#endif
