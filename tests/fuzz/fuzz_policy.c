/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache policy that answers with the input, behind its guard: what comes out is what a cache can
 * live with.  The input decides what the cache does, too.
 *   slots 8 | ops: what 8, then its numbers, and those of the policy's answer
 */
#include "dpu_agent/cache/policy/policy_guard.h"
#include "fuzz/fuzz.h"

enum { SLOTS_MAX = 32, ENTRIES = 64, OWNERS = 3 };

static struct fuzz_input input;

/* The cache that the guard is of. */
static struct cache {
	uint32_t slots;
	bool held[SLOTS_MAX], in_use[SLOTS_MAX];
	struct soda_cache_key keys[SLOTS_MAX];
} cache;

static size_t state_bytes(const struct soda_cache_setup *setup)
{
	return fuzz_u32(&input) >> fuzz_u8(&input) % 32;
}

static void init(void *state, const struct soda_cache_setup *setup)
{
}

static bool admit(void *state, const struct soda_cache_key *key)
{
	return fuzz_u8(&input) & 1;
}

static void hit(void *state, const struct soda_cache_touch *touch)
{
	MUST(touch->slot < cache.slots);
}

static void fill(void *state, uint32_t slot, const struct soda_cache_key *key, uint64_t sectors)
{
	MUST(slot < cache.slots);
}

static uint32_t victim(void *state)
{
	uint8_t says = fuzz_u8(&input);

	return says == 255 ? SODA_CACHE_NONE : says == 254 ? fuzz_u32(&input) : says;
}

static void drop(void *state, uint32_t slot)
{
	MUST(slot < cache.slots);
}

static uint32_t predict(void *state, const struct soda_cache_touch *touch,
			struct soda_cache_want *wants_p, uint32_t max)
{
	uint32_t says = fuzz_u8(&input);

	for (uint32_t i = 0; i < max && i < says; i++)
		wants_p[i] =
			(struct soda_cache_want){ .entry = fuzz_u8(&input) == 1 ? fuzz_u64(&input)
										: fuzz_u8(&input),
						  .sectors = fuzz_u16(&input),
						  .once = fuzz_u8(&input) & 1 };
	return says == 200 ? UINT32_MAX : says;
}

static const struct soda_cache_policy odd = { .abi = SODA_CACHE_POLICY_ABI,
					      .struct_bytes = sizeof(odd),
					      .name = "odd",
					      .state_bytes = state_bytes,
					      .init = init,
					      .admit = admit,
					      .hit = hit,
					      .fill = fill,
					      .victim = victim,
					      .drop = drop,
					      .predict = predict };

static bool evictable(const void *arg, uint32_t slot)
{
	MUST(slot < cache.slots);
	return cache.held[slot] && !cache.in_use[slot];
}

static struct soda_cache_touch take_touch(void)
{
	struct soda_cache_touch touch = { .key = { fuzz_u8(&input) % OWNERS,
						   fuzz_u8(&input) % ENTRIES },
					  .bytes = 4096,
					  .slot = SODA_CACHE_NONE,
					  .entries = ENTRIES };

	for (uint32_t i = 0; i < cache.slots; i++)
		if (cache.held[i] && cache.keys[i].owner == touch.key.owner &&
		    cache.keys[i].entry == touch.key.entry)
			touch.slot = i;
	touch.told = fuzz_u8(&input) & 1;
	touch.has = touch.told ? fuzz_u64(&input) : 0;
	return touch;
}

/* As a request does: hit, then the predictions, each of which finds a place. */
static void request(struct soda_guard *g)
{
	struct soda_cache_touch touch = take_touch();
	struct soda_cache_want wants[SODA_CACHE_PREDICT_MAX];
	uint32_t n;

	if (touch.slot != SODA_CACHE_NONE)
		soda_guard_hit(g, &touch);
	n = soda_guard_predict(g, &touch, wants);
	MUST(n <= SODA_CACHE_PREDICT_MAX);
	for (uint32_t i = 0; i < n; i++) {
		struct soda_cache_key key = { touch.key.owner, wants[i].entry };
		uint32_t slot = 0;

		MUST(wants[i].entry < touch.entries && wants[i].sectors);
		while (slot < cache.slots && cache.held[slot])
			slot++;
		if (!soda_guard_admit(g, &key))
			continue;
		if (slot == cache.slots) {
			slot = soda_guard_victim(g);
			if (slot == SODA_CACHE_NONE)
				continue;
			MUST(slot < cache.slots && cache.held[slot] && !cache.in_use[slot]);
			soda_guard_drop(g, slot);
		}
		cache.held[slot] = true;
		cache.in_use[slot] = fuzz_u8(&input) & 1;
		cache.keys[slot] = key;
		soda_guard_fill(g, slot, &key, wants[i].sectors);
	}
}

static void drop_one(struct soda_guard *g)
{
	uint32_t slot = fuzz_u8(&input) % cache.slots;

	soda_guard_drop(g, slot);
	cache.held[slot] = false;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct soda_cache_setup setup = { .entry_bytes = 65536, .seed = 1, .evictable = evictable };
	struct soda_guard guard;

	input = (struct fuzz_input){ data, bytes };
	memset(&cache, 0, sizeof(cache));
	cache.slots = setup.slots = 1 + fuzz_u8(&input) % SLOTS_MAX;
	if (soda_guard_init(&guard, &odd, &setup) < 0)
		return 0;
	while (input.left) {
		switch (fuzz_u8(&input) % 4) {
		case 0:
			drop_one(&guard);
			break;
		case 1:
			cache.in_use[fuzz_u8(&input) % cache.slots] ^= true;
			break;
		default:
			request(&guard);
		}
	}
	MUST(!guard.replaced || guard.nonsense >= SODA_GUARD_PATIENCE);
	soda_guard_destroy(&guard);
	return 0;
}
