/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * First touches: chunks that were never written become zeros.  Where a thread goes through an
 * object in order, one fault may fill several of them.
 */
#ifndef SODA_HOST_FILL_H
#define SODA_HOST_FILL_H

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"

/*
 * Whether chunk id, which is FETCHING now, may be filled though nobody asked for it.  What is
 * filled may count as stored to, and is read when it is written back; so only who knows all
 * protections can answer: no for what is closed (region.h). Set before the runtime starts; NULL,
 * the default: a fault fills one chunk. AS.
 */
extern bool (*soda_fill_allowed)(uint32_t id);

/*
 * The caller has made chunk id FETCHING, from ZERO, and has a credit for it.  block: of the store
 * that faulted; -1: a load.  Those that follow are filled as long as there is room without an
 * eviction, in the way of the first: what a store opens as a whole counts as stored to.
 * 0, or the error of the pager: nothing was filled, and the credit is back. AS.
 */
int soda_fill(struct soda_thread *t, struct soda_region *r, uint32_t id, int block);

#endif
