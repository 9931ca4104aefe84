/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which chunks an agent's static cache has: ranges of an object that are frozen, and a bit for each
 * of their chunks.  pool/freeze.h asks the agent to freeze and to thaw them.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_FROZEN_H
#define SODA_HOST_FROZEN_H

#include "host_agent/object/region.h"

enum soda_frozen_state {
	SODA_FREEZING, /* the agent is being asked */
	SODA_FROZEN,
	SODA_THAWING,  /* the agent is being told to end it: a reconnection does not freeze it again
			*/
	SODA_DOUBTFUL, /* the agent gave no answer and may have frozen it: the next reconnection
			  tells the agent to end it, before anything is written */
	SODA_THAWED,   /* not frozen; the next thread with api_lock frees this record */
};

/*
 * A range of an object, in chunk numbers.  A thread that adds or frees one holds api_lock and
 * soda_regions_lock; one that changes its state holds soda_regions_lock.
 */
struct soda_frozen {
	struct soda_frozen *next;
	uint32_t first, last;
	enum soda_frozen_state state;
	bool fresh; /* frozen by the call that holds api_lock now, which may undo it */
};

/*
 * Before a range is frozen: get memory for the bits.  api_lock held; at the first call after the
 * runtime's start no chunk is frozen. -ENOMEM.
 */
int soda_frozen_reserve(void);
/* Set the bits of a range that becomes FROZEN; clear those of one that is no longer FROZEN or
 * THAWING. */
void soda_frozen_mark(const struct soda_frozen *f, bool on);

/*
 * Whether the agent has the chunk frozen, so that its resident pages are what the server has.  In
 * handler mode a thread that serves an older store may still mark such a chunk dirty.  The answer
 * about a chunk that is BUSY and write-protected holds as long as the chunk is.  No lock is needed.
 * AS.
 */
bool soda_frozen_has(uint32_t id);
/* Free the object's ranges: the runtime has ended, and other mappings may have its addresses. */
void soda_frozen_forget(struct soda_region *r);

#endif
