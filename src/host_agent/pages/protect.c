/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/protect.h"

#include "host_agent/object/guess.h"

enum {
	PROBE_SHIFT_MIN = 5,  /* one chunk in 32 is opened block by block... */
	PROBE_SHIFT_MAX = 9,  /* ...down to one in 512, while that shows nothing */
	PROBE_SHIFT_RARE = 2, /* one in four, where most loaded chunks are writable at once */
	FEW_BLOCKS = 4,	      /* so many faults cost less than the other blocks' travel */
	SCORE_MAX = 16,
	SCORE_START = 8,
	SCORE_SPARSE = 12,
	CLOSED = 1024, /* chunks whose numbers are the same modulo this share an entry */
};

/* The closings of all chunks, counted from 1 on; and the number of each chunk's last one. */
static _Atomic uint64_t closings = 1, closed[CLOSED];

/* sparse_score: 0 means not known yet; above SCORE_SPARSE stores are taken to be sparse. */
static uint32_t score(const struct soda_region *r)
{
	uint32_t s = atomic_load_explicit(&r->sparse_score, memory_order_relaxed);

	return s ? s : SCORE_START;
}

bool soda_protect_sparse(const struct soda_region *r)
{
	return score(r) > SCORE_SPARSE;
}

static bool probes(struct soda_region *r, bool loaded)
{
	uint32_t turn = atomic_fetch_add_explicit(&r->store_turn, 1, memory_order_relaxed);
	uint32_t shift =
		PROBE_SHIFT_MIN + atomic_load_explicit(&r->probe_shift, memory_order_relaxed);

	if (loaded && soda_guess_active(r))
		shift = PROBE_SHIFT_RARE;
	return (turn & ((1u << shift) - 1)) == 0;
}

/* A chunk that was opened block by block turned out dense: look less often. */
static void found_dense(struct soda_region *r)
{
	uint32_t shift = atomic_load_explicit(&r->probe_shift, memory_order_relaxed);

	if (PROBE_SHIFT_MIN + shift < PROBE_SHIFT_MAX)
		atomic_store_explicit(&r->probe_shift, shift + 1, memory_order_relaxed);
}

uint32_t soda_protect_choose(struct soda_region *r, uint32_t dirty, uint32_t block, bool loaded)
{
	uint32_t one = 1u << block;

	if (dirty) { /* opened block by block before: go on while the blocks are few */
		if (__builtin_popcount(dirty) < FEW_BLOCKS)
			return one;
		found_dense(r);
		return soda_blocks_all() & ~dirty;
	}
	return soda_protect_sparse(r) || probes(r, loaded) ? one : soda_blocks_all();
}

void soda_protect_learn(struct soda_region *r, uint32_t dirty)
{
	uint32_t s = score(r);
	bool few = __builtin_popcount(dirty) <= FEW_BLOCKS;

	if (dirty == soda_blocks_all() && s <= SCORE_SPARSE)
		return; /* most likely opened as a whole: nothing to learn */
	if (few) {
		atomic_store_explicit(&r->probe_shift, 0, memory_order_relaxed);
		s += s < SCORE_MAX;
	} else {
		s -= s > 1;
	}
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
		ret = soda_agent.page_ops->protect(base + from, (to < bytes ? to : bytes) - from,
						   false);
		if (ret)
			return ret;
		blocks &= ~(((1u << n) - 1) << first);
	}
	return 0;
}

uint64_t soda_protect_closings(void)
{
	return atomic_load(&closings);
}

void soda_protect_close(uint32_t id)
{
	_Atomic uint64_t *last = &closed[id % CLOSED];
	uint64_t number, before;

	if (soda_agent.settings.mode != SODA_MODE_HANDLER)
		return;
	number = atomic_fetch_add(&closings, 1) + 1;
	before = atomic_load(last);
	while (before < number && !atomic_compare_exchange_weak(last, &before, number))
		;
}

bool soda_protect_closed_since(uint32_t id, uint64_t since)
{
	return atomic_load(&closed[id % CLOSED]) > since;
}
