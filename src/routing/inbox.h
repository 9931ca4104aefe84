/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that wait in the agent for one rank: a ring of bytes, taken when the job is made, so that
 * nothing is allocated on the way.  A rank asks for them by calls, or has the ring mapped
 * (rings.h), and reads it where it is.  Knows no job and no session.
 */
#ifndef SODA_ROUTING_INBOX_H
#define SODA_ROUTING_INBOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "routing/rings.h"
#include "wire/messages.h"

struct soda_inbox {
	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t news;  /* something for who pulls: packets, an end, what its owner knows */
	uint8_t *ring;	      /* set before use, then constant, and so the size: a power of two */
	uint64_t size;
	/*
	 * Bytes since the start that have arrived where they go, that have been shown, and that
	 * were put: head <= shown <= tail <= head + size; guarded by lock, and so below
	 */
	uint64_t head, shown, tail;
	/* Phases that end here, and those whose end is known to have arrived: 0 to 2 fewer. */
	uint32_t ends, ends_known;
	uint64_t end_at[2]; /* of phase p, at p % 2: it ends after this byte */
	bool wanted;	    /* a packet was refused since somebody last made room */
	_Atomic(struct soda_msg_rings *) rings; /* NULL: none; set once, before it is used */
};

/* The ring is the caller's, zeroed or not, of size bytes, a power of two. */
void soda_inbox_init(struct soda_inbox *in, uint8_t *ring, uint64_t size);
void soda_inbox_destroy(struct soda_inbox *in);
/*
 * Put a packet, with its sender's rank for its head's.  False: there is no room, and *made_room_p
 * of the functions below will say that there is again.
 */
bool soda_inbox_put(struct soda_inbox *in, uint32_t from, const struct soda_wire_msg_packet *p,
		    const uint8_t *runs);
/* The phase ends behind what is in it. At most two ends that are not known to have arrived. */
void soda_inbox_end(struct soda_inbox *in);

/*
 * For a rank, which says how much has arrived: bytes, and ends of phases.  What it was shown is
 * kept until then.  A view, zeroed at first, is one connection's, on which nothing is shown twice;
 * what has not arrived by it is shown by another one.
 */
struct soda_inbox_view {
	bool begun;
	uint64_t at;   /* bytes since the start, up to which packets were shown */
	uint32_t ends; /* of phases, that were shown */
};

/* -EPROTO: that is not an end of a packet that was shown, or no such phase has ended. */
int soda_inbox_arrived(struct soda_inbox *in, struct soda_inbox_view *view, uint64_t at,
		       uint32_t ends, bool *made_room_p);
/*
 * Whether the view need not wait: there is a packet to show, or an end; or the rank is to say how
 * much has arrived, because it was shown an end, or somebody waits for room. The lock is held.
 */
bool soda_inbox_has_locked(const struct soda_inbox *in, const struct soda_inbox_view *view);
/*
 * Show whole packets behind those that were shown, of the phase under way alone, of at most room
 * bytes; none behind an end that has not arrived.  Returns how many bytes.  *ended_p: the phase has
 * ended with them.
 */
uint32_t soda_inbox_show(struct soda_inbox *in, struct soda_inbox_view *view, uint8_t *out,
			 uint32_t room, bool *ended_p);

/*
 * For a rank that has the ring mapped, in place of the three above.  The ring becomes that of
 * rings, which stay the caller's.  False: something has been put already.
 */
bool soda_inbox_share(struct soda_inbox *in, struct soda_msg_rings *rings);
/*
 * Hear from the rings how much has arrived; *ends_p: phases whose end the rank has been told.
 * -EPROTO: that cannot be.
 */
int soda_inbox_hear(struct soda_inbox *in, uint32_t *ends_p, bool *made_room_p);

/* For a link to another agent, which drops what has been taken there. Ends are nothing to it. */

/*
 * Copy whole packets from the one on that begins at `from`, in bytes since the start: at most so
 * many, of at most room bytes. *behind_p: how many bytes there are behind them.
 */
uint32_t soda_inbox_look(struct soda_inbox *in, uint64_t from, uint8_t *out, uint32_t room,
			 uint32_t packets, uint64_t *behind_p);
/*
 * In place of looking: the ring is one that the other agent has mapped, from now on, of the same
 * size, and stays the caller's.  False: something has been put already.
 */
bool soda_inbox_move(struct soda_inbox *in, uint8_t *ring);
/* Where what waits begins and ends, in bytes since the start. */
void soda_inbox_span(struct soda_inbox *in, uint64_t *head_p, uint64_t *tail_p);
/* The oldest packets, of so many bytes together, have arrived: where the oldest one is now. */
uint64_t soda_inbox_drop(struct soda_inbox *in, uint64_t bytes, bool *made_room_p);

/* Wake who waits for news. */
void soda_inbox_wake(struct soda_inbox *in);

#endif
