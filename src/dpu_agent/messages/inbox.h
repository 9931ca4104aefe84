/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that wait in the agent for one rank: a ring of bytes, taken when the job is made, so that
 * nothing is allocated on the way.  Knows no job and no session.
 */
#ifndef SODA_DPU_AGENT_INBOX_H
#define SODA_DPU_AGENT_INBOX_H

#include <pthread.h>
#include <stdbool.h>

#include "wire/messages.h"

struct soda_inbox {
	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t news;  /* something for who pulls: packets, an end, what its owner knows */
	uint8_t *ring;	      /* set before use, then constant, and so the size: a power of two */
	uint64_t size;
	uint64_t head, tail; /* bytes taken, put: head <= tail <= head + size; guarded by lock, and
				so below */
	uint64_t end_at;     /* `ending`: the phase ends after this byte */
	bool ending;
	bool wanted; /* a packet was refused since somebody last made room */
};

/* The ring is the caller's, zeroed or not, of size bytes, a power of two. */
void soda_inbox_init(struct soda_inbox *in, uint8_t *ring, uint64_t size);
void soda_inbox_destroy(struct soda_inbox *in);
/*
 * Put a packet, with its sender's rank for its head's.  False: there is no room, and
 * soda_inbox_take() will say that there is again.
 */
bool soda_inbox_put(struct soda_inbox *in, uint32_t from, const struct soda_wire_msg_packet *p,
		    const uint8_t *runs);
/* The phase ends behind what is in it. One end at a time. */
void soda_inbox_end(struct soda_inbox *in);
/* Whether there is a packet to take, or an end. The lock is held. */
bool soda_inbox_has_locked(const struct soda_inbox *in);
/*
 * Take whole packets, of the phase under way alone, of at most room bytes.  Returns how many bytes.
 * *ended_p: the phase has ended with them.  *made_room_p: somebody waits for the room.
 */
uint32_t soda_inbox_take(struct soda_inbox *in, uint8_t *out, uint32_t room, bool *ended_p,
			 bool *made_room_p);
/* Wake who waits for news. */
void soda_inbox_wake(struct soda_inbox *in);

#endif
