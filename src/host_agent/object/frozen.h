/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which chunks an agent's static cache has: ranges of an object that are frozen, and a bit for each
 * of their chunks.  How they become that is in life/freeze.h.
 */
#ifndef SODA_HOST_FROZEN_H
#define SODA_HOST_FROZEN_H

#include "host_agent/object/region.h"

enum soda_frozen_state {
	SODA_FREEZING, /* the agent is being asked */
	SODA_FROZEN,
	SODA_THAWING,  /* it is being told otherwise: a reconnection does not freeze it again */
	SODA_DOUBTFUL, /* it was asked in vain, and may have done it: the next reconnection tells it
			  otherwise, before anything is written */
	SODA_THAWED,   /* nothing, to be forgotten by the next who has api_lock */
};

/*
 * A range of an object; chunk numbers.  It appears and goes with api_lock and the lock of
 * soda_regions_lock, and changes its state with the latter.
 */
struct soda_frozen {
	struct soda_frozen *next;
	uint32_t first, last;
	enum soda_frozen_state state;
};

/*
 * Before a range is frozen: there are bits.  api_lock held, and no chunk frozen where the runtime
 * is another one than the last time. -ENOMEM.
 */
int soda_frozen_reserve(void);
/* The bits of a range that becomes FROZEN, or ceases to be that or THAWING. */
void soda_frozen_mark(const struct soda_frozen *f, bool on);

/*
 * Whether the agent has it frozen, so that what is resident of it is what the server has: a thread
 * that serves a store which was done before that (handler mode) may call it dirty afterwards.  Of a
 * chunk that is BUSY and write-protected: as long as it is.  No lock is needed. AS.
 */
bool soda_frozen_has(uint32_t id);
/* The runtime has ended, and its addresses are not ours any more. */
void soda_frozen_forget(struct soda_region *r);

#endif
