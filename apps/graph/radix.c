/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/sort.h"

#include <stdbool.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define DIGITS 256
#define THREADS_MAX 64

/* Threads of the next parallel loop; one where the compiler has no OpenMP. */
static unsigned loop_threads(void)
{
#ifdef _OPENMP
	return (unsigned)omp_get_max_threads();
#else
	return 1;
#endif
}

struct pass {
	const uint64_t *from;
	uint64_t *to;
	size_t count;
	unsigned words; /* of a key */
	unsigned word;	/* of these, whose digit decides */
	unsigned shift;
	unsigned threads;
	size_t (*at)[DIGITS]; /* of each thread and digit: how many keys; then, where the next key
				 goes */
};

static size_t slice_begin(const struct pass *p, unsigned thread)
{
	return p->count / p->threads * thread + (thread == p->threads ? p->count % p->threads : 0);
}

static unsigned digit(const struct pass *p, size_t key)
{
	return p->from[key * p->words + p->word] >> p->shift & (DIGITS - 1);
}

static void count_slice(const struct pass *p, unsigned thread)
{
	size_t counts[DIGITS] = { 0 };

	for (size_t i = slice_begin(p, thread); i < slice_begin(p, thread + 1); i++)
		counts[digit(p, i)]++;
	memcpy(p->at[thread], counts, sizeof(counts));
}

/* Make positions of the counts; false: all keys have the same digit, and nothing is to be done. */
static bool place(const struct pass *p)
{
	size_t sum = 0;

	for (unsigned d = 0; d < DIGITS; d++) {
		size_t before = sum;

		for (unsigned t = 0; t < p->threads; t++) {
			size_t count = p->at[t][d];

			p->at[t][d] = sum;
			sum += count;
		}
		if (sum - before == p->count)
			return false;
	}
	return true;
}

static void move_slice(const struct pass *p, unsigned thread)
{
	size_t at[DIGITS];

	memcpy(at, p->at[thread], sizeof(at));
	for (size_t i = slice_begin(p, thread); i < slice_begin(p, thread + 1); i++) {
		size_t to = at[digit(p, i)]++;

		for (unsigned w = 0; w < p->words; w++)
			p->to[to * p->words + w] = p->from[i * p->words + w];
	}
}

/* Sort by one byte of one word; what is equal there keeps its order. */
static void sort_by_digit(struct pass *p)
{
	uint64_t *last = (uint64_t *)p->from;

#pragma omp parallel for num_threads(p->threads) schedule(static, 1)
	for (unsigned t = 0; t < p->threads; t++)
		count_slice(p, t);
	if (!place(p))
		return;
#pragma omp parallel for num_threads(p->threads) schedule(static, 1)
	for (unsigned t = 0; t < p->threads; t++)
		move_slice(p, t);
	p->from = p->to;
	p->to = last;
}

uint64_t *soda_graph_radix_sort(uint64_t *keys, uint64_t *spare, size_t count, unsigned words)
{
	size_t at[THREADS_MAX][DIGITS];
	unsigned most = loop_threads();
	struct pass p = { .from = keys,
			  .to = spare,
			  .count = count,
			  .words = words,
			  .word = words,
			  .threads = most < THREADS_MAX ? most : THREADS_MAX,
			  .at = at };

	while (p.word-- > 0)
		for (p.shift = 0; p.shift < 64; p.shift += 8)
			sort_by_digit(&p);
	return (uint64_t *)p.from;
}
