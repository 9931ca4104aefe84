/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ligra's vertexSubset.  A small one is a list (sparse), a larger one a bitmap
 * (dense), that of all vertices neither.  A bitmap is walked in ascending
 * order, so that the edge lists of its vertices are read in the order in which
 * they lie, each page once; a list is too small for the order to matter, and
 * always in local memory.
 */
#ifndef LIGRA_SUBSET_H
#define LIGRA_SUBSET_H

#include "ligra/framework/mem.h"

#include <stdbool.h>

struct ligra;
struct csr;

struct vertex_subset {
	uint64_t vertices; /* of the graph */
	uint64_t size;
	uint32_t *list;	 /* the members in any order, or NULL */
	uint64_t *bits;	 /* bit v % 64 of word v / 64; NULL with a NULL list: all or none */
	struct mem *mem; /* of the bitmap */
};

/* Subsets of more than this part of the vertices are bitmaps. */
#define SUBSET_LIST_FRACTION 1024

/* Steps of less work are not worth waking the other threads. */
#define SUBSET_PARALLEL 512

struct vertex_subset subset_all(struct ligra *l);
struct vertex_subset subset_none(struct ligra *l);
struct vertex_subset subset_single(struct ligra *l, uint32_t v);

/* Frees the subset's memory and leaves it empty. */
void subset_free(struct vertex_subset *s);

/* Frees the old one: `frontier = edgeMap(frontier)` of the papers. */
void subset_replace(struct vertex_subset *s, struct vertex_subset by);

/* Make a bitmap of a list; false: out of memory, the subset is as it was. */
bool subset_to_bits(struct ligra *l, struct vertex_subset *s);

/* The members of both subsets, which have none in common. Frees both. */
struct vertex_subset subset_join(struct ligra *l, struct vertex_subset *a, struct vertex_subset *b);

/* How many edges begin at the members; the sum may stop once it is above `enough`. */
uint64_t subset_edges(const struct vertex_subset *s, const struct csr *csr, uint64_t enough);

static inline uint64_t subset_words(const struct vertex_subset *s)
{
	return (s->vertices + 63) / 64;
}

/* The bits of the 64 vertices from 64 * i on; not of a list. */
static inline uint64_t subset_word(const struct vertex_subset *s, uint64_t i)
{
	if (s->bits)
		return s->bits[i];
	if (!s->size)
		return 0;
	return s->vertices - i * 64 < 64 ? ((uint64_t)1 << s->vertices % 64) - 1 : UINT64_MAX;
}

static inline size_t subset_bitmap_bytes(const struct vertex_subset *s)
{
	return subset_words(s) * sizeof(*s->bits);
}

static inline bool subset_bit(const uint64_t *bits, uint32_t v)
{
	return bits[v / 64] >> v % 64 & 1;
}

/*
 * A subset that threads add to: each has a `found` of its own and flushes it
 * before it ends.  `most` members at most are added to a list; a bitmap takes
 * any and each only once.
 */
struct collector {
	struct vertex_subset subset;
	uint64_t size; /* atomic; of a list */
	bool wanted;   /* false: members are dropped */
};

#define FOUND_MAX 512
struct found {
	uint32_t count;
	uint32_t vertices[FOUND_MAX];
};

void collector_open(struct ligra *l, uint64_t most, bool wanted, struct collector *c_p);
void collector_flush(struct collector *c, struct found *f);
struct vertex_subset collector_close(struct collector *c);

static inline void collector_add(struct collector *c, struct found *f, uint32_t v)
{
	if (f->count == FOUND_MAX)
		collector_flush(c, f);
	f->vertices[f->count++] = v;
}

/*
 * An empty bitmap for a caller that sets whole words and `size` itself. NULL bits: out of memory.
 */
struct vertex_subset subset_bitmap(struct ligra *l);

#endif
