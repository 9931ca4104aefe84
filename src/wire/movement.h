/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between libsoda-move and the DPU agent's service movement: calls of the control
 * plane (wire.h), and the rules of a list of pieces, which both ends need: the agent to check and
 * to place, the library to refuse early and to send.  docs/internals/movement.md has the states.
 *
 * Little-endian, packed.  Encoders write exactly the named number of bytes; decoders check nothing
 * but the layout, and return -EPROTO when `bytes` is not what it needs.
 */
#ifndef SODA_WIRE_MOVEMENT_H
#define SODA_WIRE_MOVEMENT_H

#include <stdatomic.h>

#include "wire/wire.h"

enum soda_move_msg {
	SODA_MSG_MOVE_START = SODA_MSG_SERVICES + 48, /* soda_wire_move_start -> _started */
	SODA_MSG_MOVE_RESERVE,	  /* soda_wire_move_reserve, then the name -> buffer 32 */
	SODA_MSG_MOVE_END,	  /* buffer 32 -> notices */
	SODA_MSG_MOVE_POST,	  /* soda_wire_move_post, then the pieces -> notices */
	SODA_MSG_MOVE_PUT,	  /* soda_wire_move_put, then data -> notices */
	SODA_MSG_MOVE_FAIL,	  /* ticket 64: its pieces cannot be read -> notices */
	SODA_MSG_MOVE_AWAIT,	  /* milliseconds 32 -> notices, after that time perhaps none */
	SODA_MSG_MOVE_CANCEL,	  /* ticket 64 -> notices */
	SODA_MSG_MOVE_OPEN,	  /* milliseconds 32, then the name -> soda_wire_move_opened */
	SODA_MSG_MOVE_NEXT,	  /* soda_wire_move_next -> soda_wire_move_found */
	SODA_MSG_MOVE_MAP,	  /* copy 32 -> bytes 64 and a memfd; same machine only */
	SODA_MSG_MOVE_READ,	  /* soda_wire_move_read -> the data */
	SODA_MSG_MOVE_RELEASE,	  /* step 64 -> empty */
	SODA_MSG_MOVE_POST_PARTS, /* as POST; what may be read when, PARTs say -> notices */
	/* streamed calls only: soda_wire_move_send, pieces, padding, data -> notices */
	SODA_MSG_MOVE_SEND = SODA_MSG_MOVE_START + 14,
	/* soda_wire_move_part -> enum soda_part_state 32, then notices */
	SODA_MSG_MOVE_PART = SODA_MSG_MOVE_START + 15,
	SODA_MSG_MOVE_ALLOC, /* bytes 64 -> area 32, and a memfd; same machine only */
	SODA_MSG_MOVE_FREE,  /* area 32 -> notices */
	SODA_MSG_MOVE_RANGE, /* soda_wire_move_range -> buffer 32; by clients with pages */
	SODA_MSG_MOVE_LAST = SODA_MSG_MOVE_RANGE,
};

#define SODA_MOVE_VERSION 4u /* 4: SENDs by verbs, RANGE */
#define SODA_MOVE_TOKEN_BYTES 16u
#define SODA_MOVE_PUT_MAX (60u << 10)	 /* data of a PUT, and of the answer to a READ */
#define SODA_MOVE_BYTES_MAX (1ull << 40) /* of a buffer */

enum { /* as in soda_move.h */
       SODA_MOVE_LIST_MAX = 1024,
       SODA_MOVE_CREDITS = 64,
       SODA_MOVE_COPIES = 64,
       SODA_MOVE_AREAS = 64, /* of a producer */
};

/* How the agent gets a client's data. */
enum soda_wire_way { SODA_WAY_READS = 1, SODA_WAY_STREAM = 2 };

#define SODA_WIRE_MOVE_RING 1u /* lists and notices are to go through a ring (move_ring.h) */

struct soda_wire_move_start {
	uint32_t version;
	uint32_t flags;
	uint64_t token_at; /* address in the client; 0: it is not to be read */
	uint8_t token[SODA_MOVE_TOKEN_BYTES];
};
#define SODA_WIRE_MOVE_START_BYTES 32u

struct soda_wire_move_started {
	uint32_t version;
	uint32_t way;	     /* enum soda_wire_way */
	uint32_t ring_bytes; /* of the memfd that came with it; 0: none */
};
#define SODA_WIRE_MOVE_STARTED_BYTES 12u

#define SODA_WIRE_MOVE_KEEP 1u
#define SODA_WIRE_MOVE_STAGE 2u

struct soda_wire_move_reserve {
	uint64_t bytes;
	uint32_t copies, mode, flags;
};
#define SODA_WIRE_MOVE_RESERVE_BYTES 20u

/*
 * A buffer whose lists are written to a range of the client's region, at a page.  Whole pages are
 * written: those behind `bytes` are zeros.
 */
struct soda_wire_move_range {
	uint32_t region, copies;
	uint64_t at, bytes;
};
#define SODA_WIRE_MOVE_RANGE_BYTES 24u

struct soda_wire_move_post {
	uint64_t ticket;
	uint32_t buffer, pieces;
};
#define SODA_WIRE_MOVE_POST_BYTES 16u

/*
 * A piece, as in soda_move.h, with a count of at least 1.  fill: a byte; SODA_WIRE_PIECE_COPY: it
 * is copied from the address `from` in the producer; SODA_WIRE_PIECE_AREA + i: from the position
 * `from` in the producer's area i.
 */
struct soda_wire_piece {
	uint64_t from, bytes, stride, count, offset;
	uint32_t fill;
};
#define SODA_WIRE_PIECE_BYTES 44u
#define SODA_WIRE_PIECE_COPY 256u
#define SODA_WIRE_PIECE_AREA 257u

/* Whether the piece is copied, from wherever. */
static inline bool soda_wire_piece_copies(const struct soda_wire_piece *p)
{
	return p->fill >= SODA_WIRE_PIECE_COPY;
}

static inline bool soda_wire_piece_in_area(const struct soda_wire_piece *p)
{
	return p->fill >= SODA_WIRE_PIECE_AREA;
}

/*
 * An area: memory of a producer's that is the agent's memfd, mapped by both (ALLOC).  Behind its
 * data, in whole pages, is a page of which one word is in use, 1 from the beginning.  The producer
 * sets it to 0 before it stops to keep what it has handed over as it is; the agent shows no step
 * that was copied out of areas after that.
 */
struct soda_move_area_tail {
	_Atomic uint32_t stands;
};
#define SODA_MOVE_AREA_TAIL_BYTES 4096u

/* Where it lies in the memfd of an area of so many bytes, at most SODA_MOVE_BYTES_MAX. */
static inline uint64_t soda_move_area_tail_at(uint64_t bytes)
{
	return (bytes + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE * SODA_WIRE_PAGE;
}

/*
 * READS: what is copied of a ticket, in its order, can be read up to `to`; lower than before after
 * SODA_PART_FAULT alone.  Answered when that has been read, or cannot be, or the time is over.
 */
struct soda_wire_move_part {
	uint64_t ticket, to;
	uint32_t timeout_ms;
};
#define SODA_WIRE_MOVE_PART_BYTES 20u

enum soda_part_state {
	SODA_PART_UNREAD = 1, /* not yet: ask again */
	SODA_PART_READ = 2,
	SODA_PART_FAULT = 3, /* some of it is not there: ask again, also for less, or FAIL */
	SODA_PART_ENDED = 4, /* the ticket: there is a notice, or was */
};

struct soda_wire_move_put {
	uint64_t ticket;
	uint64_t at; /* of what the ticket's pieces have to copy, in their order */
};
#define SODA_WIRE_MOVE_PUT_BYTES 16u

/*
 * A ticket's list and the first of its data, or more of its data.  The body is padded with zeros to
 * soda_wire_move_send_bytes(), so that the data lie in socket buffers as they do in memory
 * (wire.h).
 */
struct soda_wire_move_send {
	uint64_t ticket;
	uint64_t at; /* as in a PUT */
	uint32_t buffer;
	uint32_t pieces; /* 0: more of the ticket that is being received */
};
#define SODA_WIRE_MOVE_SEND_BYTES 24u
#define SODA_MOVE_SEND_MAX (4u << 20) /* data of a SEND */

/* Of the body, without data. */
static inline size_t soda_wire_move_send_bytes(uint32_t pieces)
{
	size_t bytes = SODA_WIRE_FRAME_BYTES + SODA_WIRE_MOVE_SEND_BYTES +
		       (size_t)pieces * SODA_WIRE_PIECE_BYTES;

	return (bytes + 63) / 64 * 64 - SODA_WIRE_FRAME_BYTES;
}

/* A ticket has ended.  An answer has any number of these. */
struct soda_wire_notice {
	uint64_t ticket, step; /* step 0: status says why there is none */
	uint32_t status;       /* enum soda_status */
};
#define SODA_WIRE_NOTICE_BYTES 20u

struct soda_wire_move_opened {
	uint64_t bytes; /* 0: none has this name, after the time of the OPEN, if it had any */
	uint32_t copies;
	uint32_t shared; /* 1: copies can be mapped (MAP), 0: steps are READ */
};
#define SODA_WIRE_MOVE_OPENED_BYTES 16u

struct soda_wire_move_next {
	uint64_t after;
	uint32_t timeout_ms;
};
#define SODA_WIRE_MOVE_NEXT_BYTES 12u

struct soda_wire_move_found {
	uint64_t step; /* 0: none */
	uint32_t copy;
	uint32_t ended; /* 1: and none will come */
};
#define SODA_WIRE_MOVE_FOUND_BYTES 16u

struct soda_wire_move_read {
	uint64_t step, offset;
	uint32_t bytes;
};
#define SODA_WIRE_MOVE_READ_BYTES 20u

void soda_wire_put_move_start(uint8_t *out, const struct soda_wire_move_start *s);
int soda_wire_get_move_start(const void *in, size_t bytes, struct soda_wire_move_start *s);
void soda_wire_put_move_started(uint8_t *out, const struct soda_wire_move_started *s);
int soda_wire_get_move_started(const void *in, size_t bytes, struct soda_wire_move_started *s);
void soda_wire_put_move_reserve(uint8_t *out, const struct soda_wire_move_reserve *r);
/* *name_p points behind the layout into `in`, *name_bytes_p long, not terminated. */
int soda_wire_get_move_reserve(const void *in, size_t bytes, struct soda_wire_move_reserve *r,
			       const char **name_p, size_t *name_bytes_p);
void soda_wire_put_move_range(uint8_t *out, const struct soda_wire_move_range *r);
int soda_wire_get_move_range(const void *in, size_t bytes, struct soda_wire_move_range *r);
void soda_wire_put_move_post(uint8_t *out, const struct soda_wire_move_post *p);
/* The layout alone, SODA_WIRE_MOVE_POST_BYTES. */
void soda_wire_get_move_head(const uint8_t *in, struct soda_wire_move_post *p);
/* The pieces follow the layout; that there are as many bytes of them as p->pieces says is checked.
 */
int soda_wire_get_move_post(const void *in, size_t bytes, struct soda_wire_move_post *p);
void soda_wire_put_move_part(uint8_t *out, const struct soda_wire_move_part *p);
int soda_wire_get_move_part(const void *in, size_t bytes, struct soda_wire_move_part *p);
void soda_wire_put_piece(uint8_t *out, const struct soda_wire_piece *p);
void soda_wire_get_piece(const uint8_t *in, struct soda_wire_piece *p);
void soda_wire_put_move_put(uint8_t *out, const struct soda_wire_move_put *p);
/* The data, bytes - SODA_WIRE_MOVE_PUT_BYTES of them, follow the layout. */
int soda_wire_get_move_put(const void *in, size_t bytes, struct soda_wire_move_put *p);
void soda_wire_put_move_send(uint8_t *out, const struct soda_wire_move_send *s);
/* The layout alone; -EPROTO: more pieces than a list may have. */
int soda_wire_get_move_send(const uint8_t *in, struct soda_wire_move_send *s);
void soda_wire_put_notice(uint8_t *out, const struct soda_wire_notice *n);
void soda_wire_get_notice(const uint8_t *in, struct soda_wire_notice *n);
void soda_wire_put_move_opened(uint8_t *out, const struct soda_wire_move_opened *o);
int soda_wire_get_move_opened(const void *in, size_t bytes, struct soda_wire_move_opened *o);
void soda_wire_put_move_next(uint8_t *out, const struct soda_wire_move_next *n);
int soda_wire_get_move_next(const void *in, size_t bytes, struct soda_wire_move_next *n);
void soda_wire_put_move_found(uint8_t *out, const struct soda_wire_move_found *f);
int soda_wire_get_move_found(const void *in, size_t bytes, struct soda_wire_move_found *f);
void soda_wire_put_move_read(uint8_t *out, const struct soda_wire_move_read *r);
int soda_wire_get_move_read(const void *in, size_t bytes, struct soda_wire_move_read *r);
/* One number alone: a buffer, a copy, a ticket, a step, a time, a size: field.h. */

/*
 * Check a list of pieces for a destination of dest_bytes.  *copied_p: bytes that are to be copied,
 * not filled.  What areas there are is not known here.  -EINVAL: no piece; one without bytes, or
 * with an impossible fill; sizes or addresses that overflow; two that overlap in the destination.
 * -E2BIG: more than SODA_MOVE_LIST_MAX. -EFBIG: one ends behind the destination. *what_p (a
 * constant) says which.
 */
int soda_wire_pieces_check(const struct soda_wire_piece *pieces, size_t n, uint64_t dest_bytes,
			   uint64_t *copied_p, const char **what_p);
/*
 * Set all of the destination that is not copied: constants, and zeros between pieces and behind
 * them. The list has been checked for dest_bytes.
 */
void soda_wire_pieces_set(const struct soda_wire_piece *pieces, size_t n, void *dest,
			  uint64_t dest_bytes);

/* One contiguous part of what is copied. */
struct soda_piece_span {
	uint64_t from;	 /* address in the producer */
	uint64_t offset; /* in the destination */
	uint64_t bytes;
	size_t piece; /* which one it is of */
};

/* A walk over the spans of a checked list, in its order. Begin with {pieces, n}. */
struct soda_piece_walk {
	const struct soda_wire_piece *pieces;
	size_t n;
	size_t piece; /* where it stands, and so the next two */
	uint64_t element, within;
};

/* The next span, of at most max bytes (> 0). False: there is none left. */
bool soda_piece_walk_next(struct soda_piece_walk *w, uint64_t max, struct soda_piece_span *span_p);

#endif
