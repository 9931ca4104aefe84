/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench heap`, the parts and how they meet:
 *
 *   heap.c   options, table and JSON
 *   alloc.c  soda_malloc and soda_free beside jemalloc's own
 *   plain.c  that jemalloc: the same object as in libsoda, with pages of the kernel, and like
 *            libsoda a shared one
 *   run.c    programs under `soda run` beside the same without: start-up, and a working set that
 *            fits in the page buffer
 *
 * Whatever is compared takes turns, round by round; a ratio is the median of the rounds' own.
 */
#ifndef SODA_BENCH_HEAP_H
#define SODA_BENCH_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocator under test. */
struct soda_heap_ops {
	void *(*alloc)(size_t bytes);
	void (*release)(void *p);
};

/*
 * plain.c, a library of its own that alloc.c loads where it is needed: the jemalloc of this build.
 * It starts a thread: not before a fork that goes on with it.
 */
const struct soda_heap_ops *soda_heap_plain(void);

/* What to measure. */
struct soda_heap_point {
	uint32_t bytes, threads;
};

/* Medians over the rounds; of a malloc with a store to the block, and a free. */
struct soda_heap_cost {
	double ns, plain_ns, ratio;
};

/*
 * Measure all points, each `rounds` times for `ms` on either side, in a process of its own.
 * 0, or negative errno after a message.
 */
int soda_heap_measure(const struct soda_heap_point *points, unsigned n, uint32_t rounds,
		      uint32_t ms, struct soda_heap_cost *costs);

/*
 * The hidden program of soda_heap_measure: `soda bench .heap ROUNDS MS [BYTES THREADS]...`, of
 * which argv are the last; it writes a struct soda_heap_cost for each of the n points.  An exit
 * code.
 */
int soda_heap_measure_program(uint32_t rounds, uint32_t ms, unsigned n, char **argv);

/* run.c */
struct soda_heap_pair {
	double s, plain_s; /* medians */
	double more_s;	   /* median of the rounds' differences */
	double ratio;	   /* median of the rounds' ratios */
};

/* `soda run -- true` and `true`. 0, or negative errno after a message. */
int soda_heap_start(uint32_t rounds, struct soda_heap_pair *out);
/*
 * A program that sorts `bytes` of numbers in two blocks as large, with a buffer that both fit in.
 * The results are compared, too.  0, or negative errno after a message.
 */
int soda_heap_fit(uint64_t bytes, uint32_t rounds, struct soda_heap_pair *out);

/* The hidden program of soda_heap_fit: `soda bench .sort BYTES`. An exit code. */
int soda_heap_sort_program(uint64_t bytes);

#endif
