/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A policy is asked through its guard, which checks every answer.  Nonsense (a
 * victim that does not exist, holds nothing, or is in use again and again; more
 * predictions than allowed, or entries outside of the owner) is refused and counted.
 * After SODA_GUARD_PATIENCE refused answers the policy is replaced by `random`, with one line in
 * the log.
 *
 * Locks: the caller's, one for all calls.
 */
#ifndef SODA_DPU_POLICY_GUARD_H
#define SODA_DPU_POLICY_GUARD_H

#include "soda_cache_policy.h"

enum { SODA_GUARD_PATIENCE = 16 };

struct soda_guard {
	const struct soda_cache_policy *policy;
	void *state;
	struct soda_cache_setup setup;
	struct soda_cache_key *keys; /* of each slot that is held */
	uint64_t *sectors;	     /* likewise: those that were filled */
	bool *held;		     /* the policy was told of a fill, not of a drop */
	void *fallback_state;	     /* of `random`, made beforehand */
	uint64_t nonsense;
	bool replaced;
};

/* setup is copied. 0, -EINVAL (the policy wants too much state), -ENOMEM. */
int soda_guard_init(struct soda_guard *g, const struct soda_cache_policy *policy,
		    const struct soda_cache_setup *setup);
void soda_guard_destroy(struct soda_guard *g);

bool soda_guard_admit(struct soda_guard *g, const struct soda_cache_key *key);
/* touch->slot is set to SODA_CACHE_NONE where that slot does not hold this entry any more. */
void soda_guard_hit(struct soda_guard *g, struct soda_cache_touch *touch);
void soda_guard_fill(struct soda_guard *g, uint32_t slot, const struct soda_cache_key *key,
		     uint64_t sectors);
/* A no-op for a slot that the policy was not told of. */
void soda_guard_drop(struct soda_guard *g, uint32_t slot);
/* A slot that was evictable a moment ago, or SODA_CACHE_NONE. */
uint32_t soda_guard_victim(struct soda_guard *g);
/* At most SODA_CACHE_PREDICT_MAX entries of touch->key.owner; all exist. */
uint32_t soda_guard_predict(struct soda_guard *g, const struct soda_cache_touch *touch,
			    struct soda_cache_want wants[SODA_CACHE_PREDICT_MAX]);

#endif
