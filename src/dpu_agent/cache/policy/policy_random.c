/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The paper's (Wahlgren et al., SBAC-PAD 2024): fetch the entry around each recent
 * request, and evict any that is not in use.  Also what a policy that returns
 * nonsense is replaced by.
 */
#include "dpu_agent/cache/policy/plugin.h"

enum { THROWS = 32 };

struct random_state {
	const struct soda_cache_setup *setup;
	uint64_t dice;
};

static size_t random_state_bytes(const struct soda_cache_setup *setup)
{
	return sizeof(struct random_state);
}

static void random_init(void *arg, const struct soda_cache_setup *setup)
{
	struct random_state *state = arg;

	state->setup = setup;
	state->dice = setup->seed | 1;
}

static bool random_admit(void *state, const struct soda_cache_key *key)
{
	return true;
}

static void random_hit(void *state, const struct soda_cache_touch *touch)
{
}

static void random_fill(void *state, uint32_t slot, const struct soda_cache_key *key,
			uint64_t sectors)
{
}

static void random_drop(void *state, uint32_t slot)
{
}

/* xorshift64*, its upper half */
static uint32_t throw_dice(struct random_state *state)
{
	state->dice ^= state->dice >> 12;
	state->dice ^= state->dice << 25;
	state->dice ^= state->dice >> 27;
	return (uint32_t)((state->dice * 0x2545f4914f6cdd1dull) >> 32);
}

static uint32_t random_victim(void *arg)
{
	struct random_state *state = arg;
	const struct soda_cache_setup *setup = state->setup;
	uint32_t slot = 0;

	for (int i = 0; i < THROWS; i++) {
		slot = throw_dice(state) % setup->slots;
		if (setup->evictable(setup->cache, slot))
			return slot;
	}
	/* Nearly all are in use: take the first behind the last throw. */
	for (uint32_t i = 0; i < setup->slots; i++) {
		slot = slot + 1 < setup->slots ? slot + 1 : 0;
		if (setup->evictable(setup->cache, slot))
			return slot;
	}
	return SODA_CACHE_NONE;
}

static uint32_t random_predict(void *state, const struct soda_cache_touch *touch,
			       struct soda_cache_want *wants_p, uint32_t max)
{
	if (touch->slot != SODA_CACHE_NONE)
		return 0;
	wants_p[0] =
		(struct soda_cache_want){ .entry = touch->key.entry, .sectors = SODA_CACHE_WHOLE };
	return 1;
}

const struct soda_cache_policy soda_cache_policy_random = {
	.abi = SODA_CACHE_POLICY_ABI,
	.struct_bytes = sizeof(struct soda_cache_policy),
	.name = "random",
	.state_bytes = random_state_bytes,
	.init = random_init,
	.admit = random_admit,
	.hit = random_hit,
	.fill = random_fill,
	.victim = random_victim,
	.drop = random_drop,
	.predict = random_predict,
};
