/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharded counters; the sum is taken by whoever asks. */
#include "dpu_agent/base/counters.h"

#include <stdatomic.h>

#define SHARDS 16

static struct {
	_Alignas(64) _Atomic uint64_t values[SODA_COUNTERS_N];
	struct soda_histogram batch_sizes;
	struct soda_histogram service_ns[2]; /* READs, WRITEs */
} shards[SHARDS];

const struct soda_metric soda_counter_metrics[SODA_COUNTERS_N] = {
#define X(name, of, what) { .key = #name, .help = what, .unit = SODA_UNIT_##of },
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
	soda_histogram_record(&shards[own_shard()].batch_sizes, requests);
	soda_count_add(SODA_COUNT_batches, 1);
	soda_count_add(SODA_COUNT_batched_requests, requests);
}

void soda_count_request(bool write, uint32_t bytes, uint64_t ns)
{
	soda_count_add(write ? SODA_COUNT_client_writes : SODA_COUNT_client_reads, 1);
	soda_count_add(write ? SODA_COUNT_client_write_bytes : SODA_COUNT_client_read_bytes, bytes);
	soda_histogram_record(&shards[own_shard()].service_ns[write], ns);
}

void soda_count_transfer(bool write, uint32_t bytes)
{
	soda_count_add(write ? SODA_COUNT_net_writeback : SODA_COUNT_net_demand, 1);
	soda_count_add(write ? SODA_COUNT_net_writeback_bytes : SODA_COUNT_net_demand_bytes, bytes);
}

void soda_count_batch_sizes(struct soda_histogram *into)
{
	for (unsigned i = 0; i < SHARDS; i++)
		soda_histogram_merge(into, &shards[i].batch_sizes);
}

void soda_count_service_times(bool write, struct soda_histogram *into)
{
	for (unsigned i = 0; i < SHARDS; i++)
		soda_histogram_merge(into, &shards[i].service_ns[write]);
}
