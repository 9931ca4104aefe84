/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fetching chunks.  A channel is one data connection with staging slots; a thread holds its lock
 * while it posts requests or collects answers.  A thread uses the channel of its number, so that
 * two threads share one only where there are more threads than channels.  READs ahead of a fault
 * have channels of their own, so that a demand never queues behind them.
 *
 * No thread hands an answer to another one: the thread that needs an answer collects it, and with
 * it the answers before it on the same channel.  The keeper collects the answers that no thread
 * needs.
 *
 * A chunk that is FETCHING has a credit of the buffer.  The thread that collects the answer
 * installs and settles the chunk; on an error the chunk goes back to REMOTE and the credit is
 * returned.
 *
 * Where the server's memory is mapped (shm), pages are installed straight from there.  Mappings,
 * and keys to an agent's static cache, change under the channels' locks only.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_FETCH_H
#define SODA_HOST_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/* Make `pairs` pairs of channels (demand, ahead) to that server, without connections yet. */
int soda_channels_start(const struct soda_link *link, uint32_t pairs);
void soda_channels_stop(const struct soda_link *link);
/* How many pairs of channels each server has. */
uint32_t soda_channels_pairs(void);

/* Give channel i (0 .. 2 * pairs) to that server a connection, owned from now on. */
void soda_channels_connect(const struct soda_link *link, uint32_t i, struct soda_conn *conn);
/* Break all channels to that server: the requests under way fail, connections are closed. */
void soda_channels_disconnect(const struct soda_link *link);
/* Make threads return that wait for an answer of that server; any thread. */
void soda_channels_abort(const struct soda_link *link);
/*
 * Call fn with the thread's demand connection to that server, if no other thread uses that: -EBUSY,
 * -ENOTCONN, or what fn returns; a negative result of fn says that the connection has failed. AS.
 */
int soda_channels_lend(struct soda_thread *t, const struct soda_link *link,
		       int (*fn)(struct soda_conn *conn, void *arg), void *arg);
/* Run fn while no fetch from that server can use a mapping or a key. */
void soda_channels_exclusive(const struct soda_link *link, void (*fn)(void *arg), void *arg);
/* soda_conn_reach_keyed of each connection; the keeper alone calls this. The first error, or 0. */
int soda_channels_reach_keyed(const struct soda_link *link, int timeout_ms, struct soda_why *why);

/* In a fork's child: call fn for each connection, without locks. */
void soda_channels_forget(void (*fn)(struct soda_conn *conn));

/*
 * The buffer has `limit` chunks: fit the number of slots for fetching ahead to that.  Takes the
 * slots' credits from the buffer, or gives them back.
 */
void soda_channels_resize(int64_t limit);
/*
 * How many chunks of a buffer of so many staging slots may have: an eighth to fetch ahead, and one
 * for the handler's demands. AS.
 */
int64_t soda_channels_staging(int64_t limit);

/*
 * Fetch a chunk that the caller has made FETCHING, with a credit.  Returns when the chunk is
 * resident.  block: of the store that faulted, -1 for a load.  0; -ENOTCONN and
 * other errors of the connection (reported); -ETIMEDOUT; -EIO: the object is lost; the server's
 * refusal. AS.
 */
int soda_fetch_demand(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		      uint64_t deadline_ns);

/*
 * A thread has waited SODA_HEDGE_MS or longer, since then, for a chunk of a slab with copies that
 * is FETCHING: where the READ was posted ahead, fetch the chunk from another copy's server.  0,
 * also where nothing was done; or as soda_fetch_demand. AS.
 */
int soda_fetch_rescue(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		      uint64_t since_ns, uint64_t deadline_ns);

/*
 * No server has what was sealed last of a FETCHING chunk: it is LOST, with a line that says so, and
 * its credit is given back.  peer: where it was, for the line.
 */
void soda_fetch_damaged(struct soda_region *r, uint32_t id, const char *peer);

/*
 * Read a chunk that the caller has made FETCHING into `to`, and leave it so: for a rebuild
 * (pool/rebuild.c), of a slab with copies; with erasure codes there is room for all its pieces.  0,
 * or an error as of soda_fetch_demand.
 */
int soda_fetch_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *to,
		    uint64_t deadline_ns);

/*
 * Handler mode: post the READ of such a chunk without waiting for the answer; soda_fetch_collect
 * settles the chunk.  0: posted, which says nothing of the chunk: the connection may have failed
 * since; 1: it was filled at once, out of mapped memory; -EAGAIN: no slot free; and the other
 * errors of soda_fetch_demand. AS.
 */
int soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block);
/*
 * Collect the answers that have arrived on the channel, waiting at most timeout_ns for the first,
 * of which spin_ns busy.  How many; 0 also where another thread has the channel; a connection's
 * error.
 */
int soda_fetch_collect(struct soda_thread *t, uint32_t channel, int64_t timeout_ns,
		       int64_t spin_ns);
/* The descriptor of a channel, -1 while it is down. */
int soda_fetch_fd(uint32_t channel);
unsigned soda_fetch_outstanding(uint32_t channel);
/*
 * Handler mode: the error with which a server has refused a READ of the chunk since then, or 0.
 * Who posts a READ and goes on does not collect the answer itself.  AS.
 */
int soda_fetch_refused(uint32_t id, uint64_t since_ns);
/*
 * Handler mode: the answer for a FETCHING chunk is overdue, so its connection counts as failed,
 * with all requests under way on it.  Does nothing while another thread uses the channel. AS.
 */
void soda_fetch_abandon(uint32_t id);

/*
 * Post READs of the plan's chunks ahead of their faults.  Returns how many chunks of the plan,
 * from its first on, need no other call: posted, or not REMOTE.  Never waits. AS.
 */
uint32_t soda_fetch_ahead(struct soda_thread *t, struct soda_region *r,
			  const struct soda_plan *plan);

/*
 * Several plans with one doorbell: start with a zeroed batch, add plans, end.  add is as
 * soda_fetch_ahead, and rings the doorbell itself once many requests wait for it.  Between the
 * first add and the end the thread may call nothing else of this file. AS.
 */
struct soda_fetch_batch {
	struct soda_fetch_channel *ch; /* locked; NULL: none */
	uint32_t rung;		       /* ch->tail when the doorbell rang last */
};
uint32_t soda_fetch_batch_add(struct soda_fetch_batch *b, struct soda_thread *t,
			      struct soda_region *r, const struct soda_plan *plan);
void soda_fetch_batch_end(struct soda_fetch_batch *b);

/*
 * Wait until a FETCHING chunk has settled, and collect its answer where no other thread does.
 * 0 or -ETIMEDOUT. AS.
 */
int soda_fetch_join(struct soda_thread *t, uint32_t id, uint64_t deadline_ns);

/* Collect, without waiting, the answers to this thread's READs ahead. AS. */
void soda_fetch_collect_own(struct soda_thread *t);

/* Collect, without waiting, the answers to all threads' READs ahead. AS. */
void soda_fetch_collect_idle(struct soda_thread *t);

/*
 * The keeper of that link alone calls this: as soda_fetch_collect_idle, on its channels from which
 * no thread has collected since the last call.  (A thread that collects its own answers has the
 * data in its cache.)  True: answers are still outstanding. AS.
 */
bool soda_fetch_collect_left(struct soda_thread *t, const struct soda_link *link);

#endif
