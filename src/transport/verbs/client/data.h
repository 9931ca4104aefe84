/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data connections on verbs, the side that connects.
 *
 *   open.c    making and ending one
 *   data.c    its rings: posts, completions, waiting
 *   keyed.c   ... its second queue pair, to a two-sided peer's static cache
 *   pieces.c  requests as work requests, one-sided and two-sided
 *
 * Staging slots of ours are registered once, when the connection is made: neither the
 * program's pages nor what the caller gave is ever pinned.  A READ that fits a slot and
 * whose caller takes it in place is not copied.  Daemons, which have told of their memory
 * (memory.h), need no slots for it.
 *
 * Requests are cut into pieces of at most a slot; both are rings with free-running
 * counters, and everything completes in the order of the posts:
 *
 *      released <= done <= answered <= issued <= flushed <= posted     requests
 *      freed <= completed <= sent                                      pieces
 *
 * Piece k has slot k mod slots, until its data are where they belong: a READ in place
 * keeps its slot until the caller's next post or poll (`released`).
 *
 * One-sided: a piece is an RDMA READ or WRITE.  Only the last piece of what goes at once
 * makes a completion, and one for every so many bytes: it tells of all before it.
 *
 * Two-sided: a piece is a request of Table I, a SEND with immediate data, and the answer
 * comes as a SEND (tag and data) or as a WRITE with immediate data into the slot.  Answers
 * come in the order of the requests, so that the k-th receive is that of piece k; it is
 * posted before the request.
 *
 * READs of a two-sided peer's static cache, of which the client has keys, are one-sided: on
 * a queue pair of their own, because the other one's protection domain on the peer is that
 * of all its clients.  Pieces of both kinds are never under way together, so that everything
 * still completes in the order of the posts.
 */
#ifndef SODA_VERBS_DATA_H
#define SODA_VERBS_DATA_H

#include "transport/api/spin.h"
#include "transport/verbs/link/regcache.h"
#include "transport/verbs/client/client.h"

enum {
	SODA_VERBS_SLOTS = 16,	    /* most; also what is under way, two-sided */
	SODA_VERBS_ARENA = 1 << 20, /* of the slots; at least two of them */
	SODA_VERBS_MARKS = SODA_WIRE_MAX_DATA / SODA_DIRTY_UNIT + 1,
	SODA_VERBS_HEAD = 64, /* of a slot: its request, and the answer's tag */
	SODA_VERBS_TAG_AT = 48,
};

struct soda_vrequest {
	uint64_t cookie;
	uint64_t offset;
	uint64_t marks_at; /* WRITE: of its first dirty mark */
	uint8_t *data;
	uint32_t bytes;
	uint32_t rkey;
	uint32_t slot; /* READ in place, from its answer on */
	uint32_t lkey; /* direct */
	uint16_t region_id;
	uint8_t marks; /* WRITE: how many dirty marks; 0: none */
	bool write;
	bool asks; /* two-sided */
	bool told; /* `has` goes with it */
	struct soda_wire_has has;
	bool direct; /* data need no slot: the device knows where they are */
	int status;
};

struct soda_vpiece {
	uint32_t request, offset, bytes;
};

struct soda_vdata {
	struct soda_conn conn;
	struct soda_verbs_link link;
	_Atomic(struct soda_verbs_link *) keyed; /* the second queue pair, or NULL */
	struct soda_wire_hello hello;
	struct soda_verbs_reach *reach; /* whose protection domain it is, or NULL: its own */
	struct ibv_mr *mr;
	uint8_t *arena; /* the slots, behind them a page of dirty marks, or of heads */
	uint64_t base;	/* address of the arena for the device */
	uint32_t slot_bytes, slots;
	uint32_t signal_bytes;
	struct soda_wire_asked asked; /* message_bytes 0: one-sided */
	bool in_place;
	bool polling; /* of the last flush */
	bool poked;   /* soda_verbs_link_poke */
	int failed;   /* of the queue pair: 0, or negative errno */
	struct soda_spin spin;
	uint32_t mask; /* requests - 1 */
	uint32_t released, done, answered, issued, flushed, posted;
	uint32_t issued_bytes; /* of request `issued` */
	uint32_t freed, completed, sent;
	bool asking;	     /* what is under way is two-sided */
	uint32_t asks, gone; /* SENDs, and those that have completed */
	uint32_t unsignalled;
	struct soda_vpiece pieces[SODA_VERBS_SLOTS];
	struct ibv_send_wr wr[2 * SODA_VERBS_SLOTS];
	struct ibv_sge sge[4 * SODA_VERBS_SLOTS];
	struct ibv_recv_wr receives[SODA_VERBS_SLOTS];
	struct soda_vrequest requests[];
};

static inline struct soda_vrequest *soda_vdata_request(struct soda_vdata *c, uint32_t i)
{
	return &c->requests[i & c->mask];
}

static inline uint8_t *soda_vdata_slot(const struct soda_vdata *c, uint32_t piece)
{
	return c->arena + (size_t)(piece & (c->slots - 1)) * c->slot_bytes;
}

/* Behind the slots: one-sided the dirty marks, two-sided a head for each slot. */
static inline uint8_t *soda_vdata_behind(const struct soda_vdata *c)
{
	return c->arena + (size_t)c->slots * c->slot_bytes;
}

static inline uint8_t *soda_vdata_head(const struct soda_vdata *c, uint32_t piece)
{
	return soda_vdata_behind(c) + (size_t)(piece & (c->slots - 1)) * SODA_VERBS_HEAD;
}

static inline bool soda_vdata_two_sided(const struct soda_vdata *c)
{
	return c->asked.message_bytes != 0;
}

/* data.c */
extern const struct soda_conn_ops soda_vdata_ops;

/* open.c */
void soda_vdata_close(struct soda_conn *conn);

/* keyed.c */

/* soda_conn_reach_keyed */
int soda_vdata_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why);
/* The second queue pair ends; before what it uses of the connection does. */
void soda_vdata_keyed_close(struct soda_vdata *c);

static inline struct soda_verbs_link *soda_vdata_keyed(const struct soda_vdata *c)
{
	/* acquire: pairs with the release in keyed.c */
	return atomic_load_explicit(&c->keyed, memory_order_acquire);
}

/* pieces.c */

/* What was flushed goes, as far as there are slots: one chain, one doorbell. */
void soda_vdata_pump(struct soda_vdata *c);
/*
 * A completion of this connection: the number of the first piece that it does not tell of
 * in *end_p, and the status of the last one before; false: it tells of no piece.  Sets
 * c->failed where it is an error.
 */
bool soda_vdata_completed(struct soda_vdata *c, const struct ibv_wc *wc, uint32_t *end_p,
			  int *status_p);

#endif
