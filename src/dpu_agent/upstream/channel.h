/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data connection to the memory server, and the transfers under way on it, each of one request of
 * a client or of several whose ranges, and memory, are neighbours.  A transfer's session, region,
 * tasks and writes are paging's, and are not looked at here.
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
struct soda_seal_engine;

enum {
	SODA_CHANNEL_DEPTH = 256, /* transfers under way */
	SODA_CHANNEL_POLL = 32,	  /* transfers that one poll finishes */
};

/*
 * What a WRITE says to an agent in front of a pool: whose data it repeats, or is parity of
 * (soda_conn_post_again, _coded); or, neither, that its own are to be kept (_kept).
 */
struct soda_told {
	const struct soda_wire_origin *origin;
	const uint8_t *code;
	uint32_t code_bytes;
};

struct soda_transfer {
	struct soda_transfer *next;
	struct soda_session *session;
	struct soda_paging_region *region;
	struct soda_task *tasks;   /* of clients' READs (without async: WRITEs, too); or */
	struct soda_write *writes; /* WRITEs, in their order on the write list */
	unsigned tasks_n;	   /* how many of either */
	uint64_t offset;
	uint64_t base; /* where the client's region begins in the server's; set as it is posted */
	uint32_t bytes;
	bool write;
	bool raw; /* of a sealed file: its own parts, as they lie there */
	uint64_t posted_ns;
	const struct soda_told *told; /* of a WRITE; NULL: nothing */
	/*
	 * A READ of the caches, or a WRITE of the agent's own (paging/place.c), which has no tasks:
	 * called at its end; the memory is theirs.
	 */
	void (*ended)(struct soda_transfer *t, int status);
	void *arg;		  /* ended's */
	struct soda_block *block; /* a READ's memory, with one reference; else NULL */
	uint8_t *memory;
	/* of a region that is sealed (paging/sealing.h) */
	struct soda_block *sealed; /* a WRITE's data as they travel; else NULL */
	uint64_t version, damaged; /* its first, or a READ's latest; number of a bad block + 1 */
	bool racing;		   /* the READ may pass a WRITE or a DISCARD */
};

struct soda_channel {
	struct soda_session *session;
	pthread_mutex_t lock;
	struct soda_completer *completer; /* guarded by lock, and so below; NULL: threads that post
					     also collect */
	bool watched;			  /* the completer is told of answers */
	bool failed;  /* the connection has failed, and the completer ignores it */
	bool polling; /* the thread that waits for the last transfer polls */
	struct soda_seal_engine *engine;    /* with --seal; paging's */
	struct soda_conn *conn;		    /* NULL: not connected */
	struct soda_transfer *first, **end; /* under way, in their order */
	uint64_t posted_bytes;
	/*
	 * How many threads have taken finished transfers off and work on them without the lock.
	 * soda_channel_disconnect() waits for them, because these transfers' tasks, WRITEs and
	 * regions are the session's.  Atomic; goes up with the lock held.
	 */
	_Atomic uint32_t finishers;
	_Atomic bool awaited;	    /* a thread waits at `finished` until finishers is 0 */
	pthread_cond_t finished;    /* with lock */
	_Atomic uint32_t under_way; /* transfers */
	_Atomic uint64_t
		progress_ns; /* when a transfer finished last, or was posted on an idle channel */
};

void soda_channel_init(struct soda_channel *c, struct soda_session *s);
void soda_channel_destroy(struct soda_channel *c);
/* Give the channel a connection, which it owns from now on. */
void soda_channel_connect(struct soda_channel *c, struct soda_conn *conn);
/* Make a thread return that waits for the server with the channel's lock. session->life is held. */
void soda_channel_abort(struct soda_channel *c);
/*
 * Close the connection, and return the transfers that were under way, in their order.  Waits for
 * the finishers, who wait for no thread that waits for this. session->life is held.
 */
struct soda_transfer *soda_channel_disconnect(struct soda_channel *c);

/*
 * Post the transfer in region mr; the lock is held. 0; -ENOTCONN, or the connection's error: the
 * transfer is still the caller's.
 */
int soda_channel_post_locked(struct soda_channel *c, struct soda_transfer *t, struct soda_mr *mr);
/*
 * Take finished transfers off, waiting at most timeout_ns for the first; the lock is held.  *done_p
 * is their list, and status[] (SODA_CHANNEL_POLL entries) how each ended.  How many, or the
 * connection's error.
 */
int soda_channel_poll_locked(struct soda_channel *c, int64_t timeout_ns, int64_t spin_ns,
			     struct soda_transfer **done_p, int *status);

/*
 * A thread that goes on with finished transfers without the lock calls finish_locked before it
 * releases the lock, and finished when it is done: until then the session's connections to the
 * server are not taken down.
 */
static inline void soda_channel_finish_locked(struct soda_channel *c)
{
	atomic_fetch_add_explicit(&c->finishers, 1, memory_order_relaxed);
}
void soda_channel_finished(struct soda_channel *c);

/* The connection has failed: forget the transfers under way. The lock is held. */
void soda_channel_forget_locked(struct soda_channel *c);

#endif
