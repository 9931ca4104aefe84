/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits of a daemon's thread for another thread of the same process, each with a name.
 *
 * Such a wait may not end before the other thread is done, because that still uses what the waiting
 * thread is about to free or reuse (a peer, the memory of a transfer); so the wait has no time-out.
 * The other thread's own waits, for the network or a file, are bounded by limits.h.  If the wait
 * takes longer than SODA_WAIT_TELL_MS the log says for what a thread has waited how long, again and
 * again, and when it has ended.
 *
 * A thread that waits for work (a worker, a reaper) does not use this; neither does the host agent
 * on the path of a fault, where waits have deadlines.
 */
#ifndef SODA_BASE_WAIT_H
#define SODA_BASE_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

struct soda_wait {
	const char *what; /* "client 12ab's connections to end": completes "waits for ..." */
	uint64_t began_ns, told_ns;
};

/* `what` is kept, not copied. */
void soda_wait_begin(struct soda_wait *w, const char *what);

/*
 * One turn: pthread_cond_wait(), which also returns at least every SODA_WAIT_TELL_MS, after a line
 * in the log, which is written without the lock.  The caller checks its condition and calls again.
 */
void soda_wait_turn(struct soda_wait *w, pthread_cond_t *cond, pthread_mutex_t *lock);

/* The same on a futex: waits until *word is not `seen` any more, or SODA_WAIT_TELL_MS. */
void soda_wait_futex(struct soda_wait *w, _Atomic uint32_t *word, uint32_t seen);

/* Log that the wait has ended, if it was logged before. The caller holds no lock. */
void soda_wait_end(const struct soda_wait *w);

/* Initialise a condition whose timed waits use CLOCK_MONOTONIC. */
void soda_cond_init(pthread_cond_t *cond);
/* So long from now, on that clock. */
struct timespec soda_wait_until(uint32_t ms);

/* pthread_join(), as such a wait. */
void soda_wait_join(pthread_t thread, const char *what);

#endif
