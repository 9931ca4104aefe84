/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharded counters; the sum is taken by whoever asks. */
#include "dpu_agent/counters.h"

#include <stdatomic.h>

#define SHARDS 16

static struct {
	_Alignas(64) _Atomic uint64_t values[SODA_COUNTERS_N];
	_Atomic uint64_t batches[SODA_BATCH_BUCKETS];
} shards[SHARDS];

const char *const soda_counter_names[SODA_COUNTERS_N] = {
#define X(name) #name,
	SODA_COUNTERS(X)
#undef X
};

static unsigned own_shard(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned own; /* 0: none yet */

	if (!own)
		own = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SHARDS;
	return own - 1;
}

void soda_count_add(enum soda_counter counter, uint64_t n)
{
	atomic_fetch_add_explicit(&shards[own_shard()].values[counter], n, memory_order_relaxed);
}

uint64_t soda_count_get(enum soda_counter counter)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SHARDS; i++)
		sum += atomic_load_explicit(&shards[i].values[counter], memory_order_relaxed);
	return sum;
}

void soda_count_batch(unsigned requests)
{
	unsigned bucket = 0;

	while (bucket + 1 < SODA_BATCH_BUCKETS && requests >> (bucket + 1))
		bucket++;
	atomic_fetch_add_explicit(&shards[own_shard()].batches[bucket], 1, memory_order_relaxed);
	soda_count_add(SODA_COUNT_batches, 1);
	soda_count_add(SODA_COUNT_batched_requests, requests);
}

uint64_t soda_count_batches(unsigned bucket)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SHARDS; i++)
		sum += atomic_load_explicit(&shards[i].batches[bucket], memory_order_relaxed);
	return sum;
}
