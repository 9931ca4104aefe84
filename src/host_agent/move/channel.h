/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A channel: one data connection, its staging slots, its requests under way.  For
 * channel.c (their life), fetch.c (demands and answers) and ahead.c; what others
 * may ask is in fetch.h.
 *
 * Demand channels are 0 .. pairs - 1, the channel for fetching ahead of pair p is
 * SODA_CHANNEL_PAIRS_MAX + p.
 */
#ifndef SODA_HOST_CHANNEL_H
#define SODA_HOST_CHANNEL_H

#include "base/limits.h"
#include "base/lock.h"
#include "host_agent/move/fetch.h"
#include "host_agent/pages/install.h"

/* Answers that are collected at once: they are described on a signal's stack. */
enum { SODA_COLLECT_MAX = 64 };

struct soda_fetch_request {
	struct soda_install in;
	uint32_t bytes;
	bool placed; /* the peer may install it */
};

struct soda_fetch_channel {
	struct soda_lock lock;
	/* guarded by lock */
	struct soda_conn *conn; /* NULL while down */
	bool broken;		/* failed, not yet replaced */
	char *slots;		/* SODA_SLOTS_MAX of them, in a reserved range */
	struct soda_fetch_request req[SODA_SLOTS_MAX];
	/* the same, but anybody may look: whether there is something to collect */
	_Atomic uint32_t slots_n;    /* slots in use: each has a credit of the buffer */
	_Atomic uint32_t head, tail; /* requests outstanding: slot = number % slots_n */
	uint32_t seen;		     /* the keeper's alone: head when it last looked */
} __attribute__((aligned(64)));

extern struct soda_fetch_channel soda_channels[2 * SODA_CHANNEL_PAIRS_MAX];

static inline uint32_t soda_channel_demand(const struct soda_thread *t)
{
	return t->index % soda_channels_pairs();
}

static inline uint32_t soda_channel_ahead(const struct soda_thread *t)
{
	return SODA_CHANNEL_PAIRS_MAX + soda_channel_demand(t);
}

static inline bool soda_channel_for_ahead(const struct soda_fetch_channel *ch)
{
	return ch >= &soda_channels[SODA_CHANNEL_PAIRS_MAX];
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
 * Whether the region is another one than the object's, or none: what it has may not be mixed with
 * what is here.  The lock: that is found out before any channel has a new connection, and a fault
 * may have begun before.
 */
static inline bool soda_channel_refuses(const struct soda_region *r)
{
	return atomic_load_explicit(&r->lost, memory_order_relaxed);
}

/*
 * What is under way on the channel will not come.  While the peer is just installing a
 * chunk (-EAGAIN), all of it stays under way; to be tried again.
 */
int soda_channel_fail(struct soda_fetch_channel *ch);
/* The connection failed: so does all that is under way, and the keeper is told. */
void soda_channel_break(struct soda_fetch_channel *ch, int err);

/*
 * Queue a READ into the next slot. 0; -ENOTCONN; -EIO: the object is lost; -EAGAIN: no slot; the
 * connection's error.
 */
int soda_channel_post(struct soda_thread *t, struct soda_fetch_channel *ch, struct soda_region *r,
		      struct soda_install in);

/*
 * Collect and install up to max answers, waiting at most timeout_ns for the first, of
 * which spin_ns busy.  How many; 0; an error of the connection, which is then broken.
 * *install_err_p: the last error of installing, or untouched.
 */
int soda_channel_collect(struct soda_thread *t, struct soda_fetch_channel *ch, int max,
			 int64_t timeout_ns, int64_t spin_ns, int *install_err_p);

/*
 * Where the server's memory is mapped here: install without request or staging.  1: it
 * is not mapped; 0; -ENOTCONN, -EIO as above and errors of installing, with the chunks given back.
 */
int soda_channel_install_direct(struct soda_thread *t, struct soda_fetch_channel *ch,
				struct soda_region *r, const struct soda_install *in, uint32_t n);

#endif
