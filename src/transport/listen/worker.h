/* SPDX-License-Identifier: BSD-3-Clause */
/* A data worker, and what its engine must do. */
#ifndef SODA_SERVER_WORKER_H
#define SODA_SERVER_WORKER_H

#include "transport/api/spin.h"
#include "transport/listen/data.h"
#include "base/flow.h"

/* How long a worker looks for the next request of a client that polls. */
#define SODA_WORKER_SPIN_NS 60000

struct soda_worker {
	struct soda_listener *listener;
	pthread_t thread;
	int wake_fd; /* eventfd, blocking: something is in the mailbox, or stop */
	int look_fd; /* timerfd: connections may be stuck */
	_Atomic bool stop;
	_Atomic unsigned load; /* connections, also those in the mailbox */
	pthread_mutex_t lock;
	struct soda_stream_conn *mailbox; /* guarded by lock */
	struct soda_stream_conn *ready;	  /* guarded by lock: answers of the daemon, two-sided */
	_Atomic bool has_ready;		  /* changed with the lock held: a look is free */
	_Atomic bool asleep;		  /* or about to be: who adds to `ready` wakes it */
	struct soda_stream_conn *conns;	  /* the worker's own, and so below */
	struct soda_stream_conn *rung;	/* delivered requests, and the daemon has no doorbell yet */
	struct soda_flow_share *shares; /* of flows that have connections here */
	struct soda_stream_conn *held, **held_end;
	uint64_t round; /* counted from 1 */
	uint64_t least; /* what the flow has got that has least, of those that waited in the last */
	struct soda_spin spin;
	struct soda_home home;
	uint8_t scratch[64 << 10]; /* data of refused WRITEs, never looked at */
};

/* The next connection from the mailbox, now on worker->conns; NULL: none. */
struct soda_stream_conn *soda_worker_take(struct soda_worker *w);
/*
 * The next connection with answers from the daemon, which has been told
 * (soda_stream_conn_continue); NULL: none.
 */
struct soda_stream_conn *soda_worker_ready(struct soda_worker *w);
/* Nothing further is at hand: doorbells for all that was delivered. */
void soda_worker_ring(struct soda_worker *w);
/* Put it on the ready list and wake the worker if it sleeps. The lock is held. */
void soda_worker_push_locked(struct soda_worker *w, struct soda_stream_conn *c);
/* Take it off the ready list: soda_peer_resume may have come when nothing was to be resumed. */
void soda_worker_forget(struct soda_worker *w, struct soda_stream_conn *c);
/* About to sleep: false if there are answers. Undone by soda_worker_awake. */
bool soda_worker_may_sleep(struct soda_worker *w);
static inline void soda_worker_awake(struct soda_worker *w)
{
	atomic_store_explicit(&w->asleep, false, memory_order_relaxed);
}
/*
 * Whether a request of so many bytes may go on; false: the connection is held, or closing if it
 * would wait for its rate and has been shut.  Writes that are stopped by lack of memory afterwards
 * have been counted: they are asked for again.
 */
bool soda_worker_admits(struct soda_stream_conn *c, uint32_t bytes);
/*
 * Nanoseconds until the first held connection is due: 0: there is one; -1: none is held.
 */
int64_t soda_worker_patience(const struct soda_worker *w);
/*
 * Begin a round: all that has come in has been looked at.  The connections that are due, from
 * `first` on by held_next, are held no more, and are to be released one after the other.
 */
struct soda_stream_conn *soda_worker_round(struct soda_worker *w);

/* look_fd says that it is time: those that are stuck are closing from now on. */
void soda_worker_look(struct soda_worker *w);

/* Take it off the list and destroy it. */
void soda_worker_drop(struct soda_worker *w, struct soda_stream_conn *c);

/*
 * Engines: serve worker->conns and what soda_worker_take gives until `stop` is
 * set and no connection is left.  0; -ENOTSUP: not on this kernel, or no longer: connections that
 * are left are closing, and the other engine ends them.
 */
int soda_engine_epoll(struct soda_worker *w);
int soda_engine_uring(struct soda_worker *w);

#endif
