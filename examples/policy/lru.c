/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache policy as a shared object: fetch the entry around each request that missed, and
 * the one behind it; evict the entry that was not used for longest.  See docs/policies.md.
 */
#include "soda_cache_policy.h"

#define NOBODY SODA_CACHE_NONE

/* The slots in the order of their use: a list through an array, closed by element `slots`. */
struct link {
	uint32_t newer, older;
};

struct lru {
	const struct soda_cache_setup *setup;
	struct link links[];
};

static size_t lru_state_bytes(const struct soda_cache_setup *setup)
{
	return sizeof(struct lru) + (setup->slots + 1) * sizeof(struct link);
}

static void lru_init(void *state, const struct soda_cache_setup *setup)
{
	struct lru *lru = state;

	lru->setup = setup;
	for (uint32_t slot = 0; slot < setup->slots; slot++)
		lru->links[slot].newer = NOBODY;
	lru->links[setup->slots] = (struct link){ setup->slots, setup->slots };
}

static void take_out(struct lru *lru, uint32_t slot)
{
	struct link *link = &lru->links[slot];

	if (link->newer == NOBODY)
		return;
	lru->links[link->newer].older = link->older;
	lru->links[link->older].newer = link->newer;
	link->newer = NOBODY;
}

static void make_newest(struct lru *lru, uint32_t slot)
{
	uint32_t end = lru->setup->slots, before;

	take_out(lru, slot);
	before = lru->links[end].older;
	lru->links[slot] = (struct link){ .newer = end, .older = before };
	lru->links[before].newer = slot;
	lru->links[end].older = slot;
}

static bool lru_admit(void *state, const struct soda_cache_key *key)
{
	return true;
}

static void lru_hit(void *state, const struct soda_cache_touch *touch)
{
	make_newest(state, touch->slot);
}

static void lru_fill(void *state, uint32_t slot, const struct soda_cache_key *key, uint64_t sectors)
{
	make_newest(state, slot);
}

/* From the oldest on, the first that nobody uses. */
static uint32_t lru_victim(void *state)
{
	struct lru *lru = state;
	const struct soda_cache_setup *setup = lru->setup;
	uint32_t slot = lru->links[setup->slots].newer;

	while (slot != setup->slots && !setup->evictable(setup->cache, slot))
		slot = lru->links[slot].newer;
	return slot == setup->slots ? SODA_CACHE_NONE : slot;
}

static void lru_drop(void *state, uint32_t slot)
{
	take_out(state, slot);
}

static uint32_t lru_predict(void *state, const struct soda_cache_touch *touch,
			    struct soda_cache_want *wants_p, uint32_t max)
{
	uint64_t entry = touch->key.entry;
	uint32_t n = 0;

	if (touch->slot == SODA_CACHE_NONE && n < max)
		wants_p[n++] =
			(struct soda_cache_want){ .entry = entry, .sectors = SODA_CACHE_WHOLE };
	if (entry + 1 < touch->entries && n < max)
		wants_p[n++] = (struct soda_cache_want){ .entry = entry + 1,
							 .sectors = SODA_CACHE_WHOLE,
							 .once = true };
	return n;
}

const struct soda_cache_policy soda_cache_policy __attribute__((visibility("default"))) = {
	.abi = SODA_CACHE_POLICY_ABI,
	.struct_bytes = sizeof(struct soda_cache_policy),
	.name = "lru",
	.state_bytes = lru_state_bytes,
	.init = lru_init,
	.admit = lru_admit,
	.hit = lru_hit,
	.fill = lru_fill,
	.victim = lru_victim,
	.drop = lru_drop,
	.predict = lru_predict,
};
