/* SPDX-License-Identifier: BSD-3-Clause */
/* What dynamic_cache.c and memory.c share. */
#ifndef SODA_DPU_CACHE_IMPL_H
#define SODA_DPU_CACHE_IMPL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "dpu_agent/cache/dynamic/dynamic_cache.h"

enum { SHARDS = 64, SECTORS = 64 };
enum entry_state { EMPTY, FILLING, READY, LEAVING };

/* In `use`, beside the number of references: whoever brings it to 0 frees the slot. */
#define UNLINKED (1u << 31)

struct entry {
	struct soda_cache_key key; /* guarded by the shard's lock, as all that is not atomic */
	uint32_t next;		   /* of the same bucket */
	uint32_t bytes;
	_Atomic uint32_t use; /* grows under the shard's lock only, shrinks without */
	_Atomic uint32_t state;
	uint64_t valid, used; /* sectors; used: met a request */
	bool touched;
	struct soda_cache_waiter *waiters;
	uint32_t next_empty; /* of `emptied` */
};

struct shard {
	struct soda_lock lock;
	struct soda_cache_counts counts; /* guarded by lock */
} __attribute__((aligned(64)));

struct soda_cache {
	uint8_t *arena;
	struct entry *entries;
	uint32_t *buckets; /* a bucket's shard is its low bits */
	uint32_t slots, bucket_mask;
	uint32_t entry_shift, sector_shift;
	uint64_t arena_bytes;
	_Atomic uint32_t emptied; /* stack; taken as a whole */
	uint32_t reclaimed;	  /* what was taken of it; soda_cache_reclaim's caller */
	struct shard shards[SHARDS];
};

/* An EMPTY slot, for soda_cache_reclaim. */
static inline void push_emptied(struct soda_cache *cache, uint32_t slot)
{
	struct entry *e = &cache->entries[slot];
	uint32_t head = atomic_load_explicit(&cache->emptied, memory_order_relaxed);

	do
		e->next_empty = head;
	/* release: pairs with the exchange in soda_cache_reclaim */
	while (!atomic_compare_exchange_weak_explicit(&cache->emptied, &head, slot,
						      memory_order_release, memory_order_relaxed));
}

#endif
