/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/protect.h"

enum {
	PROBE_STORES = 32, /* one chunk in so many is opened block by block */
	FEW_BLOCKS = 4,	   /* so many faults cost less than the other blocks' travel */
	SCORE_MAX = 16,
	SCORE_START = 8,
	SCORE_SPARSE = 12,
};

/* sparse_score: 0 means not known yet; above SCORE_SPARSE stores are taken to be sparse. */
static uint32_t score(const struct soda_region *r)
{
	uint32_t s = atomic_load_explicit(&r->sparse_score, memory_order_relaxed);

	return s ? s : SCORE_START;
}

uint32_t soda_protect_choose(struct soda_region *r, uint32_t dirty, uint32_t block)
{
	uint32_t one = 1u << block;

	if (dirty) /* opened block by block before: go on while it is few */
		return __builtin_popcount(dirty) < FEW_BLOCKS ? one : soda_blocks_all() & ~dirty;
	if (score(r) > SCORE_SPARSE)
		return one;
	if (atomic_fetch_add_explicit(&r->store_turn, 1, memory_order_relaxed) % PROBE_STORES == 0)
		return one;
	return soda_blocks_all();
}

void soda_protect_learn(struct soda_region *r, uint32_t dirty)
{
	uint32_t s = score(r);
	int few = __builtin_popcount(dirty) <= FEW_BLOCKS;

	if (dirty == soda_blocks_all() && s <= SCORE_SPARSE)
		return; /* most likely opened as a whole: says nothing */
	if (few && s < SCORE_MAX)
		s++;
	else if (!few && s > 1)
		s--;
	atomic_store_explicit(&r->sparse_score, s, memory_order_relaxed);
}

int soda_protect_open(const struct soda_region *r, uint32_t id, uint32_t blocks)
{
	char *base = soda_chunk_address(id);
	uint32_t bytes = soda_region_chunk_bytes(r, id);

	while (blocks) { /* one call for each run of blocks */
		uint32_t first = (uint32_t)__builtin_ctz(blocks);
		uint32_t n = (uint32_t)__builtin_ctz(~(blocks >> first));
		uint64_t from = (uint64_t)first << soda_agent.block_shift;
		uint64_t to = (uint64_t)(first + n) << soda_agent.block_shift;
		int ret;

		if (from >= bytes)
			break;
		ret = soda_agent.pager->protect(base + from, (to < bytes ? to : bytes) - from,
						false);
		if (ret)
			return ret;
		blocks &= ~(((1u << n) - 1) << first);
	}
	return 0;
}
