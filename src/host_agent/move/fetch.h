/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks on their way in.  A channel is one data connection with staging slots;
 * its lock is held by whoever posts or collects.  Threads use the channel of
 * their number, so that they meet only where there are more threads than
 * channels; what is fetched ahead travels on channels of its own, so that a
 * demand never queues behind it.
 *
 * Nobody is handed anything: the thread that needs an answer collects it, and
 * with it those before it on the same channel.  The keeper collects what nobody
 * came for.
 *
 * A chunk that is FETCHING has a credit of the buffer.  Whoever collects the
 * answer installs it and settles the chunk; on an error the chunk goes back to
 * REMOTE and the credit is returned.
 *
 * Where the server's memory is mapped (shm), pages are installed straight from
 * there.  Mappings, and keys to an agent's static cache, change under the channels' locks
 * only.
 */
#ifndef SODA_HOST_FETCH_H
#define SODA_HOST_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/* Make `pairs` pairs of channels (demand, ahead), without connections yet. */
int soda_channels_start(uint32_t pairs);
void soda_channels_stop(void);
uint32_t soda_channels_pairs(void);

/* Give channel i (0 .. 2 * pairs) a connection, owned from now on. */
void soda_channels_connect(uint32_t i, struct soda_conn *conn);
/* Break all channels: what is under way fails, connections are closed. */
void soda_channels_disconnect(void);
/* Make blocked collectors return; any thread. */
void soda_channels_abort(void);
/*
 * Lend the thread's demand connection to fn, if nobody uses it: -EBUSY, -ENOTCONN, or what fn
 * returns; a negative result says that the connection has failed. AS.
 */
int soda_channels_lend(struct soda_thread *t, int (*fn)(struct soda_conn *conn, void *arg),
		       void *arg);
/* Run fn while no fetch can use a mapping or a key. */
void soda_channels_exclusive(void (*fn)(void *arg), void *arg);
/* The keeper's: soda_conn_reach_keyed of each. The first error, or 0. */
int soda_channels_reach_keyed(int timeout_ms, struct soda_why *why);

/* In a fork's child: fn for each connection, without locks. */
void soda_channels_forget(void (*fn)(struct soda_conn *conn));

/*
 * The buffer has `limit` chunks: fit the slots for fetching ahead to it.  Credits
 * of slots are taken from the buffer here.
 */
void soda_channels_resize(int64_t limit);

/*
 * Fetch a chunk that the caller has made FETCHING, with a credit.  Returns when it
 * is resident.  block: the store that faulted, -1 for a load.  0; -ENOTCONN and
 * other errors of the connection (reported); -ETIMEDOUT; -EIO: the object is lost; the server's
 * refusal. AS.
 */
int soda_fetch_demand(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		      uint64_t deadline_ns);

/*
 * Post the same without waiting (handler mode); -EAGAIN: no slot free.  The chunk
 * settles when soda_fetch_collect finds the answer. AS.
 */
int soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block);
/* Collect what has arrived on the channel, waiting at most timeout_ns. */
int soda_fetch_collect(struct soda_thread *t, uint32_t channel, int64_t timeout_ns,
		       int64_t spin_ns);
/* The descriptor of a channel, -1 while it is down. */
int soda_fetch_fd(uint32_t channel);
unsigned soda_fetch_outstanding(uint32_t channel);
/*
 * Handler mode: the answer for a FETCHING chunk is overdue, so that its connection counts as
 * failed, with all that is under way on it.  Nothing, where the channel is in use just now. AS.
 */
void soda_fetch_abandon(uint32_t id);

/* Post a plan of chunks ahead of their faults; returns how many of it were dealt with. Never waits.
 * AS. */
uint32_t soda_fetch_ahead(struct soda_thread *t, struct soda_region *r,
			  const struct soda_plan *plan);

/*
 * Several plans with one doorbell: begin with zeros, add, end.  The doorbell rings earlier
 * where much is waiting for it.  Between the first add and the end nothing else of this file
 * may be called.  add is as soda_fetch_ahead. AS.
 */
struct soda_fetch_batch {
	struct soda_fetch_channel *ch; /* locked; NULL: none */
	uint32_t rung;		       /* its tail then */
};
uint32_t soda_fetch_batch_add(struct soda_fetch_batch *b, struct soda_thread *t,
			      struct soda_region *r, const struct soda_plan *plan);
void soda_fetch_batch_end(struct soda_fetch_batch *b);

/*
 * Wait until a FETCHING chunk has settled, collecting it if nobody else does.
 * 0 or -ETIMEDOUT. AS.
 */
int soda_fetch_join(struct soda_thread *t, uint32_t id, uint64_t deadline_ns);

/* Collect, without waiting, what this thread has fetched ahead. AS. */
void soda_fetch_collect_own(struct soda_thread *t);

/* Collect, without waiting, what was fetched ahead and nobody came for. AS. */
void soda_fetch_collect_idle(struct soda_thread *t);

/*
 * The keeper's: the same on channels where nobody has collected since its last call. Threads
 * collect their own when they come by, with the data in their cache. True: more is to come. AS.
 */
bool soda_fetch_collect_left(struct soda_thread *t);

#endif
