/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of a memory under test. */
#include "soda/bench/worker/counters.h"

#define COUNTER(field)                                                                             \
	{                                                                                          \
#field, offsetof(struct soda_bench_counters, field), false                         \
	}
#define LEVEL(field)                                                                               \
	{                                                                                          \
#field, offsetof(struct soda_bench_counters, field), true                          \
	}

const struct soda_bench_counter soda_bench_counter_table[] = {
	COUNTER(faults),
	COUNTER(faults_joined),
	COUNTER(zero_fills),
	COUNTER(local_refaults),
	COUNTER(wp_faults),
	COUNTER(fetches),
	COUNTER(prefetched),
	COUNTER(prefetch_useless),
	COUNTER(bytes_fetched),
	COUNTER(bytes_written_back),
	COUNTER(evict_waits),
	COUNTER(polled),
	COUNTER(slept),
	COUNTER(installed),
	LEVEL(resident_peak_bytes),
	LEVEL(metadata_bytes),
	{ 0 },
};

void soda_bench_counters_add(struct soda_bench_counters *sum,
			     const struct soda_bench_counters *from,
			     const struct soda_bench_counters *to)
{
	for (const struct soda_bench_counter *c = soda_bench_counter_table; c->name; c++) {
		uint64_t *total = soda_bench_counter_at(sum, c);

		if (c->level)
			*total = *soda_bench_counter_at(to, c);
		else
			*total += *soda_bench_counter_at(to, c) -
				  (from ? *soda_bench_counter_at(from, c) : 0);
	}
}
