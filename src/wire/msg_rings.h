/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rings of a rank: memory that the program of a rank and the DPU agent beside it have both
 * mapped, two memfds that the agent makes and seals against another size.
 *
 *   out   | soda_rings_out | tails, sizes of packets | slots of lane 0 | of lane 1 | ...
 *   in    | soda_rings_in  | heads of lanes          | the ring of the rank's inbox
 *
 * Each word but doorbell and news has one writer.  The program writes `out`; it cannot write `in`,
 * which is sealed against that (F_SEAL_FUTURE_WRITE), and so the agent finds there what it put
 * there.  What a program has written the agent reads once, and takes for a request: it keeps every
 * index of its own in its own memory, and compares each value with those before it is used.
 *
 * A lane, the packets for one rank: slots [head, tail), at most SODA_RING_SLOTS, slot i at
 * i % SODA_RING_SLOTS, each a packet (messages.h) of sizes[] bytes.  The program fills a slot,
 * writes its size, then the tail; the agent reads the tail, the size, the packet, then writes the
 * head, and the slot is the program's again.
 *
 * The inbox, packets for this rank from anybody: bytes [pulled, tail), at most as many as the ring
 * has.  The agent writes bytes, then the tail; the program reads the tail, and only then whether a
 * phase has ended, and where; and says in `pulled` what it has no use for any more.
 *
 * Sleeping.  Who is about to sleep says so (idle; sleeping), then looks once more; who has
 * something for the other one writes it, then looks whether that sleeps.  All of these accesses, to
 * tails, heads, pulled, ends, idle, sleeping and wanted, are sequentially consistent, so that one
 * of the two sees the other.  doorbell and news are futexes: the waker adds to one first, so
 * that a sleeper that has not fallen asleep yet does not.
 *
 * docs/internals/messages.md has what follows from this.
 */
#ifndef SODA_WIRE_MSG_RINGS_H
#define SODA_WIRE_MSG_RINGS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/limits.h"
#include "wire/messages.h"

#define SODA_RING_SLOTS 4u /* of a lane; a power of two, because indices wrap */

enum { SODA_RINGS_LINE = 64, SODA_RINGS_PAGE = 4096 };

/* The program's. */
struct soda_rings_out {
	_Atomic uint32_t doorbell; /* the agent sleeps on it; both add to it */
	_Alignas(SODA_RINGS_LINE) _Atomic uint64_t pulled; /* bytes of the inbox */
	_Atomic uint32_t ended; /* phases whose end the program has been told */
	_Alignas(SODA_RINGS_LINE) _Atomic uint32_t sleeping; /* threads that want news */
	_Atomic uint32_t news;				     /* they sleep on it; both add to it */
};

/* The agent's. */
struct soda_rings_in {
	_Atomic uint64_t tail;				 /* bytes that were put into the inbox */
	_Atomic uint32_t ends;				 /* phases that have ended, */
	_Atomic uint64_t end_at[2];			 /* phase p, at p % 2, behind this byte */
	_Alignas(SODA_RINGS_LINE) _Atomic uint32_t idle; /* the agent sleeps */
	_Atomic uint32_t wanted;			 /* a packet waits for room in the inbox */
};

static inline uint64_t soda_rings_whole(uint64_t bytes)
{
	return (bytes + SODA_RINGS_PAGE - 1) / SODA_RINGS_PAGE * SODA_RINGS_PAGE;
}

/* Bytes of a slot in a job of so many ranks. */
static inline uint32_t soda_rings_slot_bytes(uint32_t ranks)
{
	uint32_t each = SODA_MSG_SLOTS_BYTES / SODA_RING_SLOTS / ranks & ~4095u;

	return each > SODA_MSG_PACKET_MAX   ? SODA_MSG_PACKET_MAX
	       : each < SODA_MSG_SLOT_LEAST ? SODA_MSG_SLOT_LEAST
					    : each;
}

/* Where the tails are, of uint32_t, a rank's each, and behind them the sizes. */
static inline uint64_t soda_rings_tails_at(void)
{
	return SODA_RINGS_PAGE;
}

static inline uint64_t soda_rings_slots_at(uint32_t ranks)
{
	return soda_rings_whole(soda_rings_tails_at() +
				(uint64_t)ranks * (1 + SODA_RING_SLOTS) * sizeof(uint32_t));
}

static inline uint64_t soda_rings_out_bytes(uint32_t ranks, uint32_t slot_bytes)
{
	return soda_rings_slots_at(ranks) +
	       soda_rings_whole((uint64_t)ranks * SODA_RING_SLOTS * slot_bytes);
}

/* Where the heads are, as the tails. */
static inline uint64_t soda_rings_heads_at(void)
{
	return SODA_RINGS_PAGE;
}

static inline uint64_t soda_rings_inbox_at(uint32_t ranks)
{
	return soda_rings_whole(soda_rings_heads_at() + (uint64_t)ranks * sizeof(uint32_t));
}

static inline uint64_t soda_rings_in_bytes(uint32_t ranks, uint64_t inbox_bytes)
{
	return soda_rings_inbox_at(ranks) + inbox_bytes;
}

#endif
