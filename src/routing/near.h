/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets between two agents of one machine: they lie in memory of the agent that sends, a ring for
 * each rank of the other one, in the order of ranks, and the other one, which has that mapped and
 * cannot write it, takes them there.  How far each ring is filled, and taken, the agents tell each
 * other by calls (OFFER).  Knows no job.
 */
#ifndef SODA_ROUTING_NEAR_H
#define SODA_ROUTING_NEAR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "transport/api/transport.h"
#include "wire/messages.h"

/*
 * Map all of a file that somebody else has made: it has so many bytes, and can have no fewer. NULL:
 * it is another one, or cannot be mapped.  The caller unmaps it; fd stays the caller's.
 */
void *soda_msg_map_sealed(int fd, uint64_t bytes, int protection);

/* Of the agent that sends. Zeroed: none. */
struct soda_msg_near_out {
	uint8_t *rings; /* `bytes`, which are all there */
	uint64_t bytes;
	int fd;
	bool used; /* the other agent has them: packets are offered, not sent */
};

/* 0; -ENOMEM; -ENOTSUP: the kernel cannot seal memory. `each`: bytes of a ring, a power of two. */
int soda_msg_near_make(uint32_t ranks, uint64_t each, struct soda_msg_near_out *out_p,
		       struct soda_why *why);
void soda_msg_near_destroy(struct soda_msg_near_out *out);

/* Of the agent that takes. */
struct soda_msg_near_in {
	const uint8_t *rings; /* set before use, then constant, and so the next three */
	uint64_t each;
	uint32_t ranks;
	uint8_t *whole;		  /* room for a packet that lies around the end of its ring */
	_Atomic uint64_t taken[]; /* bytes of each ring; one thread at a time writes them */
};

/* fd stays the caller's. 0; -EPROTO: it is no such memory; -ENOMEM. */
int soda_msg_near_map(int fd, uint32_t ranks, uint64_t each, struct soda_msg_near_in **in_p);
void soda_msg_near_unmap(struct soda_msg_near_in *in); /* NULL: nothing */
/*
 * The oldest packet of a ring that is filled up to `tail`: 1, with its head, and its runs, which
 * may change while they are read; 0: there is none; -EPROTO: what the other agent says makes no
 * sense.
 */
int soda_msg_near_peek(struct soda_msg_near_in *in, uint32_t ring, uint64_t tail,
		       struct soda_wire_msg_packet *p, const uint8_t **runs_p);
/* It has been taken. */
void soda_msg_near_take(struct soda_msg_near_in *in, uint32_t ring,
			const struct soda_wire_msg_packet *p);

#endif
