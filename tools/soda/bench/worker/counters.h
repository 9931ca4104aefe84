/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of a memory under test, as one table, so that each is named once. */
#ifndef SODA_BENCH_COUNTERS_H
#define SODA_BENCH_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As in struct soda_stats. */
struct soda_bench_counters {
	uint64_t faults, faults_joined, zero_fills, local_refaults, wp_faults, fetches;
	uint64_t prefetched, prefetch_useless;
	uint64_t bytes_fetched, bytes_written_back;
	uint64_t evict_waits, polled, slept, installed;
	/* levels: the last value counts, not the difference */
	uint64_t resident_peak_bytes, metadata_bytes;
};

struct soda_bench_counter {
	const char *name; /* as in JSON */
	size_t offset;
	bool level;
};

/* Ends with a name that is NULL. */
extern const struct soda_bench_counter soda_bench_counter_table[];

static inline uint64_t *soda_bench_counter_at(const struct soda_bench_counters *c,
					      const struct soda_bench_counter *which)
{
	return (uint64_t *)(void *)((char *)(uintptr_t)c + which->offset);
}

/* sum += to - from; from NULL: sum += to. */
void soda_bench_counters_add(struct soda_bench_counters *sum,
			     const struct soda_bench_counters *from,
			     const struct soda_bench_counters *to);

#endif
