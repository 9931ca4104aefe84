/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent's side of the rings of one rank (wire/msg_rings.h): their memory, what the program has
 * put into its lanes, checked, and wake-ups.  Knows no job.
 */
#ifndef SODA_ROUTING_RINGS_H
#define SODA_ROUTING_RINGS_H

#include <stdbool.h>

#include "transport/api/transport.h"
#include "wire/msg_rings.h"

struct soda_msg_rings {
	/* set when they are made, then constant */
	uint32_t ranks;
	struct soda_wire_msg_rings sizes;
	int out_fd, in_fd;
	struct soda_rings_out *out; /* any word may change at any time */
	struct soda_rings_in *in;
	uint8_t *inbox;
	_Atomic uint32_t *tails, *bytes, *heads_shown; /* of out, and of in */
	uint8_t *slots;
	/* the thread's that serves them */
	uint32_t *heads;
	uint32_t first; /* lane whose turn is the first one */

	bool serving;	      /* guarded by the job's lock */
	_Atomic bool blocked; /* who serves them waits for room in an inbox */
};

/*
 * Memory that is all there, mapped here, and can neither grow nor shrink.  read_only: nobody else
 * can write it.  0, and both are the caller's; -ENOMEM; -ENOTSUP: the kernel cannot seal it.
 */
int soda_msg_rings_memory(uint64_t bytes, bool read_only, int *fd_p, void **memory_p,
			  struct soda_why *why);

/* 0, with memory that is all there; -ENOMEM, -ENOTSUP: the kernel cannot seal it. */
int soda_msg_rings_make(uint32_t ranks, uint32_t inbox_bytes, struct soda_msg_rings **rings_p,
			struct soda_why *why);
void soda_msg_rings_destroy(struct soda_msg_rings *r); /* NULL: nothing */

/* Whether a lane has, or seems to have, a packet. What follows is read after that. */
bool soda_msg_rings_any(const struct soda_msg_rings *r);
/*
 * The oldest packet of the lane: 1, with its head, which is consistent with its slot, and its runs,
 * which may change while they are read; 0: there is none; -EPROTO: what the program has written
 * makes no sense.
 */
int soda_msg_rings_peek(const struct soda_msg_rings *r, uint32_t lane,
			struct soda_wire_msg_packet *p, const uint8_t **runs_p);
/* It has been taken. */
void soda_msg_rings_take(struct soda_msg_rings *r, uint32_t lane);

/* Wake the thread that serves the rings. */
void soda_msg_rings_bell(struct soda_msg_rings *r);
/* Wake the program, where it sleeps. After what it is to see. */
void soda_msg_rings_tell(struct soda_msg_rings *r);

#endif
