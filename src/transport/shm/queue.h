/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of a data connection between a client and a two-sided daemon on one
 * machine: one sealed memfd, made by the daemon, mapped by both, with nobody else's
 * data in it.  It comes with the answer of the HELLO.
 *
 *   0      4096        20480    24576
 *   | head | requests  | events | slot 0 | slot 1 | ... | slot n-1 |
 *
 * n, a power of two, is the number of slots and of requests that may be under way:
 * each has a slot of its own, which the client chooses.  A slot has room for one
 * chunk.
 *
 *   slot   FREE --READ posted--> daemon's --event DONE--> client reads it --> FREE
 *          FREE --WRITE: data copied in, posted--> daemon's
 *               --DONE: answered, still the daemon's-- --event FREE--> FREE
 *
 * FREE and DONE of a WRITE come in any order: an answer waits for those before it,
 * FREE does not.  DONE events come in the order of the requests.
 *
 * Of an agent in front of a pool (head.keeps): the slot of a WRITE of data that it has kept
 * (SODA_WIRE_KEPT) has no data, but says in its first bytes which data are meant: a
 * soda_wire_origin, or a soda_wire_code.
 *
 * Rings.  Indices run freely; the entry is index mod size.  The producer writes
 * the entry, then stores its tail; the consumer loads the tail (acquire), and copies
 * the entry once before it looks at it.  Requests have no consumer's
 * index: an answered request's entry is free.  Events cannot overrun, as there are
 * at most n answers and n slots to be freed; events_head (release, acquire) only
 * lets the daemon notice a client that breaks this.
 *
 * Sleeping.  Each side has a word `waits`.  To sleep: store 1, look at the tail
 * once more, sleep on the socket.  After storing a tail: if the other side's word is
 * 1, exchange it for 0 and send a byte on the socket.  These four accesses are
 * sequentially consistent: either the sleeper sees the entry, or the producer the
 * word.  Nobody who is awake costs anybody a system call.  The socket's end says
 * that the other side has gone; a client that gives up, and waits for that end, says
 * so with another byte.
 *
 * Installing.  With its HELLO the client may have handed over its userfaultfd; a
 * READ with an address asks the daemon to put the page there itself.  The slot's
 * claim decides whether that happens:
 *
 *   client  OFFERED with the request         client  OFFERED -> REVOKED: it fails
 *   daemon  OFFERED -> TAKEN, UFFDIO_COPY, -> OVER
 *
 * by compare-and-swap.  Once no claim is OFFERED or TAKEN nothing more will be
 * installed.  A claim that stays TAKEN although the socket has ended is over, too:
 * a daemon does not end a connection while it installs, and the kernel closes the
 * descriptors of a process that was killed when its last thread has left the kernel.
 *
 * Neither side trusts the other's words: every index, number and size is copied
 * once and checked; what does not hold ends the connection.  The contents of slots
 * are the client's own data, whatever it does to them.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_SHM_QUEUE_H
#define SODA_SHM_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/api/transport_impl.h"

enum {
	SODA_QUEUE_MAX = 256, /* slots */
	SODA_QUEUE_MIN = 16,
	SODA_QUEUE_SLOTS_BYTES = 16 << 20, /* of all slots, unless so many are not the least */
	SODA_QUEUE_REQUESTS_AT = 4096,
	SODA_QUEUE_EVENTS_AT = 20480,
	SODA_QUEUE_SLOTS_AT = 24576,
};

/* What travels on the socket. */
enum { SODA_QUEUE_WAKE = 0, SODA_QUEUE_BYE = 1 /* the client gives up */ };

#define SODA_QUEUE_MAGIC 0x51444f53u /* "SODQ" */

enum soda_claim { SODA_CLAIM_OFFERED = 1, SODA_CLAIM_TAKEN, SODA_CLAIM_OVER, SODA_CLAIM_REVOKED };

struct soda_queue_head {
	/* set before the client maps it, then constant */
	uint32_t magic, n, slot_bytes;
	uint32_t keeps; /* the daemon knows SODA_WIRE_KEEP and _KEPT, if it is one that keeps */
	/* the client's */
	_Alignas(64) _Atomic uint32_t requests_tail;
	_Atomic uint32_t events_head;
	_Atomic uint32_t client_waits; /* set by the client, taken by the daemon */
	_Atomic uint32_t client_cpu;   /* 1 + where the client last ran; 0: not told */
	/* the daemon's */
	_Alignas(64) _Atomic uint32_t events_tail;
	_Atomic uint32_t daemon_waits; /* set by the daemon, taken by the client */
	_Alignas(64) _Atomic uint32_t claim[SODA_QUEUE_MAX]; /* enum soda_claim, of each slot */
};
_Static_assert(sizeof(struct soda_queue_head) <= SODA_QUEUE_REQUESTS_AT, "the head is a page");

/*
 * Flags of a request, in bits 8-15 of its imm, beside SODA_WIRE_POLLING, SODA_WIRE_RESIDENCY,
 * SODA_WIRE_STORED, SODA_WIRE_KEEP and SODA_WIRE_KEPT.
 */
#define SODA_QUEUE_PROTECT 0x02u /* install write-protected */

/*
 * imm as on the wire (type, flags), and Table I: of a READ dest_addr is where the
 * page is to be installed, 0: nowhere; residency: with SODA_WIRE_RESIDENCY, or with SODA_WIRE_KEPT
 * a u32: how many bytes of the slot say which data are meant.
 */
struct soda_queue_request {
	uint32_t imm;
	uint32_t slot;
	uint8_t body[SODA_WIRE_READ_BYTES];
	uint8_t residency[SODA_WIRE_RESIDENCY_BYTES];
	uint8_t zero[16]; /* a cache line each */
};
_Static_assert(sizeof(struct soda_queue_request) == 64, "64 bytes a request");
_Static_assert(SODA_QUEUE_MAX * 64 <= SODA_QUEUE_EVENTS_AT - SODA_QUEUE_REQUESTS_AT, "room");

enum soda_queue_kind { SODA_QUEUE_DONE = 1, SODA_QUEUE_FREE = 2 };

/* Where the data of a READ are. */
enum soda_queue_where {
	SODA_QUEUE_IN_SLOT = 0,
	SODA_QUEUE_INSTALLED = 1, /* at the address that the request names */
	SODA_QUEUE_STORED = 2,	  /* in the node's store, for a request with SODA_WIRE_STORED */
};

struct soda_queue_event {
	uint8_t kind;
	uint8_t where;	 /* DONE of a READ: enum soda_queue_where */
	uint16_t status; /* DONE: enum soda_status */
	uint32_t slot;
};
_Static_assert(sizeof(struct soda_queue_event) == 8, "8 bytes an event");
_Static_assert(2 * SODA_QUEUE_MAX * 8 <= SODA_QUEUE_SLOTS_AT - SODA_QUEUE_EVENTS_AT, "room");

/* A mapping of it; everything here was checked and stays. */
struct soda_queue {
	struct soda_queue_head *head;
	struct soda_queue_request *requests; /* n */
	struct soda_queue_event *events;     /* 2 n */
	uint8_t *slots;
	uint32_t n, slot_bytes;
	bool keeps;
	uint64_t bytes;
};

static inline uint8_t *soda_queue_slot(const struct soda_queue *q, uint32_t i)
{
	return q->slots + (uint64_t)i * q->slot_bytes;
}

/*
 * The daemon's: make one with slots of slot_bytes (whole pages, at most
 * SODA_WIRE_MAX_DATA), as many as suit.  *fd_p: the memfd, the caller's.
 * -ENOMEM, -EMFILE...
 */
int soda_queue_create(uint32_t slot_bytes, struct soda_queue *q, int *fd_p);
/* The client's: map what was passed; fd stays the caller's. -EPROTO and why, -ENOMEM. */
int soda_queue_map(int fd, struct soda_queue *q, struct soda_why *why);
void soda_queue_unmap(struct soda_queue *q);

/*
 * Publish entries: store the tail, and wake the other side if it waits.  fd: our end
 * of the socket. AS; errno may be spoilt.
 */
void soda_queue_publish(_Atomic uint32_t *tail, uint32_t to, _Atomic uint32_t *waits, int fd);
/*
 * About to sleep: true if the tail is still `seen`, and the side that moves it will send a
 * byte. AS.
 */
static inline bool soda_queue_may_sleep(_Atomic uint32_t *waits, _Atomic uint32_t *tail,
					uint32_t seen)
{
	atomic_store(waits, 1);
	return atomic_load(tail) == seen;
}
/* Awake: no byte, please. AS. */
static inline void soda_queue_awake(_Atomic uint32_t *waits)
{
	atomic_store_explicit(waits, 0, memory_order_relaxed);
}

#endif
