/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between libsoda-msg and the DPU agent's service messages, and between the agents of
 * a job: calls of the control plane (wire.h).  docs/internals/messages.md has the states.
 *
 * Messages travel in packets: all that one rank has for another one, gathered.  The agent looks at
 * a packet's head alone; behind it lie runs, messages of the same size, for the libraries:
 *
 *   packet   rank 32, bytes 32, messages 32, to 32, then `bytes` bytes (of 8) of runs
 *   run      size 32, count 32, then count times size bytes, filled up to a multiple of 8
 *   part     SODA_MSG_PART | size 32, bytes of the whole message 32, then size bytes, filled up
 *
 * rank: to whom, in a PUSH; from whom, in the answer to a PULL and in a RELAY.  to: to whom, in a
 * RELAY; else zero.  Parts of one message come one after the other, without parts of another one
 * from that rank between them.
 *
 * Each call may be made again on another connection, when it is not known whether it has arrived:
 * PUSH and RELAY have a number, and the answers to the last SODA_MSG_AHEAD are remembered, of which
 * so many may be under way; a PULL says how much has arrived; FINISH and REDUCE say which.
 *
 * Little-endian, packed. Encoders and decoders as in wire/movement.h.
 */
#ifndef SODA_WIRE_MESSAGES_H
#define SODA_WIRE_MESSAGES_H

#include "wire/wire.h"

enum soda_messages_msg {
	SODA_MSG_MESSAGES_JOIN = SODA_MSG_SERVICES + 32, /* soda_wire_msg_join and what it says
							    follows -> version 32 */
	SODA_MSG_MESSAGES_AWAIT,  /* milliseconds 32 -> soda_wire_msg_missing */
	SODA_MSG_MESSAGES_PUSH,	  /* soda_wire_msg_push, then packets -> a byte for each: 1 taken,
				     0 refused */
	SODA_MSG_MESSAGES_PULL,	  /* soda_wire_msg_pull -> soda_wire_msg_pulled, then packets */
	SODA_MSG_MESSAGES_FINISH, /* which phase, 0, 1, 2...: 32 -> empty */
	SODA_MSG_MESSAGES_REDUCE, /* soda_wire_msg_reduce -> empty */
	/* from an agent to another one */
	SODA_MSG_MESSAGES_LINK,	 /* soda_wire_msg_link, then the name -> version 32 */
	SODA_MSG_MESSAGES_RELAY, /* soda_wire_msg_relay, then packets -> as of PUSH */
	SODA_MSG_MESSAGES_BREAK, /* why the job is broken off, a sentence -> empty */
	/* of a rank on the agent's machine */
	SODA_MSG_MESSAGES_RINGS, /* empty -> soda_wire_msg_rings, with a memfd: of `out` to who
				    pushes, of `in` to who pulls (msg_rings.h); to an agent, with
				    the memory in which packets for its ranks lie */
	SODA_MSG_MESSAGES_OFFER, /* to an agent that has that memory: soda_wire_msg_relay without
				    packets, then of each of its ranks how many bytes were put into
				    its ring, 64 -> of each, how many have been taken, 64 */
	/* of a job with a key, before JOIN and before LINK (trust/job_key.h) */
	SODA_MSG_MESSAGES_CHALLENGE, /* version 32 -> soda_wire_msg_challenge */
	SODA_MSG_MESSAGES_LAST = SODA_MSG_MESSAGES_JOIN + 15,
};

#define SODA_MSG_VERSION 7u
#define SODA_MSG_KEY_BYTES 32u /* of what a job's key is known by; zeros: it has none */
#define SODA_MSG_NONCE_BYTES 32u
#define SODA_MSG_SIGNATURE_BYTES 64u
#define SODA_MSG_RANKS 4096u		/* of a job */
#define SODA_MSG_AGENTS 64u		/* likewise */
#define SODA_MSG_SIZE_MAX (1u << 20)	/* of a message */
#define SODA_MSG_PACKETS 64u		/* of a PUSH, a RELAY */
#define SODA_MSG_AHEAD 4u		/* PUSHes or PULLs of a rank, RELAYs of a link under way */
#define SODA_MSG_PART (1u << 31)	/* see above */
#define SODA_MSG_PACKET_MAX (60u << 10) /* of a packet, with its head */

enum soda_msg_role { SODA_MSG_PUSHES = 1, SODA_MSG_PULLS = 2 };

struct soda_wire_msg_challenge {
	uint8_t nonce[SODA_MSG_NONCE_BYTES]; /* of this connection's next JOIN or LINK alone */
	uint8_t router[SODA_MSG_KEY_BYTES];  /* what that router is known by */
};
#define SODA_WIRE_MSG_CHALLENGE_BYTES 64u

struct soda_wire_msg_join {
	uint32_t version;
	uint32_t role; /* enum soda_msg_role: a rank has a connection for each */
	uint32_t rank, ranks;
	uint8_t key[SODA_MSG_KEY_BYTES];
	uint64_t life;	       /* random, not 0: this part in the job, on all of its connections */
	uint32_t agents, here; /* of the job; which of them this one is */
	uint32_t name_bytes;
	uint32_t again; /* 1: this part has lost its connection; not a new one */
	/* zeros where the job has no key */
	uint8_t grant[SODA_MSG_SIGNATURE_BYTES];
	uint8_t proof[SODA_MSG_SIGNATURE_BYTES];
};
#define SODA_WIRE_MSG_JOIN_KEY 16u /* where that lies, and so the next two */
#define SODA_WIRE_MSG_JOIN_GRANT 72u
#define SODA_WIRE_MSG_JOIN_PROOF 136u
#define SODA_WIRE_MSG_JOIN_BYTES 200u

/*
 * What follows in a JOIN, pointing into the body: the name, not terminated; and where the job has
 * more than one agent, a byte for each rank, which agent is its own; and the agents' addresses, as
 * agents reach each other, each with a zero behind it.
 */
struct soda_wire_msg_place {
	const char *name;
	const uint8_t *places; /* NULL: one agent */
	const char *addresses; /* of address_bytes */
	size_t address_bytes;
};

struct soda_wire_msg_missing {
	uint32_t n;	/* ranks that have not come */
	uint32_t first; /* the lowest of them */
};
#define SODA_WIRE_MSG_MISSING_BYTES 8u

struct soda_wire_msg_push {
	uint64_t number;  /* 1, 2, 3 ... of this rank; the same again: the same answer */
	uint32_t wait_ms; /* for room, where there is none for any of the packets */
	uint32_t packets;
	/*
	 * PUSHes just before this one whose answers were not known when it was made, fewer than
	 * SODA_MSG_AHEAD: a packet for a rank for which they have one that was refused is refused,
	 * or packets would overtake others.
	 */
	uint32_t ahead;
};
#define SODA_WIRE_MSG_PUSH_BYTES 24u /* the last 4 are zero */

struct soda_wire_msg_packet {
	uint32_t rank, bytes, messages, to;
};
#define SODA_WIRE_MSG_PACKET_BYTES 16u

/*
 * Several may be under way on a connection: each is shown what lies behind that which those before
 * it were shown; the first one, what lies behind `at`.  Behind an end of a phase a PULL that does
 * not know of it yet brings nothing.
 */
struct soda_wire_msg_pull {
	uint64_t at;	  /* bytes of packets that have arrived so far */
	uint32_t wait_ms; /* for something to tell */
	uint32_t room;	  /* for packets, of the answer */
	uint32_t known;	  /* the last collective whose result is known */
	uint32_t ended;	  /* phases whose end is known */
};
#define SODA_WIRE_MSG_PULL_BYTES 24u

struct soda_wire_msg_pulled {
	uint32_t ended;	     /* 1: with these packets the phase ends */
	uint32_t collective; /* the last one that is complete, and its result */
	uint64_t value;
};
#define SODA_WIRE_MSG_PULLED_BYTES 16u

/* Agents compute sums, largest and smallest; which is which of them, so that ranks that call
 * different ones are told. */
enum soda_msg_op {
	SODA_MSG_OP_BARRIER = 1,
	SODA_MSG_OP_SUM,
	SODA_MSG_OP_MAX,
	SODA_MSG_OP_MIN,
	SODA_MSG_OP_MAX_DOUBLE, /* integers in the order of doubles, likewise the smallest */
	SODA_MSG_OP_MIN_DOUBLE,
	SODA_MSG_OP_SUM_DOUBLE, /* sums of a rank's word and zeros, and so below */
	SODA_MSG_OP_BROADCAST,
	SODA_MSG_OP_GATHER,
	SODA_MSG_OPS
};

struct soda_wire_msg_reduce {
	uint32_t number; /* 1, 2, 3 ... */
	uint32_t op;	 /* enum soda_msg_op */
	uint64_t value;	 /* int64_t */
};
#define SODA_WIRE_MSG_REDUCE_BYTES 16u

/* Sizes of a rank's rings. */
struct soda_wire_msg_rings {
	uint32_t slot_bytes;  /* whole words, 4 KiB to SODA_MSG_PACKET_MAX */
	uint32_t inbox_bytes; /* a power of two */
};
#define SODA_WIRE_MSG_RINGS_BYTES 8u

/* An agent introduces itself to another one of the job. Refused with -EBUSY: ask again later. */
struct soda_wire_msg_link {
	uint32_t version;
	uint32_t ranks;
	uint32_t agents, from, to; /* numbers of agents */
	uint8_t key[SODA_MSG_KEY_BYTES];
	uint64_t life;	/* random, not 0: of the job in the agent that calls */
	uint64_t shape; /* a checksum of agents and places (soda_wire_msg_shape) */
	/* zeros where the job has no key */
	uint8_t router[SODA_MSG_KEY_BYTES]; /* what the agent that calls is known by */
	uint8_t grant[SODA_MSG_SIGNATURE_BYTES];
	uint8_t proof[SODA_MSG_SIGNATURE_BYTES];
};
#define SODA_WIRE_MSG_LINK_KEY 24u /* where that lies, and so the next three */
#define SODA_WIRE_MSG_LINK_ROUTER 72u
#define SODA_WIRE_MSG_LINK_GRANT 104u
#define SODA_WIRE_MSG_LINK_PROOF 168u
#define SODA_WIRE_MSG_LINK_BYTES 232u

/* What an agent tells another one: packets, and how far its own ranks are. */
struct soda_wire_msg_relay {
	uint64_t number;  /* as in a PUSH */
	uint32_t wait_ms; /* likewise */
	uint32_t packets; /* may be 0 */
	uint32_t phase;	  /* of the packets */
	uint32_t done;	  /* phases in which no packet follows for this agent */
	uint32_t missing; /* of the agent's own ranks have not come, the lowest of them */
	uint32_t first_missing;
	uint32_t left; /* likewise, have left after an end */
	uint32_t first_left;
	struct soda_wire_msg_reduce reduce; /* what the agent's ranks have together; number 0: none
					     */
	uint32_t ahead;			    /* as in a PUSH */
};
#define SODA_WIRE_MSG_RELAY_BYTES 64u /* the last 4 are zero */

void soda_wire_put_msg_challenge(uint8_t *out, const struct soda_wire_msg_challenge *c);
int soda_wire_get_msg_challenge(const void *in, size_t bytes, struct soda_wire_msg_challenge *c);
void soda_wire_put_msg_join(uint8_t *out, const struct soda_wire_msg_join *j);
/*
 * *place_p points behind the layout into `in`.  -EPROTO also where that is not what the layout
 * announces, a place is none of the agents, or an address is empty or too long.
 */
int soda_wire_get_msg_join(const void *in, size_t bytes, struct soda_wire_msg_join *j,
			   struct soda_wire_msg_place *place_p);
/* What a JOIN says of agents and places, but for which of them is meant; 0: of one agent. */
uint64_t soda_wire_msg_shape(const struct soda_wire_msg_join *j,
			     const struct soda_wire_msg_place *place);
void soda_wire_put_msg_missing(uint8_t *out, const struct soda_wire_msg_missing *m);
int soda_wire_get_msg_missing(const void *in, size_t bytes, struct soda_wire_msg_missing *m);
void soda_wire_put_msg_push(uint8_t *out, const struct soda_wire_msg_push *p);
/*
 * Also checks the packets behind the layout: that there are p->packets of them, 1 to
 * SODA_MSG_PACKETS, and no byte behind the last one. -EPROTO.
 */
int soda_wire_get_msg_push(const void *in, size_t bytes, struct soda_wire_msg_push *p);
void soda_wire_put_msg_packet(uint8_t *out, const struct soda_wire_msg_packet *p);
/* The packet at `in`, of which `left` bytes are there. -EPROTO: no whole one, or an odd size. */
int soda_wire_get_msg_packet(const uint8_t *in, size_t left, struct soda_wire_msg_packet *p);
void soda_wire_put_msg_pull(uint8_t *out, const struct soda_wire_msg_pull *p);
int soda_wire_get_msg_pull(const void *in, size_t bytes, struct soda_wire_msg_pull *p);
void soda_wire_put_msg_pulled(uint8_t *out, const struct soda_wire_msg_pulled *p);
/* The packets follow the layout. */
int soda_wire_get_msg_pulled(const void *in, size_t bytes, struct soda_wire_msg_pulled *p);
void soda_wire_put_msg_reduce(uint8_t *out, const struct soda_wire_msg_reduce *r);
int soda_wire_get_msg_reduce(const void *in, size_t bytes, struct soda_wire_msg_reduce *r);
void soda_wire_put_msg_rings(uint8_t *out, const struct soda_wire_msg_rings *r);
int soda_wire_get_msg_rings(const void *in, size_t bytes, struct soda_wire_msg_rings *r);
void soda_wire_put_msg_link(uint8_t *out, const struct soda_wire_msg_link *l);
/* The name follows the layout. */
int soda_wire_get_msg_link(const void *in, size_t bytes, struct soda_wire_msg_link *l);
void soda_wire_put_msg_relay(uint8_t *out, const struct soda_wire_msg_relay *r);
/* Checks the packets as soda_wire_get_msg_push(); there may be none. */
int soda_wire_get_msg_relay(const void *in, size_t bytes, struct soda_wire_msg_relay *r);
/* An OFFER to an agent of so many ranks, whose numbers follow the layout. */
int soda_wire_get_msg_offer(const void *in, size_t bytes, uint32_t ranks,
			    struct soda_wire_msg_relay *r);

#endif
