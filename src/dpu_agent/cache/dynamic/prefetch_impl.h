/* SPDX-License-Identifier: BSD-3-Clause */
/* What prefetch*.c share. */
#ifndef SODA_DPU_PREFETCH_IMPL_H
#define SODA_DPU_PREFETCH_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "dpu_agent/cache/dynamic/owner.h"
#include "dpu_agent/cache/dynamic/prefetch.h"
#include "dpu_agent/cache/dynamic/recent_list.h"
#include "dpu_agent/cache/policy/policy_guard.h"

enum { SODA_PREFETCH_WORKERS_MAX = 16 };

/* What the path of a READ has to know of an owner, without a lock. */
enum soda_owner_mode { SODA_MODE_UNCACHED, SODA_MODE_GHOSTS, SODA_MODE_ON };

struct soda_prefetch {
	struct soda_cache *cache;
	const struct soda_prefetch_ops *ops;
	void *arg;
	bool always;
	struct soda_link link;
	struct soda_recent_list recent;
	_Atomic uint8_t *modes; /* by owner id; enum soda_owner_mode */

	struct soda_lock lock; /* guards all down to the gap */
	struct soda_guard guard;
	struct soda_owners owners;
	uint64_t ghost_bytes, ghost_bytes_max;
	uint32_t *free_slots, free_n;
	struct soda_fill fills[SODA_FILLS_MAX];
	struct soda_fill *queue[SODA_FILLS_MAX]; /* a ring of those that no worker has taken */
	uint32_t queue_head, queue_n;
	uint32_t underway;
	uint32_t pause; /* requests that cause no fetch, after one that failed */
	uint64_t begun, unwanted, switched_on, switched_off;
	bool stopping;

	_Atomic uint32_t bell; /* futex: the workers sleep on it */
	_Atomic uint32_t sleepers;
	_Atomic uint32_t ended; /* futex: counts fills that ended */
	pthread_t threads[SODA_PREFETCH_WORKERS_MAX];
	unsigned workers; /* started; the caller's of start and stop */
};

/* Whether entries of this owner are fetched. The lock is held, as for the next three. */
static inline bool soda_prefetch_fetches(const struct soda_prefetch *p, const struct soda_owner *o)
{
	return p->always || o->s.advice == SODA_OWNER_CACHED || o->s.model.on;
}
/* After a change of what that depends on. */
void soda_prefetch_show_mode(struct soda_prefetch *p, const struct soda_owner *o);
void soda_prefetch_drop_ghost(struct soda_prefetch *p, struct soda_owner *o);
/* Entries of the owner that no worker has taken will not be fetched. */
void soda_prefetch_unwant_locked(struct soda_prefetch *p, uint32_t owner);

/* Wake one worker, if one is asleep. */
void soda_prefetch_ring(struct soda_prefetch *p);
/* Whether no fetch waits for a worker. Takes the lock. */
bool soda_prefetch_idle(struct soda_prefetch *p);

#endif
