/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A channel: one data connection, its staging slots, its requests under way.  Only channel.c (life
 * of the channels), fetch.c (demands and answers), ahead.c, stuck.c and audit.c include this; what
 * other modules may call is in fetch.h.
 *
 * Each member of a pool has SODA_CHANNELS_OF_MEMBER places in soda_channels: its demand channels
 * are the first .. pairs - 1, the channel for fetching ahead of pair p is SODA_CHANNEL_PAIRS_MAX +
 * p.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_CHANNEL_H
#define SODA_HOST_CHANNEL_H

#include "base/limits.h"
#include "base/lock.h"
#include "host_agent/move/fetch.h"
#include "host_agent/pages/install.h"

/* Answers collected in one call. */
enum { SODA_COLLECT_MAX = 64, SODA_CHANNELS_OF_MEMBER = 2 * SODA_CHANNEL_PAIRS_MAX };

/* A READ whose data are not installed: where they go, and 0, or 1, or a negative errno. */
struct soda_fetch_copying {
	void *to;
	int state;
};

struct soda_fetch_request {
	struct soda_install in;
	struct soda_fetch_copying *copying; /* or NULL: the data are installed */
	uint32_t bytes;
	bool placed;	       /* the peer may install it */
	bool withdrawn;	       /* it was late, and the chunk is asked for elsewhere: its answer is
				  ignored, and its slot is taken until then */
	uint64_t withdrawn_ns; /* when, if it was */
};

/* One call's working memory; not on the stack, which may be a signal handler's small one. */
struct soda_channel_room {
	struct soda_done done[SODA_COLLECT_MAX];
	struct soda_install in[SODA_COLLECT_MAX];     /* answers that are installed together */
	struct soda_install direct[SODA_COLLECT_MAX]; /* chunks that need no request */
	bool collects;				      /* soda_channel_collect() is running */
};

struct soda_fetch_channel {
	struct soda_lock lock;
	/* guarded by lock */
	struct soda_conn *conn; /* NULL while down */
	bool broken;		/* failed, not yet replaced */
	char *slots;		/* SODA_SLOTS_MAX of them, in a reserved range */
	struct soda_channel_room *room;
	struct soda_fetch_request req[SODA_SLOTS_MAX];
	/*
	 * changed with lock held; any thread may read them to see whether there is an answer to
	 * collect
	 */
	_Atomic uint32_t slots_n;    /* slots in use: each has a credit of the buffer */
	_Atomic uint32_t head, tail; /* requests outstanding: slot = number % slots_n */
	/* the keeper's alone: head when it last looked, and since when it has been that, with
	   requests outstanding; 0: there were none */
	uint32_t seen;
	uint64_t seen_ns;
} __attribute__((aligned(64)));

_Static_assert((SODA_CHANNEL_PAIRS_MAX & (SODA_CHANNEL_PAIRS_MAX - 1)) == 0,
	       "a bit of the index tells the two kinds apart");

extern struct soda_fetch_channel soda_channels[SODA_MEMBERS_MAX * SODA_CHANNELS_OF_MEMBER];

/* The thread's channel to that server. */
static inline uint32_t soda_channel_demand(const struct soda_thread *t,
					   const struct soda_link *link)
{
	return link->index * SODA_CHANNELS_OF_MEMBER + t->index % soda_channels_pairs();
}

static inline uint32_t soda_channel_ahead(const struct soda_thread *t, const struct soda_link *link)
{
	return SODA_CHANNEL_PAIRS_MAX + soda_channel_demand(t, link);
}

static inline bool soda_channel_for_ahead(const struct soda_fetch_channel *ch)
{
	return (ch - soda_channels) & SODA_CHANNEL_PAIRS_MAX;
}

/* To which server it leads. */
static inline struct soda_link *soda_channel_link(const struct soda_fetch_channel *ch)
{
	return &soda_agent.links[(uint64_t)(ch - soda_channels) / SODA_CHANNELS_OF_MEMBER];
}

static inline uint32_t soda_channel_outstanding(const struct soda_fetch_channel *ch)
{
	return ch->tail - ch->head;
}

static inline bool soda_channel_usable(const struct soda_fetch_channel *ch)
{
	return ch->conn && !ch->broken;
}

/* The functions below want the channel's lock held. AS. */

/*
 * Whether no chunk of the object may be fetched: what the server has under the region's id may be
 * other content than the object's (region.h, `lost`).  To be asked with the channel's lock: the
 * keeper sets `lost` before any channel gets a new connection, and a fault may have begun before
 * that.
 */
static inline bool soda_channel_refuses(const struct soda_region *r)
{
	return atomic_load_explicit(&r->lost, memory_order_relaxed);
}

/*
 * No answer to a request under way will come: cancel all of them.  0; -EAGAIN: the peer is
 * installing one of the chunks now, and all requests stay under way; call again.
 */
int soda_channel_fail(struct soda_fetch_channel *ch);
/* The answer of a withdrawn request has come, or none will. */
void soda_channel_forget_late(struct soda_fetch_channel *ch);
/*
 * The connection counts as lost if the answer of a withdrawn request has not come for
 * SODA_COPIES_LATE_MS: true. The lock is held.
 */
bool soda_channel_end_late(struct soda_fetch_channel *ch);
/* The connection failed with err: cancel the requests under way, tell the keeper. */
void soda_channel_break(struct soda_fetch_channel *ch, int err);

/*
 * Queue a READ into the next slot. 0; -ENOTCONN; -EIO: the object is lost; -EAGAIN: no slot; the
 * connection's error.
 */
int soda_channel_post(struct soda_thread *t, struct soda_fetch_channel *ch, struct soda_region *r,
		      struct soda_install in);

/*
 * Collect and install up to max answers, waiting at most timeout_ns for the first, of which spin_ns
 * busy.  How many; 0; an error of the connection, and the channel is broken.
 * *install_err_p: the last error of installing, else untouched.
 */
int soda_channel_collect(struct soda_thread *t, struct soda_fetch_channel *ch, int max,
			 int64_t timeout_ns, int64_t spin_ns, int *install_err_p);

/*
 * Install n chunks straight from the server's memory, where that is mapped here, without a request.
 * 0; 1: not mapped, nothing done; -ENOTCONN; -EIO: the object is lost; an error of installing.
 * After an error the chunks are no longer FETCHING and their credits are back.
 */
int soda_channel_install_direct(struct soda_thread *t, struct soda_fetch_channel *ch,
				struct soda_region *r, const struct soda_install *in, uint32_t n);

#endif
