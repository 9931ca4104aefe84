/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which chunks a pass touches, in which order, and what stands in them.  A function
 * of the seed alone: every memory under test replays the same accesses.
 *
 *   seq   each thread its own contiguous share, in order
 *   rand  uniform with replacement over all chunks; all threads together as many
 *         accesses as there are chunks
 *   rmw   as rand, each thread within its own share, so that no two write a word
 *   zipf  as rand, Zipf-distributed with exponent 0.99, ranks over shuffled chunks
 *   hot   as rand, but the first tenth of the chunks takes 60 % of the accesses, evenly
 *   alternate  even passes are seq, odd ones rand
 *   shared     seq: what is shared is the file
 *   trace      each thread the accesses of its threads of the trace, in their order
 */
#ifndef SODA_BENCH_ACCESS_H
#define SODA_BENCH_ACCESS_H

#include <stdint.h>

#include "soda/bench/worker/trace.h"
#include "soda/bench/worker/worker.h"

#define SODA_BENCH_ZIPF_EXPONENT 0.99
#define SODA_BENCH_HOT_SHARE 0.6

struct soda_bench_access {
	enum soda_bench_pattern pattern;
	uint32_t chunks, threads;
	uint64_t seed;
	uint64_t reader; /* of several processes on one region: another number draws otherwise */
	double *sum;	 /* zipf: sum[r] = probability of a rank <= r */
	uint32_t *order; /* zipf: chunk of a rank */
	struct soda_bench_trace trace; /* trace */
};

/* 64 well-mixed bits (the finaliser of splitmix64, Steele et al., OOPSLA 2014). */
static inline uint64_t soda_bench_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* What stands in a word of the region, as filled. */
static inline uint64_t soda_bench_value(uint64_t word, uint64_t seed)
{
	return soda_bench_mix(word ^ (seed << 40));
}

/* Fill words[0..n) accordingly: the words of a region from its start. */
void soda_bench_fill(uint64_t *words, uint64_t n, uint64_t seed);

/* Not for traces.  0; -EINVAL: fewer chunks than threads; -ENOMEM. */
int soda_bench_access_create(struct soda_bench_access *access, enum soda_bench_pattern pattern,
			     uint32_t chunks, uint32_t threads, uint64_t seed);
/* Takes the trace over. */
int soda_bench_access_replay(struct soda_bench_access *access, struct soda_bench_trace *trace,
			     uint32_t threads);
void soda_bench_access_destroy(struct soda_bench_access *access);

/* A thread's share: `share` chunks from `first` on. */
uint32_t soda_bench_access_first(const struct soda_bench_access *access, uint32_t thread);
uint32_t soda_bench_access_share(const struct soda_bench_access *access, uint32_t thread);
/* Accesses of a thread in a pass: as many as its share has chunks, but for a trace. */
uint32_t soda_bench_access_count(const struct soda_bench_access *access, uint32_t thread);
/* The chunks [0, n) that get the most accesses. */
uint32_t soda_bench_access_hot(uint32_t chunks);
/* Whether a pass stores. */
bool soda_bench_access_stores(const struct soda_bench_access *access);

/*
 * The accesses of one thread in pass number `pass`, into out[count]: chunks; of a trace
 * some with SODA_BENCH_STORE.
 */
void soda_bench_access_pass(const struct soda_bench_access *access, uint64_t pass, uint32_t thread,
			    uint32_t *out);

#endif
