/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fetches edge lists ahead of their use, if they lie in fabric memory or in mapped files with
 * advice: an edgeMap knows what it reads next, which no pattern of faults tells.  On local memory
 * these functions do nothing.
 */
#ifndef LIGRA_AHEAD_H
#define LIGRA_AHEAD_H

#include "ligra/framework/graph.h"
#include "ligra/framework/subset.h"

struct ahead {
	const struct mem *mem;
	const struct csr *csr;
	bool on;
	bool backwards;
	unsigned threads;
};

/*
 * sweep: the number of this pass over all edges.  On far memory every second pass goes backwards:
 * it begins with the edges that the pass before has left in the page buffer, or the page cache.
 */
struct ahead ahead_of(const struct graph *g, const struct csr *csr, unsigned sweep);

/* The slow parts of ahead_list() and ahead_next(). */
void ahead_fetch_list(const struct ahead *a, const struct vertex_subset *s, uint64_t i);
void ahead_fetch_words(const struct ahead *a, const struct vertex_subset *s, uint64_t i);

/*
 * A thread begins the block before the one of `words` words at vertex `first`: fetches offsets
 * that come some way after it.  Returns how many words' lists to fetch at a time, so that a
 * block with many edges does not ask for more at once than the runtime takes.
 */
uint64_t ahead_part(const struct ahead *a, uint64_t first, uint64_t words);

/*
 * List entries that a thread takes at a time, and words of a bitmap whose lists are fetched at
 * once.
 */
#define AHEAD_ENTRIES 16
#define AHEAD_WORDS 16

/*
 * How many of `words` words of a bitmap a thread takes at a time, where it reads all lists: the
 * longer its piece, the longer the stream that the runtime finds in its faults, and the less is
 * fetched at the piece's end that is the next thread's.  Each thread has several pieces all the
 * same.
 */
uint64_t ahead_words_in_order(const struct ahead *a, uint64_t words);

/*
 * A thread begins with `count` vertices from `first`: those from *next_p on are begun after
 * them.  False: none, or nothing is to be fetched.
 */
static inline bool ahead_next(const struct ahead *a, uint64_t first, uint64_t count,
			      uint64_t *next_p)
{
	uint64_t distance = count * a->threads;

	*next_p = a->backwards ? first - distance : first + distance;
	return a->on && (a->backwards ? first >= distance : *next_p < a->csr->vertices);
}

/*
 * Edge lists, in ascending order, that are fetched together: one range where they are near, and
 * many ranges at a time.
 */
enum { AHEAD_RANGES = 64 };
struct ahead_run {
	const struct mem *mem;
	const struct csr *csr;
	uint64_t begin, end; /* edges of the range in the making; begin == end: none yet */
	int n;
	struct iovec ranges[AHEAD_RANGES];
};

/* End the range in the making, and begin another one. */
void ahead_run_cut(struct ahead_run *run);
/* Fetch all ranges. */
void ahead_run_end(struct ahead_run *run);

static inline void ahead_run_add(struct ahead_run *run, uint64_t v)
{
	enum { NEAR = 8192 / sizeof(uint32_t) };
	uint64_t begin = csr_begin(run->csr, v), end = csr_end(run->csr, v);

	if (begin == end)
		return;
	if (run->begin == run->end || begin - run->end > NEAR) {
		ahead_run_cut(run);
		run->begin = begin;
	}
	run->end = end;
}

/* A thread is at entry i of a list, or at word i of a bitmap. */
static inline void ahead_list(const struct ahead *a, const struct vertex_subset *s, uint64_t i)
{
	if (a->on && i % AHEAD_ENTRIES == 0)
		ahead_fetch_list(a, s, i);
}

static inline void ahead_word(const struct ahead *a, const struct vertex_subset *s, uint64_t i)
{
	if (a->on && i % AHEAD_WORDS == 0)
		ahead_fetch_words(a, s, i);
}

#endif
