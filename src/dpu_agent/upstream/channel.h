/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data connection to the memory server, and what is under way on it: transfers, each of one
 * request of a client or of several whose ranges, and memory, are neighbours.  What they are for
 * (session, region, tasks, writes) is paging's, and is not looked at here.
 */
#ifndef SODA_DPU_AGENT_CHANNEL_H
#define SODA_DPU_AGENT_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/base/blocks.h"
#include "transport/api/service.h"
#include "transport/api/transport.h"

struct soda_session;
struct soda_paging_region;
struct soda_task;
struct soda_write;
struct soda_completer;

enum {
	SODA_CHANNEL_DEPTH = 256, /* transfers */
	SODA_CHANNEL_POLL = 32,	  /* completions of one poll */
};

struct soda_transfer {
	struct soda_transfer *next;
	struct soda_session *session;
	struct soda_paging_region *region;
	struct soda_task *tasks;   /* or, accepted or to be: */
	struct soda_write *writes; /* `tasks_n` of them, in their order on the write list */
	unsigned tasks_n;
	uint64_t offset;
	uint32_t bytes;
	bool write;
	uint64_t posted_ns;
	/* A READ of the caches, which has no tasks: told of its end; the memory is its owner's. */
	void (*ended)(struct soda_transfer *t, int status);
	void *arg;		  /* ended's */
	struct soda_block *block; /* READ into memory of ours: one reference; else NULL */
	uint8_t *memory;
};

struct soda_channel {
	struct soda_session *session;
	pthread_mutex_t lock;
	struct soda_completer *completer; /* guarded by lock; NULL: who posts also collects */
	bool watched;			  /* guarded by lock: the completer hears of answers */
	bool failed;		/* and so this: its connection has, and no completer looks at it */
	bool polling;		/* guarded by lock: so does who waits for the last */
	struct soda_conn *conn; /* guarded by lock, and so below; NULL: not connected */
	struct soda_transfer *first, **end; /* under way, in their order */
	uint64_t posted_bytes;
	/*
	 * Threads that have taken finished transfers off and go on with them without the lock:
	 * whoever disconnects waits for them, as these transfers' tasks, WRITEs and regions are
	 * the session's.  atomic; goes up with the lock held.
	 */
	_Atomic uint32_t finishers;
	_Atomic bool awaited;	 /* somebody waits for them, at `finished` */
	pthread_cond_t finished; /* with lock */
	_Atomic uint32_t under_way;
	_Atomic uint64_t progress_ns; /* of the last post on an idle channel, or completion */
};

void soda_channel_init(struct soda_channel *c, struct soda_session *s);
void soda_channel_destroy(struct soda_channel *c);
/* conn is the channel's from now on. */
void soda_channel_connect(struct soda_channel *c, struct soda_conn *conn);
/* Who waits for it, with the lock, does not any more. session->life is held. */
void soda_channel_abort(struct soda_channel *c);
/*
 * Close; what was under way, in its order, is the caller's.  Waits for those who still finish what
 * they have taken off before: they wait for nobody who waits for this.
 */
struct soda_transfer *soda_channel_disconnect(struct soda_channel *c);

/*
 * Post, in the transfer's region; the lock is held. 0, or the connection's error: the transfer is
 * still the caller's.
 */
int soda_channel_post_locked(struct soda_channel *c, struct soda_transfer *t, struct soda_mr *mr);
/*
 * Collect what has come back, and if there is nothing wait for it for at most
 * timeout_ns; the lock is held.  *done_p is the list of the finished transfers, and
 * status (SODA_CHANNEL_POLL of them) how each ended.  How many, or the connection's error.
 */
int soda_channel_poll_locked(struct soda_channel *c, int64_t timeout_ns, int64_t spin_ns,
			     struct soda_transfer **done_p, int *status);

/*
 * The caller goes on with what it has polled after it has let go of the lock, and says when it has
 * done: until then the session's upstream is not taken down.  The first with the lock held.
 */
static inline void soda_channel_finish_locked(struct soda_channel *c)
{
	atomic_fetch_add_explicit(&c->finishers, 1, memory_order_relaxed);
}
void soda_channel_finished(struct soda_channel *c);

/* The connection has failed: what is under way is forgotten. The lock is held. */
void soda_channel_forget_locked(struct soda_channel *c);

#endif
