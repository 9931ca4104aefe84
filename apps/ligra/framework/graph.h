/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A graph in compressed sparse rows, in both directions.
 *
 * Vertices are 0 .. vertices-1.  The out-neighbours of v are, ascending,
 * out.targets[csr_begin(v) .. csr_end(v)-1]; `in` is the same for the edges
 * that end in v.  Vertex data (offsets) and edge data
 * (targets, weights) are objects of their own.  A symmetric graph has one set of arrays.
 */
#ifndef LIGRA_GRAPH_H
#define LIGRA_GRAPH_H

#include "ligra/framework/mem.h"

#include "graph/format/source.h"

#include <stdbool.h>

#define VERTEX_NONE SODA_GRAPH_NONE

struct csr {
	const uint64_t *offsets; /* vertices */
	const uint32_t *targets; /* edges */
	const double *weights;	 /* edges; NULL: not loaded, or the graph has none */
	uint64_t vertices, edges;
};

/* The arrays of a graph, each an object and a file (graph/format/triple.h). */
enum graph_part {
	PART_OUT_OFFSETS,
	PART_OUT_TARGETS,
	PART_OUT_WEIGHTS,
	PART_IN_OFFSETS, /* those of `in` in the order of those of `out` */
	PART_IN_TARGETS,
	PART_IN_WEIGHTS,
	PART_LABELS,
	PARTS
};
#define PART_BIT(part) (1u << (part))
#define PARTS_OUT (PART_BIT(PART_OUT_OFFSETS) | PART_BIT(PART_OUT_TARGETS))
#define PARTS_IN (PART_BIT(PART_IN_OFFSETS) | PART_BIT(PART_IN_TARGETS))
#define PARTS_WEIGHTS (PART_BIT(PART_OUT_WEIGHTS) | PART_BIT(PART_IN_WEIGHTS)) /* if there are */
#define PARTS_ALL (PARTS_OUT | PARTS_IN | PARTS_WEIGHTS | PART_BIT(PART_LABELS))

struct graph {
	struct mem *mem;
	uint64_t vertices;
	uint64_t edges;		/* in each direction */
	bool symmetric;		/* the `in` parts are the `out` parts */
	bool labelled;		/* the input's ids are not 0 .. vertices-1 */
	bool weighted;		/* the edges have weights of the input's */
	struct csr out, in;	/* NULL: not loaded */
	const uint32_t *labels; /* the input's ids, ascending; NULL: not loaded, or not labelled */
	uint32_t sum[PARTS];	/* checksums (CRC-32) of the files */
};

/* What a part is called in statistics and messages. */
const char *graph_part_name(enum graph_part part);

/* The part's size in bytes; vertices, edges, labelled and weighted must be set. */
size_t graph_part_bytes(const struct graph *g, enum graph_part part);

/* Whether the part is another name of one of `out`, in a symmetric graph. */
bool graph_part_is_alias(const struct graph *g, enum graph_part part);

/* The part's array, NULL: not loaded; a symmetric graph's `in` parts are its `out` parts. */
void *graph_part(const struct graph *g, enum graph_part part);

/* Make `object`, which has the part's size and lies in the graph's memory, that part. */
void graph_part_set(struct graph *g, enum graph_part part, void *object);

void graph_part_free(struct graph *g, enum graph_part part);

/* Free every part that is not in the set of PART_BIT()s. */
void graph_keep(struct graph *g, unsigned parts);

void graph_destroy(struct graph *g);

/*
 * Check that every loaded part has its checksum, that offsets ascend, that targets are vertices and
 * that weights are from 0 to SODA_GRAPH_WEIGHT_MAX; by all threads.  0; -EBADMSG with the part, the
 * byte and what was expected.
 */
int graph_check(const struct graph *g, struct soda_graph_error *err);

/* The vertex that the input calls `label`; the labels must be loaded.  0 or -ENOENT. */
int graph_find(const struct graph *g, uint64_t label, uint32_t *vertex_p,
	       struct soda_graph_error *err);

/* The vertex with the most out-edges, the first of several; `out.offsets` must be loaded. */
uint32_t graph_hub(const struct graph *g);

/* The targets of v are those from csr_begin() to before csr_end(). */
static inline uint64_t csr_begin(const struct csr *csr, uint64_t v)
{
	return csr->offsets[v];
}

static inline uint64_t csr_end(const struct csr *csr, uint64_t v)
{
	return v + 1 < csr->vertices ? csr->offsets[v + 1] : csr->edges;
}

static inline uint64_t csr_degree(const struct csr *csr, uint64_t v)
{
	return csr_end(csr, v) - csr_begin(csr, v);
}

#endif
