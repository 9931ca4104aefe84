/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edgeMap, generated for one application (Shun and Blelloch, PPoPP 2013,
 * section 4).  Not a usual header: define EDGE_MAP as a name F and EDGE_STATE
 * as a type, provide
 *	bool F_update(EDGE_STATE *, uint32_t s, uint32_t d)	   d is this thread's
 *	bool F_update_atomic(EDGE_STATE *, uint32_t s, uint32_t d)  several have d
 *	bool F_cond(const EDGE_STATE *, uint32_t d)
 * and include it.  There will be
 *	struct vertex_subset F_edge_map(struct ligra *, struct vertex_subset *from,
 *					EDGE_STATE *, unsigned flags)
 * which for each edge (s, d) with s in `from` and cond(d) applies the update,
 * and returns those d for which it returned true (for each d at most once
 * from all edges of a call).  `from` may change its form, not its members.
 *
 * A large frontier (with its edges more than 1/20 of the graph's edges) is
 * pulled from: each vertex with cond() looks along its in-edges, until cond()
 * ends it.  From a small one its members push along their out-edges.
 *
 * With EDGE_WEIGHTED defined both updates have one argument more, the edge's weight, a double: the
 * graph's, or 0 where it has none.
 */
#include "ligra/framework/ahead.h"
#include "ligra/framework/ligra.h"

#ifndef LIGRA_DENSE_FRACTION
#define LIGRA_DENSE_FRACTION 20
#endif

#ifdef EDGE_MAP

#define EDGE_FN(suffix) TEMPLATE_NAME(EDGE_MAP, suffix)
#ifdef EDGE_WEIGHTED
#define EDGE_ARGS(csr, e, state, s, d) state, s, d, (csr)->weights ? (csr)->weights[e] : 0
#else
#define EDGE_ARGS(csr, e, state, s, d) state, s, d
#endif

/*
 * Try the 64 vertices from `first` on; returns a bit for each that was added. bits: NULL for all
 * vertices.
 */
static inline __attribute__((always_inline)) uint64_t EDGE_FN(_pull_word)(const struct csr *in,
									  const uint64_t *bits,
									  uint64_t first,
									  EDGE_STATE *state)
{
	uint64_t last = first + 64 < in->vertices ? first + 64 : in->vertices, added = 0;

	for (uint64_t v = first; v < last; v++) {
		uint32_t d = (uint32_t)v;
		uint64_t end;

		if (!EDGE_FN(_cond)(state, d))
			continue;
		end = csr_end(in, v);
		for (uint64_t e = csr_begin(in, v); e < end; e++) {
			uint32_t s = in->targets[e];

			if (bits && !subset_bit(bits, s))
				continue;
			if (EDGE_FN(_update)(EDGE_ARGS(in, e, state, s, d)))
				added |= (uint64_t)1 << v % 64;
			if (!EDGE_FN(_cond)(state, d))
				break;
		}
	}
	return added;
}

/* Fetch the lists of those of `count` vertices from `first` that will look along theirs. */
static inline void EDGE_FN(_pull_ahead)(const struct ahead *ahead, uint64_t first, uint64_t count,
					const EDGE_STATE *state)
{
	uint64_t all = ahead->csr->vertices, last = first + count < all ? first + count : all;
	struct ahead_run run = { .mem = ahead->mem, .csr = ahead->csr };

	for (uint64_t v = first; v < last; v++)
		if (EDGE_FN(_cond)(state, (uint32_t)v))
			ahead_run_add(&run, v);
	ahead_run_end(&run);
}

/* next: may be NULL.  Returns how many were added. */
static inline uint64_t EDGE_FN(_pull)(const struct csr *in, const struct ahead *ahead,
				      const uint64_t *bits, uint64_t *next, EDGE_STATE *state)
{
	uint64_t words = (in->vertices + 63) / 64, added = 0;
	uint64_t size = bits ? WORDS_AT_A_TIME : ahead_words_in_order(ahead, words);
	uint64_t blocks = (words + size - 1) / size;

#pragma omp parallel for reduction(+ : added) schedule(dynamic, 1)
	for (uint64_t turn = 0; turn < blocks; turn++) {
		uint64_t block = ahead->backwards ? blocks - 1 - turn : turn;
		uint64_t i = block * size, end = i + size, later = 0, part = 0;

		/*
		 * From all vertices the pages are read in order, a stream that the runtime finds
		 * itself.
		 */
		if (bits && ahead_next(ahead, i * 64, size * 64, &later))
			part = ahead_part(ahead, later, size);
		for (end = end < words ? end : words; i < end; i++) {
			uint64_t word, at = later + i % size * 64;

			if (part && i % part == 0)
				EDGE_FN(_pull_ahead)(ahead, at, part * 64, state);
			word = bits ? EDGE_FN(_pull_word)(in, bits, i * 64, state)
				    : EDGE_FN(_pull_word)(in, NULL, i * 64, state);

			if (next)
				next[i] = word;
			added += (uint64_t)__builtin_popcountll(word);
		}
	}
	return added;
}

static inline void EDGE_FN(_push_vertex)(const struct csr *out, uint32_t s, struct collector *c,
					 struct found *f, EDGE_STATE *state)
{
	uint64_t end = csr_end(out, s);

	for (uint64_t e = csr_begin(out, s); e < end; e++) {
		uint32_t d = out->targets[e];

		if (EDGE_FN(_cond)(state, d) &&
		    EDGE_FN(_update_atomic)(EDGE_ARGS(out, e, state, s, d)))
			collector_add(c, f, d);
	}
}

static inline void EDGE_FN(_push_word)(const struct csr *out, uint64_t word, uint64_t first,
				       struct collector *c, struct found *f, EDGE_STATE *state)
{
	for (; word; word &= word - 1) {
		uint32_t s = (uint32_t)first + (uint32_t)__builtin_ctzll(word);

		EDGE_FN(_push_vertex)(out, s, c, f, state);
	}
}

static inline void EDGE_FN(_push)(const struct csr *out, const struct ahead *ahead,
				  const struct vertex_subset *from, bool parallel,
				  struct collector *c, EDGE_STATE *state)
{
#pragma omp parallel if (parallel)
	{
		struct found f = { .count = 0 };

		if (from->list) {
#pragma omp for schedule(dynamic, AHEAD_ENTRIES)
			for (uint64_t i = 0; i < from->size; i++) {
				ahead_list(ahead, from, i);
				EDGE_FN(_push_vertex)(out, from->list[i], c, &f, state);
			}
		} else {
#pragma omp for schedule(dynamic, WORDS_AT_A_TIME)
			for (uint64_t i = 0; i < subset_words(from); i++) {
				ahead_word(ahead, from, i);
				EDGE_FN(_push_word)
				(out, subset_word(from, i), i * 64, c, &f, state);
			}
		}
		collector_flush(c, &f);
	}
}

static inline struct vertex_subset EDGE_FN(_edge_map)(struct ligra *l, struct vertex_subset *from,
						      EDGE_STATE *state, unsigned flags)
{
	const struct csr *out = flags & EDGE_TRANSPOSED ? &l->g->in : &l->g->out;
	const struct csr *in = flags & EDGE_TRANSPOSED ? &l->g->out : &l->g->in;
	uint64_t threshold = out->edges / LIGRA_DENSE_FRACTION;
	uint64_t edges = subset_edges(from, out, threshold);
	bool wanted = !(flags & EDGE_NO_OUTPUT);
	struct vertex_subset next;
	struct collector c;
	struct ahead ahead;

	if (from->size + edges > threshold) {
		next = wanted ? subset_bitmap(l) : subset_none(l);
		if ((wanted && !next.bits) || !subset_to_bits(l, from))
			return next;
		ahead = ahead_of(l->g, in, l->sweeps++);
		next.size = EDGE_FN(_pull)(in, &ahead, from->bits, next.bits, state);
		if (!wanted || !next.size)
			subset_free(&next);
		return next;
	}
	collector_open(l, edges, wanted, &c);
	if (l->failed)
		return c.subset;
	ahead = ahead_of(l->g, out, 0);
	EDGE_FN(_push)(out, &ahead, from, from->size + edges > SUBSET_PARALLEL, &c, state);
	return collector_close(&c);
}

#undef EDGE_FN
#undef EDGE_ARGS
#undef EDGE_WEIGHTED
#undef EDGE_MAP
#undef EDGE_STATE
#endif
