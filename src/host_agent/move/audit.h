/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the runtime's accounts must add up to, computed anew: a second opinion for debug builds,
 * the simulation and tests.  Of each chunk of an object
 *
 *   the dirty mask is empty but for DIRTY and BUSY, and never empty in DIRTY
 *   BACKED: always in REMOTE, never in ZERO     SENDING: CLEAN, DIRTY, BUSY     QUEUED: DIRTY, BUSY
 *   it is in a list of the policy exactly while it is CLEAN or DIRTY
 *   it is held by no more threads than remember it
 *
 * and of all of them together
 *
 *   credits in use      = resident chunks + chunks on their way in + staging slots
 *   credits pinned      = chunks that are PINNED
 *   chunks to be sent and dropped = those that wait for it + those under way
 *   a QUEUED chunk has a place in the write-back queue
 *   a SENDING one belongs to one sender's operation, a BUSY one in no list to what a sender drops
 *   a FETCHING one belongs to one request of the channel that it names
 *
 * It repairs nothing and waits for nothing (but soda_audit_live), and finds one thing at a time.
 */
#ifndef SODA_HOST_AUDIT_H
#define SODA_HOST_AUDIT_H

#include "transport/api/transport.h"

enum soda_audit_when {
	/* Threads stand anywhere: what holds at each of their steps. */
	SODA_AUDIT_ANYWHERE,
	/* No thread of the program is inside of a call or a fault, and the runtime's own wait for
	   work or for answers: all of it. */
	SODA_AUDIT_BETWEEN,
};

/*
 * 0; -EUCLEAN: *why says which chunk, object or account is wrong, and how.  No other thread may
 * run meanwhile: it reads what locks guard without them.
 */
int soda_audit_check(enum soda_audit_when when, struct soda_why *why);

/*
 * The same beside threads that run.  They make accounts differ for a moment: -EUCLEAN only where
 * the same thing is wrong, and nothing moves, for thousands of looks over several seconds.  0 also
 * where there is too much under way for an opinion.  Takes the lock of soda_regions_lock and each
 * shard's.
 */
int soda_audit_live(struct soda_why *why);

/*
 * For the runtime's own quiet points (a sync has ended, a connection is back, the end): debug
 * builds log what soda_audit_live finds, with `where`, and abort; others do nothing.
 */
#ifdef SODA_DEBUG
void soda_audit_quiet(const char *where);
#else
static inline void soda_audit_quiet(const char *where)
{
}
#endif

#endif
