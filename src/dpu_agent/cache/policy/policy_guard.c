/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/policy/policy_guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dpu_agent/cache/policy/plugin.h"

/* A victim may come into use between the policy's look and ours: ask so often again. */
enum { ASK = 4, STATE_MIN = 1 << 20, STATE_SHARE = 64 };

static void *make_state(const struct soda_cache_policy *policy,
			const struct soda_cache_setup *setup, int *err_p)
{
	uint64_t most = (uint64_t)setup->slots * setup->entry_bytes / STATE_SHARE;
	size_t bytes = policy->state_bytes(setup);
	void *state;

	if (most < STATE_MIN)
		most = STATE_MIN;
	*err_p = -EINVAL;
	if (bytes > most) {
		soda_log_error("cache policy '%s': wants %zu bytes of state, at most %llu are "
			       "allowed: use another policy, or a larger cache",
			       policy->name, bytes, (unsigned long long)most);
		return NULL;
	}
	*err_p = -ENOMEM;
	bytes = (bytes + 64) & ~(size_t)63;
	state = aligned_alloc(64, bytes);
	if (!state)
		return NULL;
	memset(state, 0, bytes);
	policy->init(state, setup);
	*err_p = 0;
	return state;
}

int soda_guard_init(struct soda_guard *g, const struct soda_cache_policy *policy,
		    const struct soda_cache_setup *setup)
{
	int err = -ENOMEM;

	*g = (struct soda_guard){ .policy = policy, .setup = *setup };
	g->keys = calloc(setup->slots, sizeof(*g->keys));
	g->sectors = calloc(setup->slots, sizeof(*g->sectors));
	g->held = calloc(setup->slots, sizeof(*g->held));
	if (g->keys && g->sectors && g->held)
		g->state = make_state(policy, &g->setup, &err);
	if (g->state)
		g->fallback_state = make_state(&soda_cache_policy_random, &g->setup, &err);
	if (!g->fallback_state) {
		soda_guard_destroy(g);
		return err;
	}
	return 0;
}

void soda_guard_destroy(struct soda_guard *g)
{
	free(g->state);
	free(g->fallback_state);
	free(g->keys);
	free(g->sectors);
	free(g->held);
	*g = (struct soda_guard){ 0 };
}

static void replace(struct soda_guard *g, const char *what)
{
	soda_log_error("cache policy '%s': %llu nonsense answers, the last one %s; 'random' is used"
		       " from now on: correct the policy and restart",
		       g->policy->name, (unsigned long long)g->nonsense, what);
	free(g->state);
	g->state = g->fallback_state;
	g->fallback_state = NULL;
	g->policy = &soda_cache_policy_random;
	g->replaced = true;
	for (uint32_t slot = 0; slot < g->setup.slots; slot++)
		if (g->held[slot])
			g->policy->fill(g->state, slot, &g->keys[slot], g->sectors[slot]);
}

static void refuse(struct soda_guard *g, const char *what)
{
	g->nonsense++;
	if (!g->replaced && g->nonsense >= SODA_GUARD_PATIENCE)
		replace(g, what);
}

bool soda_guard_admit(struct soda_guard *g, const struct soda_cache_key *key)
{
	return g->policy->admit(g->state, key);
}

void soda_guard_hit(struct soda_guard *g, struct soda_cache_touch *touch)
{
	const struct soda_cache_key *key = &g->keys[touch->slot];

	if (!g->held[touch->slot] || key->owner != touch->key.owner ||
	    key->entry != touch->key.entry)
		touch->slot = SODA_CACHE_NONE;
	else
		g->policy->hit(g->state, touch);
}

void soda_guard_fill(struct soda_guard *g, uint32_t slot, const struct soda_cache_key *key,
		     uint64_t sectors)
{
	g->keys[slot] = *key;
	g->held[slot] = true;
	g->sectors[slot] = sectors;
	g->policy->fill(g->state, slot, key, sectors);
}

void soda_guard_drop(struct soda_guard *g, uint32_t slot)
{
	if (!g->held[slot])
		return;
	g->held[slot] = false;
	g->policy->drop(g->state, slot);
}

uint32_t soda_guard_victim(struct soda_guard *g)
{
	for (int i = 0; i < ASK; i++) {
		uint32_t slot = g->policy->victim(g->state);

		if (slot == SODA_CACHE_NONE)
			return SODA_CACHE_NONE;
		if (slot >= g->setup.slots) {
			refuse(g, "a victim that does not exist");
			continue;
		}
		if (!g->held[slot]) {
			refuse(g, "an empty victim");
			continue;
		}
		if (g->setup.evictable(g->setup.cache, slot))
			return slot;
	}
	refuse(g, "victims in use");
	return SODA_CACHE_NONE;
}

uint32_t soda_guard_predict(struct soda_guard *g, const struct soda_cache_touch *touch,
			    struct soda_cache_want wants[SODA_CACHE_PREDICT_MAX])
{
	uint32_t n = g->policy->predict(g->state, touch, wants, SODA_CACHE_PREDICT_MAX);

	if (n > SODA_CACHE_PREDICT_MAX) {
		refuse(g, "too many predictions");
		return 0;
	}
	for (uint32_t i = 0; i < n; i++)
		if (wants[i].entry >= touch->entries || !wants[i].sectors) {
			refuse(g, "a prediction outside of the owner, or of nothing");
			return 0;
		}
	return n;
}
