/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caching advice for the DPU agent.  STATIC_CACHE freezes a range: from then on a store
 * to it is SIGSEGV; its dirty chunks are written back, and the agent loads the range once.  Where
 * the agent shares its memory with us, the range's chunks are then read straight from there.
 * NO_CACHE and DYNAMIC_CACHE thaw the frozen ranges inside theirs, and tell the agent whether its
 * dynamic cache shall serve the object.
 */
#ifndef SODA_HOST_FREEZE_H
#define SODA_HOST_FREEZE_H

#include "host_agent/object/frozen.h"
#include "host_agent/object/region.h"

/*
 * advice: SODA_STATIC_CACHE, SODA_NO_CACHE or SODA_DYNAMIC_CACHE; of an object of several slabs r
 * is that of the first chunk.  api_lock held.  0; -ENOTSUP: there is no agent, or STATIC_CACHE of a
 * slab with copies that is no READ_ONLY file; -ENOSPC: the agent's static cache has no room;
 * -EBUSY: a frozen range lies partly outside; errors of soda_sync_range(); -ENOMEM.  After an error
 * of SODA_STATIC_CACHE nothing is frozen that was not before; after one of the others nothing is
 * thawed, but for slabs before the one that has failed.  Copies of a slab are told where their
 * server is UP, and not again.
 */
int soda_freeze_advise(struct soda_region *r, uint32_t first, uint32_t last, int advice,
		       struct soda_why *why);
/* Whether a chunk of the slab, in the range, is frozen. api_lock held. */
bool soda_freeze_covers(const struct soda_region *r, uint32_t first, uint32_t last);

/*
 * The keeper, after a reconnection and before any WRITE is posted, with the lock of
 * soda_regions_lock: freeze the object's frozen ranges again, as the agent may be another process
 * than before.  Errors of the connection.
 */
int soda_freeze_renew(struct soda_conn *control, struct soda_region *r, struct soda_why *why);
/*
 * The keeper, with that lock: the server has lost the object's content; allow stores to it again.
 */
void soda_freeze_lose(struct soda_region *r);
/* The object is being freed. api_lock held. */
void soda_freeze_end(struct soda_region *r);

#endif
