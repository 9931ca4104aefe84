/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a graph application sees: the model of Ligra (Shun and Blelloch, PPoPP
 * 2013).  A vertexSubset is in subset.h; edgeMap and vertexMap are generated
 * for each application, because a call through a pointer for every edge would
 * cost more than most of the work: see edge_map.h and vertex_map.h.
 *
 * Running out of memory is noted in `failed`; the array is then NULL and the
 * subset empty.  An application looks once, after its arrays; its loops end by
 * themselves, because an empty subset ends them.
 */
#ifndef LIGRA_LIGRA_H
#define LIGRA_LIGRA_H

#include "ligra/framework/graph.h"
#include "ligra/framework/subset.h"

struct ligra_array;

struct ligra {
	const struct graph *g;
	struct mem *mem;	      /* where the application's arrays and subsets lie */
	struct ligra_array *arrays;   /* the arrays that were allocated */
	unsigned sweeps;	      /* passes over all edges so far */
	int failed;		      /* 0 or the first error */
	struct soda_graph_error *err; /* the sentence of that error */
};

/* Flags of an edgeMap. */
#define EDGE_TRANSPOSED 1u /* along the edges' reverse */
#define EDGE_NO_OUTPUT 2u  /* the caller does not need what was reached: returns an empty subset */

/* `count` zeros of `size` bytes, until ligra_end().  NULL: see `failed`. */
void *ligra_array(struct ligra *l, uint64_t count, size_t size, const char *name);

/*
 * Room for one more than `count` elements of `size` bytes in a local array that
 * is never shortened, NULL at first; the caller frees it with free().
 */
bool ligra_grow(struct ligra *l, void **array, uint64_t count, size_t size);

/* The application cannot go on: note code, unless something has failed already, and the sentence.
 */
void ligra_fail(struct ligra *l, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Frees the arrays; returns `failed`. */
int ligra_end(struct ligra *l);

/* Updates that several threads make at once. */

/* Only the first to replace `expected` gets true. */
static inline bool claim_u32(uint32_t *at, uint32_t expected, uint32_t value)
{
	return __atomic_load_n(at, __ATOMIC_RELAXED) == expected &&
	       __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

/* *at = min(*at, value); whether that lowered it, and from what. */
static inline bool lower_u32(uint32_t *at, uint32_t value, uint32_t *before_p)
{
	*before_p = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (value < *before_p)
		if (__atomic_compare_exchange_n(at, before_p, value, true, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return true;
	return false;
}

static inline bool lower_u64(uint64_t *at, uint64_t value)
{
	uint64_t before = __atomic_load_n(at, __ATOMIC_RELAXED);

	while (value < before)
		if (__atomic_compare_exchange_n(at, &before, value, true, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return true;
	return false;
}

/* Adds and returns what was there before. */
static inline double add_double(double *at, double value)
{
	union {
		uint64_t bits;
		double number;
	} before, after;

	before.bits = __atomic_load_n((uint64_t *)at, __ATOMIC_RELAXED);
	do
		after.number = before.number + value;
	while (!__atomic_compare_exchange_n((uint64_t *)at, &before.bits, after.bits, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return before.number;
}

/* Names made of macros, for the templates edge_map.h and vertex_map.h. */
#define TEMPLATE_PASTE(name, suffix) name##suffix
#define TEMPLATE_NAME(name, suffix) TEMPLATE_PASTE(name, suffix)

/* Words of a bitmap that a thread takes at a time; more where ahead.h says so. */
#define WORDS_AT_A_TIME 64

#endif
