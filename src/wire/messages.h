/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between libsoda-msg and the DPU agent's service messages: calls of the control plane
 * (wire.h).  docs/internals/messages.md has the states.
 *
 * Messages travel in packets: all that one rank has for another one, gathered.  The agent looks at
 * a packet's head alone; behind it lie runs, messages of the same size, for the libraries:
 *
 *   packet   rank 32, bytes 32, messages 32, zero 32, then `bytes` bytes (of 8) of runs
 *   run      size 32, count 32, then count times size bytes, filled up to a multiple of 8
 *   part     SODA_MSG_PART | size 32, bytes of the whole message 32, then size bytes, filled up
 *
 * rank: to whom, in a PUSH; from whom, in the answer to a PULL.  Parts of one message come one
 * after the other, without parts of another one from that rank between them.
 *
 * Little-endian, packed. Encoders and decoders as in wire/movement.h.
 */
#ifndef SODA_WIRE_MESSAGES_H
#define SODA_WIRE_MESSAGES_H

#include "wire/wire.h"

enum soda_messages_msg {
	SODA_MSG_MESSAGES_JOIN = SODA_MSG_SERVICES + 32, /* soda_wire_msg_join, then the name ->
							    version 32 */
	SODA_MSG_MESSAGES_AWAIT,  /* milliseconds 32 -> soda_wire_msg_missing */
	SODA_MSG_MESSAGES_PUSH,	  /* soda_wire_msg_push, then packets -> a byte for each: 1 taken,
				     0 refused */
	SODA_MSG_MESSAGES_PULL,	  /* soda_wire_msg_pull -> soda_wire_msg_pulled, then packets */
	SODA_MSG_MESSAGES_FINISH, /* empty -> empty */
	SODA_MSG_MESSAGES_REDUCE, /* soda_wire_msg_reduce -> empty */
	SODA_MSG_MESSAGES_LAST = SODA_MSG_MESSAGES_JOIN + 15,
};

#define SODA_MSG_VERSION 1u
#define SODA_MSG_KEY_BYTES 16u
#define SODA_MSG_RANKS 4096u		/* of a job */
#define SODA_MSG_SIZE_MAX (1u << 20)	/* of a message */
#define SODA_MSG_PACKETS 64u		/* of a PUSH */
#define SODA_MSG_PART (1u << 31)	/* see above */
#define SODA_MSG_PACKET_MAX (60u << 10) /* of a packet, with its head */

enum soda_msg_role { SODA_MSG_PUSHES = 1, SODA_MSG_PULLS = 2 };

struct soda_wire_msg_join {
	uint32_t version;
	uint32_t role; /* enum soda_msg_role: a rank has a connection for each */
	uint32_t rank, ranks;
	uint8_t key[SODA_MSG_KEY_BYTES];
};
#define SODA_WIRE_MSG_JOIN_BYTES 32u

struct soda_wire_msg_missing {
	uint32_t n;	/* ranks that have not come */
	uint32_t first; /* the lowest of them */
};
#define SODA_WIRE_MSG_MISSING_BYTES 8u

struct soda_wire_msg_push {
	uint32_t wait_ms; /* for room, where there is none for any of the packets */
	uint32_t packets;
};
#define SODA_WIRE_MSG_PUSH_BYTES 8u

struct soda_wire_msg_packet {
	uint32_t rank, bytes, messages;
};
#define SODA_WIRE_MSG_PACKET_BYTES 16u

struct soda_wire_msg_pull {
	uint32_t wait_ms; /* for something to tell */
	uint32_t room;	  /* for packets, of the answer */
	uint32_t known;	  /* the last collective whose result is known */
};
#define SODA_WIRE_MSG_PULL_BYTES 12u

struct soda_wire_msg_pulled {
	uint32_t ended;	     /* 1: with these packets the phase ends */
	uint32_t collective; /* the last one that is complete, and its result */
	uint64_t value;
};
#define SODA_WIRE_MSG_PULLED_BYTES 16u

enum soda_msg_op { SODA_MSG_OP_BARRIER = 1, SODA_MSG_OP_SUM, SODA_MSG_OP_MAX };

struct soda_wire_msg_reduce {
	uint32_t number; /* 1, 2, 3 ... */
	uint32_t op;	 /* enum soda_msg_op */
	uint64_t value;	 /* int64_t */
};
#define SODA_WIRE_MSG_REDUCE_BYTES 16u

void soda_wire_put_msg_join(uint8_t *out, const struct soda_wire_msg_join *j);
/* *name_p points behind the layout into `in`, *name_bytes_p long, not terminated. */
int soda_wire_get_msg_join(const void *in, size_t bytes, struct soda_wire_msg_join *j,
			   const char **name_p, size_t *name_bytes_p);
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

#endif
