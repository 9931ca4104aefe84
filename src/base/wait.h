/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits of a daemon's thread for another thread of the same process, each with a name.
 *
 * Such a wait may not end before the other thread is done, because what it guards (a peer that is
 * freed, a transfer whose memory gets another use) would be used twice; so it has no time-out of
 * its own.  It is bounded by the other thread's waits, which are for the network or a file and
 * bounded by limits.h.  If it takes longer than that should, the log says who has waited how long
 * for what, again and again, and says so when it has ended: nothing stands still in silence.
 *
 * A thread that waits for work to come (a worker, a reaper) is not waiting for anybody and does
 * not use this.  Neither does the host agent on the path of a fault: its waits have deadlines.
 */
#ifndef SODA_COMMON_WAIT_H
#define SODA_COMMON_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct soda_wait {
	const char *what; /* "client 12ab's connections to end": completes "waits for ..." */
	uint64_t began_ns, told_ns;
};

/* what is kept, not copied. */
void soda_wait_begin(struct soda_wait *w, const char *what);

/*
 * One turn: pthread_cond_wait, which also returns now and then without a reason (at least every
 * SODA_WAIT_TELL_MS) to tell the log.  The condition is the caller's to look at.  lock is let go
 * of for the line in the log.
 */
void soda_wait_turn(struct soda_wait *w, pthread_cond_t *cond, pthread_mutex_t *lock);

/* The same on a futex: until *word is not seen any more, or now and then without a reason. */
void soda_wait_futex(struct soda_wait *w, _Atomic uint32_t *word, uint32_t seen);

/* Tell the log, if the wait had been told of, that it has ended. Holding no lock. */
void soda_wait_end(const struct soda_wait *w);

/* A condition whose timed waits go by CLOCK_MONOTONIC. */
void soda_cond_init(pthread_cond_t *cond);

/* pthread_join with a name. */
void soda_wait_join(pthread_t thread, const char *what);

#endif
