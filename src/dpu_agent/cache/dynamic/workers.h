/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that take turns at work which may block, as many as that needs: while all are blocked
 * another one is started, so that one is always free to take the next turn, up to a number.  The
 * least number is there from the start.  Others end when they have nothing to do, another one is
 * free as well, and no thread has had to be started for a while.
 *
 *            rung                turn: true
 *   ASLEEP ---------> AT A TURN -----------> AT A TURN     block: BLOCKED, until unblock
 *     ^                   |
 *     +---- turn: false --+---> ENDED, where there are more than the least and a rest is over
 *
 * Threads: ring from any, with any lock held; block and unblock from within a turn, with no lock.
 */
#ifndef SODA_DPU_WORKERS_H
#define SODA_DPU_WORKERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SODA_WORKERS_MAX = 64, SODA_WORKERS_REST_MS = 5000 };

struct soda_workers;

struct soda_worker {
	struct soda_workers *all;
	pthread_t thread;
	bool used, ended; /* guarded by all->lock; used: there is a thread to be joined */
};

struct soda_workers {
	/* the owner's, before start */
	const char *name;	 /* of each thread; 15 characters at most */
	bool (*turn)(void *arg); /* one piece of work; false: there was none */
	void *arg;		 /* turn's */
	unsigned least, most;	 /* at most SODA_WORKERS_MAX */
	unsigned rest_ms;	 /* 0: SODA_WORKERS_REST_MS */
	/* the module's, zeroed before start */
	pthread_mutex_t lock;
	unsigned alive, blocked; /* guarded by lock, and so below */
	uint64_t short_ns;	 /* when all were blocked last */
	bool started, stopping;
	struct soda_worker at[SODA_WORKERS_MAX];
	_Atomic uint32_t bell; /* futex: threads sleep on it */
	_Atomic uint32_t sleepers;
};

/* Start the least number of threads. 0, or -EAGAIN: none runs. */
int soda_workers_start(struct soda_workers *w);
/* Begin no turn any more, and await those under way.  Where nothing was started: a no-op. */
void soda_workers_stop(struct soda_workers *w);

/* There is work: wake one thread, if one is asleep. */
void soda_workers_ring(struct soda_workers *w);
/*
 * The calling turn may block from here to unblock.  Where that leaves no thread free another one is
 * started; if the system has none, or there are as many as may be, the turn goes on all the same.
 */
void soda_workers_block(struct soda_workers *w);
void soda_workers_unblock(struct soda_workers *w);

/* How many threads there are now. */
unsigned soda_workers_count(struct soda_workers *w);

#endif
