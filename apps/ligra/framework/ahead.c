/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/framework/ahead.h"
#include "ligra/framework/ligra.h"

#include <omp.h>

struct ahead ahead_of(const struct graph *g, const struct csr *csr, unsigned sweep)
{
	bool on = mem_is_far(g->mem);

	return (struct ahead){ .mem = g->mem,
			       .csr = csr,
			       .on = on,
			       .backwards = on && sweep % 2,
			       .threads = (unsigned)omp_get_max_threads() };
}

uint64_t ahead_words_in_order(const struct ahead *a, uint64_t words)
{
	enum { MOST = 512, PIECES = 16 };
	uint64_t share = words / a->threads / PIECES;

	if (!a->on || share < WORDS_AT_A_TIME)
		return WORDS_AT_A_TIME;
	return share < MOST ? share : MOST;
}

static void fetch_offsets(const struct ahead *a, uint64_t first, uint64_t count)
{
	enum { BLOCKS = 16 };
	uint64_t begin, step = BLOCKS * count;
	struct iovec range;

	/* Fetch offsets once for several blocks: they are a few pages. */
	if (first / count % BLOCKS)
		return;
	if (a->backwards ? first < 2 * step : first + 2 * step > a->csr->vertices)
		return;
	begin = a->backwards ? first - 2 * step : first + step;
	range = (struct iovec){ (void *)(uintptr_t)(a->csr->offsets + begin),
				step * sizeof(*a->csr->offsets) };
	mem_prefetch(a->mem, &range, 1);
}

uint64_t ahead_part(const struct ahead *a, uint64_t first, uint64_t words)
{
	enum { MOST = 160000, LEAST = 4 };
	uint64_t end =
		first + words * 64 < a->csr->vertices ? first + words * 64 : a->csr->vertices;
	uint64_t edges = csr_end(a->csr, end - 1) - csr_begin(a->csr, first);

	fetch_offsets(a, first, words * 64);
	for (; edges > MOST && words > LEAST; words /= 2)
		edges /= 2;
	return words;
}

static void run_flush(struct ahead_run *run)
{
	if (run->n)
		mem_prefetch(run->mem, run->ranges, run->n);
	run->n = 0;
}

void ahead_run_cut(struct ahead_run *run)
{
	const uint32_t *targets = run->csr->targets;
	const double *weights = run->csr->weights;

	if (run->begin == run->end)
		return;
	if (run->n > AHEAD_RANGES - 2)
		run_flush(run);
	if (weights)
		run->ranges[run->n++] =
			(struct iovec){ (void *)(uintptr_t)(weights + run->begin),
					(run->end - run->begin) * sizeof(*weights) };
	run->ranges[run->n++] = (struct iovec){ (void *)(uintptr_t)(targets + run->begin),
						(run->end - run->begin) * sizeof(*targets) };
	run->begin = run->end;
}

void ahead_run_end(struct ahead_run *run)
{
	ahead_run_cut(run);
	run_flush(run);
}

/* Another thread has the next piece already: this thread fetches for the piece after those. */
void ahead_fetch_list(const struct ahead *a, const struct vertex_subset *s, uint64_t i)
{
	uint64_t next = i + a->threads * AHEAD_ENTRIES;
	struct ahead_run run = { .mem = a->mem, .csr = a->csr };

	for (uint64_t k = 0; k < AHEAD_ENTRIES && next + k < s->size; k++)
		ahead_run_add(&run, s->list[next + k]);
	ahead_run_end(&run);
}

void ahead_fetch_words(const struct ahead *a, const struct vertex_subset *s, uint64_t i)
{
	bool last = (i + AHEAD_WORDS) % WORDS_AT_A_TIME == 0;
	uint64_t words = subset_words(s);
	uint64_t next = i + AHEAD_WORDS + (last ? (a->threads - 1) * WORDS_AT_A_TIME : 0);
	struct ahead_run run = { .mem = a->mem, .csr = a->csr };

	for (uint64_t end = next + AHEAD_WORDS; next < end && next < words; next++)
		for (uint64_t word = subset_word(s, next); word; word &= word - 1)
			ahead_run_add(&run, next * 64 + (uint64_t)__builtin_ctzll(word));
	ahead_run_end(&run);
}
