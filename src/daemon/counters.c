/* SPDX-License-Identifier: BSD-3-Clause */
/* Sharded counters, which are summed when statistics are written. */
#include "daemon/counters.h"

#include <stdatomic.h>

#define SHARDS 16

static struct {
	_Alignas(64) _Atomic uint64_t values[SODA_COUNTERS_MAX];
	struct soda_histogram distributions[SODA_DISTRIBUTIONS_MAX];
} shards[SHARDS];

static unsigned own_shard(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned own; /* the shard's number + 1; 0: none yet */

	if (!own)
		own = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SHARDS;
	return own - 1;
}

void soda_count_add(unsigned counter, uint64_t n)
{
	atomic_fetch_add_explicit(&shards[own_shard()].values[counter], n, memory_order_relaxed);
}

uint64_t soda_count_get(unsigned counter)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SHARDS; i++)
		sum += atomic_load_explicit(&shards[i].values[counter], memory_order_relaxed);
	return sum;
}

void soda_count_record(unsigned distribution, uint64_t value)
{
	soda_histogram_record(&shards[own_shard()].distributions[distribution], value);
}

void soda_counters_walk(struct soda_metrics *m, const struct soda_metric *counters, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		soda_metrics_number(m, &counters[i], soda_count_get(i));
}

void soda_distributions_walk(struct soda_metrics *m, const struct soda_metric *distributions,
			     unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct soda_histogram all = { 0 };

		for (unsigned shard = 0; shard < SHARDS; shard++)
			soda_histogram_merge(&all, &shards[shard].distributions[i]);
		soda_metrics_histogram(m, &distributions[i], &all);
	}
}
