/* SPDX-License-Identifier: BSD-3-Clause */
#include "ahead.h"
#include "template.h"

#include <omp.h>

struct ahead ahead_of(const struct graph *g, const struct csr *csr, unsigned sweep)
{
	bool on = mem_is_fabric(g->mem);

	return (struct ahead){ .csr = csr,
			       .on = on,
			       .backwards = on && sweep % 2,
			       .threads = (unsigned)omp_get_max_threads() };
}

static void fetch(const struct csr *csr, uint64_t begin, uint64_t end)
{
	if (begin < end)
		soda_prefetch(csr->targets + begin, (end - begin) * sizeof(*csr->targets));
}

uint64_t ahead_words_in_order(const struct ahead *a, uint64_t words)
{
	enum { MOST = 512, PIECES = 16 };
	uint64_t share = words / a->threads / PIECES;

	if (!a->on || share < WORDS_AT_A_TIME)
		return WORDS_AT_A_TIME;
	return share < MOST ? share : MOST;
}

void ahead_fetch_block(const struct ahead *a, uint64_t first, uint64_t count)
{
	uint64_t last = first + count < a->csr->vertices ? first + count : a->csr->vertices;

	if (first < last)
		fetch(a->csr, csr_begin(a->csr, first), csr_end(a->csr, last - 1));
}

void ahead_fetch_word(const struct ahead *a, uint64_t word, uint64_t first)
{
	if (!word)
		return;
	fetch(a->csr, csr_begin(a->csr, first + (uint64_t)__builtin_ctzll(word)),
	      csr_end(a->csr, first + 63 - (uint64_t)__builtin_clzll(word)));
}

void ahead_run_end(struct ahead_run *run)
{
	fetch(run->csr, run->begin, run->end);
	run->begin = run->end;
}
