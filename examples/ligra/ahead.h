/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fetching edge lists ahead of their use, where they lie in fabric memory: an
 * edgeMap knows better than any pattern of faults what it reads next.  Nothing
 * happens on local memory.
 */
#ifndef LIGRA_AHEAD_H
#define LIGRA_AHEAD_H

#include "graph.h"
#include "subset.h"

struct ahead {
	const struct csr *csr;
	bool on;
	unsigned threads;
};

struct ahead ahead_of(const struct graph *g, const struct csr *csr);

/* Slow parts of the calls below. */
void ahead_fetch_block(const struct ahead *a, uint64_t first, uint64_t count);
void ahead_fetch_word(const struct ahead *a, uint64_t word, uint64_t first);

/* List entries and words of a bitmap that are looked ahead. */
#define AHEAD_ENTRIES 16
#define AHEAD_WORDS 16

/* A thread begins with `count` vertices from `first`: fetch what is begun after it. */
static inline void ahead_block(const struct ahead *a, uint64_t first, uint64_t count)
{
	if (a->on)
		ahead_fetch_block(a, first + count * a->threads, count);
}

/* A thread is at entry i of a list, or at word i of a bitmap. */
static inline void ahead_list(const struct ahead *a, const struct vertex_subset *s, uint64_t i)
{
	if (a->on && i + AHEAD_ENTRIES < s->size)
		ahead_fetch_block(a, s->list[i + AHEAD_ENTRIES], 1);
}

static inline void ahead_word(const struct ahead *a, const struct vertex_subset *s, uint64_t i)
{
	if (a->on && i + AHEAD_WORDS < subset_words(s))
		ahead_fetch_word(a, subset_word(s, i + AHEAD_WORDS), (i + AHEAD_WORDS) * 64);
}

#endif
