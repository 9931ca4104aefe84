/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recomputes what the runtime's flags, credits and lists must add up to, for debug builds, the
 * simulation and tests.  For each chunk of an object
 *
 *   the dirty mask is empty but for DIRTY and BUSY, and never empty in DIRTY
 *   BACKED: always in REMOTE, never in ZERO     SENDING: CLEAN, DIRTY, BUSY     QUEUED: DIRTY, BUSY
 *   the chunk is in a list of the policy exactly while it is CLEAN or DIRTY, and not kept (kept.h)
 *   its count of holds is at most the number of threads that remember it
 *
 * and for all chunks together
 *
 *   credits in use      = resident chunks + chunks on their way in + staging slots, of which
 *   buffer.kept         = kept chunks are beside the buffer's limit
 *   credits pinned      = chunks that are PINNED, and those that are held (core/held.h)
 *   buffer.sending      = chunks queued to be evicted + chunks under way to be evicted
 *   each QUEUED chunk has a place in the write-back queue
 *   each SENDING chunk belongs to one sender's operation, or has a place in one relay
 *   each BUSY chunk is one that a sender is about to drop
 *   each FETCHING chunk belongs to one request of the channel that it names
 *
 * An audit repairs nothing, and ends at the first thing that is wrong.
 */
#ifndef SODA_HOST_AUDIT_H
#define SODA_HOST_AUDIT_H

#include "transport/api/transport.h"

enum soda_audit_when {
	/* Threads may be anywhere in the code: checks only what holds at each step. */
	SODA_AUDIT_ANYWHERE,
	/*
	 * No thread of the program is in a call or a fault, and the runtime's own threads wait for
	 * work or for answers: checks everything.
	 */
	SODA_AUDIT_BETWEEN,
};

/*
 * 0; -EUCLEAN: *why says which chunk, object or account is wrong, and how.  No other thread may
 * run meanwhile, because the audit takes no locks.  Never waits.
 */
int soda_audit_check(enum soda_audit_when when, struct soda_why *why);

/*
 * The same while other threads run, which make accounts differ for a moment.  So -EUCLEAN only
 * where the same thing is wrong, and no counter changes, in thousands of looks over several
 * seconds; 0 also where too much is under way to tell, or the runtime ends.  Takes the lock of
 * soda_regions_lock and each shard's.
 */
int soda_audit_live(struct soda_why *why);

/*
 * The runtime calls this where little is under way (after a sync, after a reconnection, at the
 * end): debug builds call soda_audit_live, and if it finds something log that, with `where`, and
 * abort; other builds do nothing.
 */
#ifdef SODA_DEBUG
void soda_audit_quiet(const char *where);
#else
static inline void soda_audit_quiet(const char *where)
{
}
#endif

#endif
