/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of a producer whose memory the agent reads: one sealed memfd of the agent's, which comes
 * with the answer to START and is mapped by both, with nobody else's data in it.  Lists of pieces
 * go through it, and notices come back, without a call and, while both sides are awake, without a
 * system call.
 *
 *   0      4096
 *   | head | list 0 | list 1 | ... | list 63 |
 *
 * Indices run freely; the entry is index mod size.  A list is the body of a POST, of at most
 * SODA_MOVE_RING_PIECES; longer ones are POSTed.  The library writes it, then stores `posted`; the
 * agent copies it once before it looks at it.  There is no consumer's index: a ticket that has
 * ended was taken, and no more than 64 have not ended.  So it is with notices: each is of one of at
 * most 64 tickets; `taken` only says whether a call that awaits one has to wait.
 *
 * Sleeping.  The agent stores `attended` while it will look at `posted` by itself.  To stop: store
 * 0, look once more.  After storing `posted`: if `attended` is 0, make a call, any call: the agent
 * looks then.  The library counts `sleepers`, looks at `told`, and sleeps on that as a futex; after
 * storing `told`: if there are sleepers, wake them.  These accesses are sequentially consistent:
 * either the sleeper sees the entry, or the other side the sleeper.
 *
 * Two processors.  A thread that waits by looking, and a getter, must not share one: who wakes a
 * thread mostly gets it beside itself, and then each takes the other's time.  So the thread says
 * where it waits, and a getter that finds itself there goes elsewhere.
 *
 * Neither side trusts the other's words: each is copied once and checked.
 */
#ifndef SODA_WIRE_MOVE_RING_H
#define SODA_WIRE_MOVE_RING_H

#include <stdatomic.h>
#include <stdint.h>

#include "wire/movement.h"

enum {
	SODA_MOVE_RING_SIZE = SODA_MOVE_CREDITS, /* lists, and notices */
	SODA_MOVE_RING_LIST_BYTES = 2048,
	SODA_MOVE_RING_PIECES = (SODA_MOVE_RING_LIST_BYTES - (int)SODA_WIRE_MOVE_POST_BYTES) /
				(int)SODA_WIRE_PIECE_BYTES,
	SODA_MOVE_RING_LISTS_AT = 4096,
	SODA_MOVE_RING_BYTES =
		SODA_MOVE_RING_LISTS_AT + SODA_MOVE_RING_SIZE * SODA_MOVE_RING_LIST_BYTES,
};

struct soda_move_ring {
	/* the library's */
	_Alignas(64) _Atomic uint32_t posted; /* lists */
	_Atomic uint32_t taken;		      /* notices */
	_Atomic uint32_t sleepers;	      /* threads that sleep on `told`, or are about to */
	_Atomic uint32_t waiter_cpu;	      /* 1 + where a thread began to wait; 0: none waits */
	/* the agent's */
	_Alignas(64) _Atomic uint32_t told; /* notices; a futex */
	_Atomic uint32_t attended;
	_Alignas(64) uint8_t notices[SODA_MOVE_RING_SIZE][SODA_WIRE_NOTICE_BYTES];
};
_Static_assert(sizeof(struct soda_move_ring) <= SODA_MOVE_RING_LISTS_AT, "the head is a page");

static inline uint8_t *soda_move_ring_list(struct soda_move_ring *ring, uint32_t index)
{
	return (uint8_t *)ring + SODA_MOVE_RING_LISTS_AT +
	       (size_t)(index % SODA_MOVE_RING_SIZE) * SODA_MOVE_RING_LIST_BYTES;
}

static inline uint8_t *soda_move_ring_notice(struct soda_move_ring *ring, uint32_t index)
{
	return ring->notices[index % SODA_MOVE_RING_SIZE];
}

#endif
