/* SPDX-License-Identifier: BSD-3-Clause */
/* The dynamic cache's tables and its arena. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dpu_agent/cache/dynamic/impl.h"

#define HUGE_PAGE (2ull << 20)

/* The arena lies on a huge page's edge, so that it can be made of them. */
static uint8_t *map_arena(uint64_t bytes)
{
	uint8_t *map = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t skip;

	if (map == MAP_FAILED)
		return NULL;
	skip = -(uintptr_t)map & (HUGE_PAGE - 1);
	if (skip)
		munmap(map, skip);
	munmap(map + skip + bytes, HUGE_PAGE - skip);
	/* Advice: without huge pages it is slower, not wrong. */
	madvise(map + skip, bytes, MADV_HUGEPAGE);
	madvise(map + skip, bytes, MADV_DONTDUMP);
	return map + skip;
}

static void init_tables(struct soda_cache *cache)
{
	for (uint32_t i = 0; i <= cache->bucket_mask; i++)
		cache->buckets[i] = SODA_CACHE_NONE;
	for (int i = 0; i < SHARDS; i++)
		soda_lock_init(&cache->shards[i].lock, SODA_RANK_DPU_CACHE);
	atomic_init(&cache->emptied, SODA_CACHE_NONE);
	cache->reclaimed = SODA_CACHE_NONE;
	for (uint32_t slot = cache->slots; slot-- > 0;)
		push_emptied(cache, slot);
}

static struct soda_cache *allocate(uint32_t slots, uint32_t buckets)
{
	struct soda_cache *cache = aligned_alloc(64, sizeof(*cache));

	if (!cache)
		return NULL;
	memset(cache, 0, sizeof(*cache));
	cache->slots = slots;
	cache->bucket_mask = buckets - 1;
	cache->entries = calloc(slots, sizeof(*cache->entries));
	cache->buckets = malloc(buckets * sizeof(*cache->buckets));
	if (cache->entries && cache->buckets)
		return cache;
	soda_cache_destroy(cache);
	return NULL;
}

int soda_cache_create(uint64_t bytes, uint32_t entry_bytes, struct soda_cache **cache_p)
{
	uint64_t slots = entry_bytes ? bytes / entry_bytes : 0;
	uint32_t buckets = SHARDS;
	struct soda_cache *cache;

	if (entry_bytes < SODA_CACHE_ENTRY_MIN || entry_bytes > SODA_CACHE_ENTRY_MAX ||
	    (entry_bytes & (entry_bytes - 1)) || slots < 2 || slots > 1u << 24)
		return -EINVAL;
	while (buckets < 2 * slots)
		buckets *= 2;
	cache = allocate((uint32_t)slots, buckets);
	if (!cache)
		return -ENOMEM;
	cache->entry_shift = (uint32_t)__builtin_ctz(entry_bytes);
	cache->sector_shift = (uint32_t)__builtin_ctz(entry_bytes / SECTORS);
	if (cache->sector_shift < 12)
		cache->sector_shift = 12;
	cache->arena_bytes = (slots * entry_bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	cache->arena = map_arena(cache->arena_bytes);
	if (!cache->arena) {
		soda_cache_destroy(cache);
		return -ENOMEM;
	}
	init_tables(cache);
	*cache_p = cache;
	return 0;
}

void soda_cache_destroy(struct soda_cache *cache)
{
	if (!cache)
		return;
	if (cache->arena)
		munmap(cache->arena, cache->arena_bytes);
	free(cache->entries);
	free(cache->buckets);
	free(cache);
}

uint32_t soda_cache_slots(const struct soda_cache *cache)
{
	return cache->slots;
}

uint32_t soda_cache_entry_bytes(const struct soda_cache *cache)
{
	return 1u << cache->entry_shift;
}

uint8_t *soda_cache_arena(const struct soda_cache *cache, uint64_t *bytes_p)
{
	*bytes_p = cache->arena_bytes;
	return cache->arena;
}
