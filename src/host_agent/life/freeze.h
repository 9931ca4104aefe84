/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caching advice for the DPU agent.  STATIC_CACHE freezes a range: from then on a store
 * to it is SIGSEGV, what was dirty is written back, and the agent loads it once.  On
 * shared memory its chunks are then read straight from the agent's memory.
 * NO_CACHE and DYNAMIC_CACHE end that for the frozen ranges inside theirs, and say for
 * the whole object whether the agent's dynamic cache is for it.
 */
#ifndef SODA_HOST_FREEZE_H
#define SODA_HOST_FREEZE_H

#include "host_agent/object/frozen.h"
#include "host_agent/object/region.h"

/*
 * advice: one of the three above.  api_lock held.  -ENOTSUP: no agent; -ENOSPC: over its
 * static cache, nothing is frozen; -EBUSY: a frozen range lies across the edge; -EIO... of
 * soda_sync_chunks: dirty data could not be written back, nothing is frozen.
 */
int soda_freeze_advise(struct soda_region *r, uint32_t first, uint32_t last, int advice,
		       struct soda_why *why);
/* Whether a chunk of the range is frozen. api_lock held. */
bool soda_freeze_covers(const struct soda_region *r, uint32_t first, uint32_t last);

/*
 * For the keeper, with the lock of soda_regions_lock: after a reconnection, and before anything is
 * written; the agent may be another process than before.  Errors of the connection.
 */
int soda_freeze_renew(struct soda_conn *control, struct soda_region *r, struct soda_why *why);
/* Likewise: the object's content was lost, and stores are let in again. */
void soda_freeze_lose(struct soda_region *r);
/* The object goes. api_lock held. */
void soda_freeze_end(struct soda_region *r);

#endif
