/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data connections on verbs, the side that connects.  Async-signal-safe after create, but in
 * daemons (memory.h).
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
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "base/guard.h"
#include "base/lock.h"
#include "base/log.h"
#include "transport/api/memory.h"
#include "transport/api/rawsys.h"
#include "transport/api/spin.h"
#include "transport/stream/stream.h"
#include "transport/verbs/client/client.h"
#include "transport/verbs/link/registered.h"

enum {
	SLOTS = 16,	 /* most; also what is under way, two-sided */
	ARENA = 1 << 20, /* of the slots; at least two of them */
	MARKS = SODA_WIRE_MAX_DATA / SODA_DIRTY_UNIT + 1,
	HEAD_BYTES = 64, /* of a slot: its request, and the answer's tag */
	TAG_AT = 48,
};

struct vrequest {
	uint64_t cookie;
	uint64_t offset;
	uint64_t marks_at; /* WRITE: of its first dirty mark */
	uint8_t *data;
	uint32_t bytes;
	uint32_t rkey;
	uint32_t slot; /* READ in place, from its answer on */
	uint32_t lkey; /* direct */
	uint16_t region_id;
	uint8_t marks;	     /* WRITE: how many dirty marks; 0: none */
	uint8_t names_bytes; /* WRITE, instead of data: `names`, or `code`, say which are meant */
	uint8_t names[SODA_WIRE_ORIGIN_BYTES];
	const uint8_t *code; /* the caller's */
	bool keep;	     /* WRITE: the peer keeps the data */
	bool write;
	bool two_sided;
	bool told; /* `residency` goes with it */
	struct soda_wire_residency residency;
	bool direct; /* data need no slot: the device knows where they are */
	int status;
};

struct vpiece {
	uint32_t request, offset, bytes;
};

struct vdata {
	struct soda_conn conn;
	struct soda_verbs_link link;
	_Atomic(struct soda_verbs_link *) keyed; /* the second queue pair, or NULL */
	struct soda_wire_hello hello;
	const struct soda_identity *as; /* of the options, and so the next: for the second one */
	uint8_t *client_key;
	struct soda_regcache *regcache; /* whose protection domain it is, or NULL: its own */
	struct ibv_mr *mr;
	uint8_t *arena; /* the slots, behind them a page of dirty marks, or of heads */
	uint64_t base;	/* address of the arena for the device */
	uint32_t slot_bytes, slots;
	uint32_t signal_bytes;
	struct soda_wire_two_sided two_sided; /* message_bytes 0: the peer is one-sided */
	bool in_place;
	bool polling; /* of the last flush */
	bool poked;   /* soda_verbs_link_poke */
	int failed;   /* of the queue pair: 0, or negative errno */
	struct soda_spin spin;
	uint32_t mask; /* requests - 1 */
	uint32_t released, done, answered, issued, flushed, posted;
	uint32_t issued_bytes; /* of request `issued` */
	uint32_t freed, completed, sent;
	bool under_way_two_sided;
	uint32_t sends, sends_done; /* SENDs, and those that have completed */
	uint32_t unsignalled;
	struct vpiece pieces[SLOTS];
	struct ibv_send_wr wr[2 * SLOTS];
	struct ibv_sge sge[4 * SLOTS];
	struct ibv_recv_wr receives[SLOTS];
	struct vrequest requests[];
};

static struct vdata *data(const struct soda_conn *conn)
{
	return (struct vdata *)(uintptr_t)conn;
}

static struct vrequest *request_at(struct vdata *c, uint32_t i)
{
	return &c->requests[i & c->mask];
}

static uint8_t *slot_at(const struct vdata *c, uint32_t piece)
{
	return c->arena + (size_t)(piece & (c->slots - 1)) * c->slot_bytes;
}

/* Behind the slots: one-sided the dirty marks, two-sided a head for each slot. */
static uint8_t *behind(const struct vdata *c)
{
	return c->arena + (size_t)c->slots * c->slot_bytes;
}

static uint8_t *head_at(const struct vdata *c, uint32_t piece)
{
	return behind(c) + (size_t)(piece & (c->slots - 1)) * HEAD_BYTES;
}

static bool peer_is_two_sided(const struct vdata *c)
{
	return c->two_sided.message_bytes != 0;
}

/* The second queue pair */

static struct soda_verbs_link *keyed_link(const struct vdata *c)
{
	/* acquire: pairs with the release in data_reach_keyed */
	return atomic_load_explicit(&c->keyed, memory_order_acquire);
}

/*
 * A data connection's second queue pair, to a two-sided peer's static cache.  On the peer it
 * lies in the client's own protection domain, where the keys are, and nothing is received
 * on it.  Here it completes into the first one's queue, and its end is the connection's.
 */
static int make_queue_pair(const struct vdata *c, struct soda_verbs_link *l, struct soda_why *why)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = c->link.cq,
		.recv_cq = c->link.cq,
		.cap = { .max_send_wr = SLOTS, .max_send_sge = 1 },
	};
	int ret = 0;

	if (l->id->verbs != c->link.id->verbs)
		ret = -EXDEV; /* the route has changed, to another device */
	else if (rdma_create_qp(l->id, c->link.pd, &attr) < 0)
		ret = -errno;
	if (ret < 0)
		soda_why_set(why, "%s: no queue pair for the static cache: %s", c->conn.peer,
			     soda_strerror(ret));
	return ret;
}

static int meet(const struct vdata *c, struct soda_verbs_link *l, uint64_t deadline_ns,
		struct soda_why *why)
{
	const char *rest = c->conn.peer + strlen(SODA_VERBS_PREFIX);
	struct soda_wire_hello hello = c->hello;
	struct soda_wire_welcome welcome;
	struct soda_wire_two_sided two_sided;
	int ret;

	hello.features |= SODA_FEATURE_KEYED;
	ret = soda_verbs_introduce(l, rest, &hello, c->as, c->client_key, NULL, deadline_ns,
				   &welcome, &two_sided, why);
	if (ret == 0 && two_sided.message_bytes) {
		soda_why_set(why, "%s has given a key, but takes requests only", c->conn.peer);
		ret = -EPROTO;
	}
	return ret;
}

/* A thread that sleeps on the connection learns of its end. */
static int watch(const struct vdata *c, const struct soda_verbs_link *l)
{
	struct epoll_event ev = { .events = EPOLLIN };

	return epoll_ctl(c->link.end_fd, EPOLL_CTL_ADD, l->events->fd, &ev) < 0 ? -errno : 0;
}

static int data_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	struct vdata *c = data(conn);
	uint64_t deadline_ns = soda_deadline(timeout_ms);
	struct soda_verbs_link *l;
	int ret;

	if (!peer_is_two_sided(c) || keyed_link(c))
		return 0;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	ret = soda_verbs_link_resolve(l, conn->peer + strlen(SODA_VERBS_PREFIX), deadline_ns, why);
	if (ret == 0)
		ret = make_queue_pair(c, l, why);
	if (ret == 0)
		ret = meet(c, l, deadline_ns, why);
	if (ret == 0)
		ret = watch(c, l);
	if (ret < 0) {
		soda_verbs_link_close(l);
		free(l);
		return ret;
	}
	/* release: pairs with the acquire of the posting thread */
	atomic_store_explicit(&c->keyed, l, memory_order_release);
	return 0;
}

/* Before what it uses of the connection ends. */
static void keyed_close(struct vdata *c)
{
	struct soda_verbs_link *l = keyed_link(c);

	if (!l)
		return;
	atomic_store_explicit(&c->keyed, NULL, memory_order_relaxed);
	soda_verbs_link_close(l);
	free(l);
}

/* Requests as work requests */

/* of a receive: the piece; of a SEND: its number, and one; else the piece, and one */
#define ID_ANSWER (1ull << 32)
#define ID_SEND (2ull << 32)

static uint64_t address_of(const struct vdata *c, const uint8_t *at)
{
	return c->base + (uint64_t)(at - c->arena);
}

static struct ibv_sge ours(const struct vdata *c, const uint8_t *at, uint32_t bytes)
{
	return (struct ibv_sge){ .addr = address_of(c, at), .length = bytes, .lkey = c->mr->lkey };
}

/* false: it may not be read, and with that the connection is over. */
static bool stage(struct vdata *c, uint8_t *slot, const uint8_t *from, uint32_t bytes)
{
	if (c->regcache)
		soda_payload_copy(slot, from, bytes);
	else
		c->failed = soda_guard_copy(slot, from, bytes);
	return !c->failed;
}

/* A piece's part of the rings: it has been added. */
static void sent(struct vdata *c, struct vrequest *r, uint32_t bytes)
{
	c->pieces[c->sent & (c->slots - 1)] =
		(struct vpiece){ .request = c->issued, .offset = c->issued_bytes, .bytes = bytes };
	c->sent++;
	c->issued_bytes += bytes;
	if (c->issued_bytes == r->bytes) {
		c->issued++;
		c->issued_bytes = 0;
	}
}

/* There is one to go that is of this kind. */
static bool has_more(struct vdata *c, bool two_sided)
{
	return !c->failed && c->issued != c->flushed && c->sent - c->freed < c->slots &&
	       request_at(c, c->issued)->two_sided == two_sided;
}

static void post(struct vdata *c, struct ibv_qp *qp, uint32_t n)
{
	struct ibv_send_wr *bad;
	int ret;

	c->wr[n - 1].next = NULL;
	c->wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	c->unsignalled = 0;
	ret = ibv_post_send(qp, c->wr, &bad);
	if (ret)
		c->failed = ret == EINVAL ? -ECONNRESET : -ret; /* EINVAL: it is in error */
}

/* One-sided */

static void add(struct vdata *c, uint32_t n, struct ibv_sge local, uint64_t remote,
		const struct vrequest *r)
{
	c->sge[n] = local;
	c->wr[n] = (struct ibv_send_wr){
		.wr_id = c->sent + 1u,
		.next = &c->wr[n + 1],
		.sg_list = &c->sge[n],
		.num_sge = 1,
		.opcode = r->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = remote, .rkey = r->rkey },
	};
	if (r->write && local.length <= c->link.inline_bytes)
		c->wr[n].send_flags |= IBV_SEND_INLINE;
}

/* The next piece: one work request, or two; none if it fails. How many there are now. */
static uint32_t add_piece(struct vdata *c, uint32_t n)
{
	struct vrequest *r = request_at(c, c->issued);
	uint8_t *at = r->data + c->issued_bytes, *slot = slot_at(c, c->sent);
	uint32_t left = r->bytes - c->issued_bytes;
	uint32_t bytes = left < c->slot_bytes ? left : c->slot_bytes;
	struct ibv_sge local = { .addr = (uintptr_t)at, .length = bytes, .lkey = r->lkey };

	if (!r->direct) {
		if (r->write && !stage(c, slot, at, bytes))
			return n;
		local = ours(c, slot, bytes);
	}
	add(c, n++, local, r->offset + c->issued_bytes, r);
	/* behind the data: a server that clears a mark and saves the unit has them, or sees it
	 * again */
	if (bytes == left && r->marks)
		add(c, n++, ours(c, behind(c), r->marks), r->marks_at, r);
	c->unsignalled += bytes;
	if (c->unsignalled >= c->signal_bytes) {
		c->wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
		c->unsignalled = 0;
	}
	sent(c, r, bytes);
	return n;
}

static void pump_one_sided(struct vdata *c)
{
	struct soda_verbs_link *l = peer_is_two_sided(c) ? keyed_link(c) : &c->link;
	uint32_t n = 0;

	while (has_more(c, false))
		n = add_piece(c, n);
	if (n)
		post(c, l->id->qp, n);
}

/* Two-sided */

/* What the client has is said of the first piece's chunk. */
static bool tells(const struct vdata *c, const struct vrequest *r)
{
	return r->told && !r->write && !c->issued_bytes;
}

/* The request's body at the slot's head: how many bytes. */
static uint32_t put_head(const struct vdata *c, const struct vrequest *r, uint32_t bytes,
			 uint8_t *head)
{
	uint64_t page = (r->offset + c->issued_bytes) / SODA_WIRE_PAGE;

	if (r->write) {
		soda_wire_put_write(head, &(struct soda_wire_write){ .region_id = r->region_id,
								     .page_offset = page,
								     .size = bytes });
		return SODA_WIRE_WRITE_BYTES;
	}
	soda_wire_put_read(
		head,
		&(struct soda_wire_read){
			.region_id = r->region_id,
			.page_offset = page,
			.dest_addr = address_of(c, slot_at(c, c->sent)),
			.size = bytes,
			.dest_rkey = c->two_sided.answer == SODA_ANSWER_WRITE ? c->mr->rkey : 0,
		});
	if (!tells(c, r))
		return SODA_WIRE_READ_BYTES;
	soda_wire_put_residency(head + SODA_WIRE_READ_BYTES, &r->residency);
	return SODA_WIRE_READ_BYTES + SODA_WIRE_RESIDENCY_BYTES;
}

static uint32_t flags_of(const struct vdata *c, const struct vrequest *r)
{
	return (c->polling ? SODA_WIRE_POLLING : 0) | (tells(c, r) ? SODA_WIRE_RESIDENCY : 0) |
	       (r->keep ? SODA_WIRE_KEEP : 0) | (r->names_bytes ? SODA_WIRE_KEPT : 0);
}

/*
 * What a WRITE says behind its head, which *sge gets: its data, or which data of the piece's range
 * are meant, that the peer has kept: they came to it in the same pieces, for every connection of a
 * program's cuts alike.  False: as stage().
 */
static bool stage_write(struct vdata *c, const struct vrequest *r, uint8_t *slot, uint32_t bytes,
			struct ibv_sge *sge)
{
	if (!r->names_bytes)
		return stage(c, slot, r->data + c->issued_bytes, bytes);
	memcpy(slot, r->code ? r->code : r->names, r->names_bytes);
	*sge = ours(c, slot, r->names_bytes);
	return true;
}

/* As above, of one work request. */
static uint32_t ask(struct vdata *c, uint32_t n)
{
	struct vrequest *r = request_at(c, c->issued);
	uint8_t *slot = slot_at(c, c->sent), *head = head_at(c, c->sent);
	uint32_t left = r->bytes - c->issued_bytes;
	uint32_t bytes = left < c->slot_bytes ? left : c->slot_bytes;
	struct ibv_sge *sge = &c->sge[4 * n];
	uint32_t flags = flags_of(c, r);

	sge[0] = ours(c, head, put_head(c, r, bytes, head));
	sge[1] = sge[3] = ours(c, slot, bytes);
	sge[2] = ours(c, head + TAG_AT, SODA_WIRE_TAG_BYTES);
	if (r->write && !stage_write(c, r, slot, bytes, &sge[1]))
		return n;
	c->wr[n] = (struct ibv_send_wr){
		.wr_id = ID_SEND | ++c->sends,
		.next = &c->wr[n + 1],
		.sg_list = sge,
		.num_sge = r->write ? 2 : 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = soda_verbs_imm(r->write ? SODA_MSG_WRITE : SODA_MSG_READ, flags, 0),
	};
	if (!r->write && sge[0].length <= c->link.inline_bytes) {
		c->wr[n].send_flags = IBV_SEND_INLINE;
		sge[0].addr = (uintptr_t)head; /* taken now, by us */
	}
	c->receives[n] = (struct ibv_recv_wr){ .wr_id = ID_ANSWER | c->sent,
					       .next = &c->receives[n + 1],
					       .sg_list = sge + 2,
					       .num_sge = r->write ? 1 : 2 };
	sent(c, r, bytes);
	return n + 1;
}

static void pump_two_sided(struct vdata *c)
{
	struct ibv_recv_wr *bad;
	uint32_t n = 0;

	while (has_more(c, true) && c->sends - c->sends_done < 2 * SLOTS)
		n = ask(c, n);
	if (!n)
		return;
	c->receives[n - 1].next = NULL;
	if (ibv_post_recv(c->link.id->qp, c->receives, &bad))
		c->failed = -ECONNRESET;
	else
		post(c, c->link.id->qp, n);
}

/* What was flushed goes, as far as there are slots: one chain, one doorbell. */
static void pump(struct vdata *c)
{
	if (c->sent == c->completed && c->issued != c->flushed)
		c->under_way_two_sided = request_at(c, c->issued)->two_sided;
	if (c->under_way_two_sided)
		pump_two_sided(c);
	else
		pump_one_sided(c);
}

/* Completions */

/* The answer of piece `completed`. 0; -EPROTO: it is none. */
static int check_answer(const struct vdata *c, const struct ibv_wc *wc, int *status_p)
{
	const struct vpiece *p = &c->pieces[c->completed & (c->slots - 1)];
	const struct vrequest *r = &c->requests[p->request & c->mask];
	const uint8_t *head = head_at(c, c->completed);
	uint32_t imm = be32toh(wc->imm_data), data;

	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || (uint32_t)wc->wr_id != c->completed ||
	    (imm & 0xff) != (r->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY))
		return -EPROTO;
	*status_p = -soda_status_to_errno(imm >> 16);
	data = r->write || *status_p ? 0 : p->bytes;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		return data && wc->byte_len == data && c->two_sided.answer == SODA_ANSWER_WRITE
			       ? 0
			       : -EPROTO;
	/* a READ's tag is its dest_addr, a WRITE's its first bytes */
	return wc->byte_len == SODA_WIRE_TAG_BYTES + data &&
			       !memcmp(head + TAG_AT, head + (r->write ? 0 : 8),
				       SODA_WIRE_TAG_BYTES)
		       ? 0
		       : -EPROTO;
}

static bool answered(struct vdata *c, const struct ibv_wc *wc, uint32_t *end_p, int *status_p)
{
	int ret;

	if (wc->status != IBV_WC_SUCCESS) {
		c->failed = soda_verbs_link_error(wc->status, c->conn.peer);
		return false;
	}
	if (wc->wr_id & ID_SEND) {
		c->sends_done = (uint32_t)wc->wr_id;
		return false;
	}
	ret = check_answer(c, wc, status_p);
	if (ret < 0) {
		c->failed = ret;
		return false;
	}
	*end_p = c->completed + 1;
	return true;
}

/*
 * A completion of this connection: the number of the first piece that it does not tell of
 * in *end_p, and the status of the last one before; false: it tells of no piece.  Sets
 * c->failed where it is an error.
 */
static bool completed(struct vdata *c, const struct ibv_wc *wc, uint32_t *end_p, int *status_p)
{
	if (wc->wr_id & (ID_ANSWER | ID_SEND))
		return answered(c, wc, end_p, status_p);
	*status_p = 0;
	*end_p = (uint32_t)wc->wr_id;
	if (wc->status != IBV_WC_SUCCESS) {
		*end_p -= 1;
		c->failed = soda_verbs_link_error(wc->status, c->conn.peer);
	}
	return true;
}

/* The rings: posts, completions, waiting */

/* Its data stay in the slot for the caller to use. */
static bool stays(const struct vdata *c, const struct vrequest *r)
{
	return c->in_place && !r->write && !r->direct && r->bytes <= c->slot_bytes;
}

/* Slots */

static void free_slots(struct vdata *c)
{
	while (c->freed != c->completed) {
		const struct vpiece *p = &c->pieces[c->freed & (c->slots - 1)];

		if ((int32_t)(p->request - c->released) >= 0 && stays(c, request_at(c, p->request)))
			break;
		c->freed++;
	}
}

/* The data of what was reported last have been used by now. */
static void release_reported(struct vdata *c)
{
	if (c->released == c->done)
		return;
	c->released = c->done;
	free_slots(c);
}

/* A key to what a READ wants of a two-sided peer: no request is sent. */
static void use_key(const struct vdata *c, const struct soda_post *p, struct vrequest *r)
{
	const struct soda_static_map *s =
		keyed_link(c) ? soda_mr_keyed(p->mr, p->offset, p->bytes) : NULL;

	r->two_sided = !s;
	if (!s)
		return;
	r->rkey = s->rkey;
	r->offset = p->offset - s->offset;
}

/* A WRITE without data: which are meant, that the peer has kept. */
static void name_kept(struct vrequest *r, const struct soda_post *p)
{
	_Static_assert(SODA_WIRE_CODE_BYTES_MAX <= UINT8_MAX, "names_bytes");
	r->code = p->code;
	r->names_bytes = (uint8_t)p->code_bytes;
	if (!p->origin)
		return;
	soda_wire_put_origin(r->names, p->origin);
	r->names_bytes = sizeof(r->names);
}

static int data_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct vdata *c = data(conn);
	struct vrequest *r = request_at(c, c->posted);
	uint64_t unit = p->offset / SODA_DIRTY_UNIT;

	if (!p->mr->keyed && !peer_is_two_sided(c))
		return -EINVAL;
	release_reported(c);
	*r = (struct vrequest){ .cookie = p->cookie,
				.offset = p->offset,
				.data = p->data,
				.bytes = p->bytes,
				.rkey = p->mr->rkey,
				.region_id = p->mr->region_id,
				.keep = p->keep,
				.write = p->write,
				.two_sided = peer_is_two_sided(c),
				.told = p->residency };
	if (p->residency)
		r->residency = *p->residency;
	if (p->origin || p->code)
		name_kept(r, p);
	if (r->two_sided && !p->write)
		use_key(c, p, r);
	if (c->regcache && !peer_is_two_sided(c))
		r->direct = soda_regcache_lkey(c->regcache, p->data, p->bytes, &r->lkey);
	if (p->write && p->mr->dirty_at && !peer_is_two_sided(c)) {
		r->marks_at = p->mr->dirty_at + unit;
		r->marks = (uint8_t)((p->offset + p->bytes - 1) / SODA_DIRTY_UNIT - unit + 1);
	}
	c->posted++;
	return 0;
}

/* Completions */

static void take(struct vdata *c, const struct vrequest *r, const struct vpiece *p,
		 const uint8_t *slot)
{
	if (c->regcache) /* a daemon: it counts */
		soda_payload_copy(r->data + p->offset, slot, p->bytes);
	else
		memcpy(r->data + p->offset, slot, p->bytes);
}

/* Everything before piece `end` is here; the last of it came with this status. */
static void settle(struct vdata *c, uint32_t end, int status)
{
	while (c->completed != end && c->completed != c->sent) {
		const struct vpiece *p = &c->pieces[c->completed & (c->slots - 1)];
		struct vrequest *r = request_at(c, p->request);

		if (!r->status)
			r->status = status;
		if (!r->write && !r->direct && !r->status && !stays(c, r))
			take(c, r, p, slot_at(c, c->completed));
		if (p->offset + p->bytes == r->bytes) {
			r->slot = c->completed & (c->slots - 1);
			c->answered++;
		}
		c->completed++;
	}
	free_slots(c);
}

static void reap(struct vdata *c)
{
	struct ibv_wc wc;
	uint32_t end;
	int n, status;

	while ((n = ibv_poll_cq(c->link.cq, 1, &wc)) > 0)
		if (!c->failed && completed(c, &wc, &end, &status))
			settle(c, end, status);
	if (n < 0 && !c->failed)
		c->failed = -EIO;
}

static int report(struct vdata *c, struct soda_done *done, int max)
{
	int n = 0;

	for (; n < max && c->done != c->answered; n++) {
		const struct vrequest *r = request_at(c, c->done++);

		done[n] =
			(struct soda_done){ .cookie = r->cookie,
					    .bytes = r->bytes,
					    .status = r->status,
					    .data = stays(c, r) && !r->status ? slot_at(c, r->slot)
									      : NULL };
	}
	return n;
}

/* Completions in, requests out, answers reported: how many. */
static int turn(struct vdata *c, struct soda_done *done, int max)
{
	reap(c);
	pump(c);
	return report(c, done, max);
}

static int flush(struct vdata *c, bool polling)
{
	int ret = 0;

	if (c->flushed == c->posted)
		return c->failed;
	c->flushed = c->posted;
	c->polling = polling;
	if (!polling)
		ret = soda_verbs_link_arm(&c->link);
	reap(c);
	pump(c);
	/* answers that are here and not reported make the descriptor readable, too */
	if (!polling && c->done != c->answered && !c->poked) {
		soda_verbs_link_poke(&c->link, true);
		c->poked = true;
	}
	return c->done != c->answered ? 0 : c->failed ? c->failed : ret;
}

static int data_flush(struct soda_conn *conn, bool polling)
{
	int before = soda_verbs_uncancel(), ret = flush(data(conn), polling);

	soda_verbs_recancel(before);
	return ret;
}

/* Waiting */

/* Look busily for an answer, for at most spin_ns. */
static int look(struct vdata *c, struct soda_done *done, int max, int64_t spin_ns)
{
	int n = 0;

	if (spin_ns <= 0 || !soda_spin_begin(&c->spin, (uint64_t)spin_ns))
		return 0;
	do {
		for (int i = 0; i < 8; i++)
			soda_cpu_relax();
		n = turn(c, done, max);
	} while (n == 0 && !c->failed && soda_spin_again(&c->spin));
	if (n || c->failed)
		soda_spin_end(&c->spin, n > 0);
	return n;
}

static int await(struct vdata *c, struct soda_done *done, int max, int64_t timeout_ns,
		 int64_t spin_ns)
{
	uint64_t deadline_ns = timeout_ns > 0 ? soda_now_ns() + (uint64_t)timeout_ns : 0;
	int n = look(c, done, max, timeout_ns < 0 || spin_ns < timeout_ns ? spin_ns : timeout_ns);
	int64_t left;
	int ended;

	for (;;) {
		int ret = n || c->failed ? 0 : soda_verbs_link_arm(&c->link);

		if (n == 0)
			n = turn(c, done, max); /* what came before it was armed */
		if (n)
			return n;
		if (atomic_load_explicit(&c->conn.aborted, memory_order_acquire))
			return -ECONNABORTED;
		if (c->failed || ret < 0)
			return c->failed ? c->failed : ret;
		left = soda_time_left(deadline_ns, timeout_ns);
		ended = soda_verbs_link_sleep(&c->link, left);
		n = turn(c, done, max);
		if (n || ended < 0)
			return n ? n : ended;
		/* Not after an event that was for nothing: who sleeps at the descriptor is to get
		 * the next one. */
		if (left == 0 && c->link.armed)
			return 0;
	}
}

/* Nothing is under way: is the peer there? */
static int idle(struct vdata *c)
{
	soda_verbs_link_drain(&c->link);
	if (c->failed)
		return c->failed;
	return soda_verbs_link_ended(&c->link) ? -ECONNRESET : 0;
}

/* A waiter on the descriptor is told of new completions, not of those that are here. */
static int top_up(struct vdata *c, struct soda_done *done, int n, int max)
{
	if (!c->failed && soda_verbs_link_arm(&c->link) == 0)
		n += turn(c, done + n, max - n);
	return n;
}

static int data_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		     int64_t spin_ns)
{
	struct vdata *c = data(conn);
	int before = soda_verbs_uncancel(), n;

	release_reported(c);
	if (c->poked)
		soda_verbs_link_poke(&c->link, false);
	c->poked = false;
	n = turn(c, done, max);
	if (n == 0 && c->done == c->flushed)
		n = idle(c);
	else if (n == 0)
		n = await(c, done, max, timeout_ns, spin_ns);
	if (n > 0 && n < max && c->done != c->flushed)
		n = top_up(c, done, n, max);
	soda_verbs_recancel(before);
	return n;
}

static int data_fd(const struct soda_conn *conn)
{
	return data(conn)->link.fd;
}

static int data_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	return soda_verbs_link_device(&data(conn)->link, name);
}

static bool data_keeps(const struct soda_conn *conn)
{
	return data(conn)->two_sided.features & SODA_TWO_SIDED_KEEPS;
}

static void data_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = data(conn)->link.end_fd, .events = POLLIN };
}

static void data_abort(struct soda_conn *conn)
{
	soda_verbs_link_abort(&data(conn)->link);
}

/* Beginning and end */

enum { SIGNAL_BYTES = 64 << 10, SIGNAL_BYTES_DEEP = 256 << 10 };

static size_t arena_bytes(const struct vdata *c)
{
	return (size_t)c->slots * c->slot_bytes + SODA_WIRE_PAGE;
}

static void data_close(struct soda_conn *conn)
{
	struct vdata *c = data(conn);

	keyed_close(c);
	soda_verbs_link_stop(&c->link);
	soda_verbs_unregister(c->mr);
	if (c->arena)
		munmap(c->arena, arena_bytes(c));
	soda_verbs_link_close(&c->link);
	soda_regcache_put(c->regcache);
	free(c);
}

static const struct soda_conn_ops data_ops = {
	.close = data_close,
	.abort = data_abort,
	.fd = data_fd,
	.device = data_device,
	.keeps = data_keeps,
	.reach_keyed = data_reach_keyed,
	.end_poll = data_end_poll,
	.post = data_post,
	.flush = data_flush,
	.poll = data_poll,
};

/* Slots of the client's chunk size: what is fetched is a chunk, or a few at a time. */
static void choose_sizes(struct vdata *c, const struct soda_conn_options *opt, uint32_t chunk_bytes)
{
	bool fits = chunk_bytes >= SODA_WIRE_PAGE && chunk_bytes <= SODA_WIRE_MAX_DATA &&
		    chunk_bytes % SODA_WIRE_PAGE == 0;
	uint32_t most = SLOTS;

	c->slot_bytes = fits ? chunk_bytes : SODA_DIRTY_UNIT;
	c->slots = 2;
	if (peer_is_two_sided(c)) {
		most = c->two_sided.credits < most ? c->two_sided.credits : most;
		c->slots = 1;
		if (c->slot_bytes > c->two_sided.message_bytes)
			c->slot_bytes = c->two_sided.message_bytes;
	}
	while (2 * c->slots <= most && c->slots < opt->depth &&
	       2 * c->slots * c->slot_bytes <= ARENA)
		c->slots *= 2;
	c->signal_bytes = opt->deep ? SIGNAL_BYTES_DEEP : SIGNAL_BYTES;
	c->in_place = opt->in_place;
}

static int make_arena(struct vdata *c, struct soda_why *why)
{
	bool written = peer_is_two_sided(c) && c->two_sided.answer == SODA_ANSWER_WRITE;
	int access = IBV_ACCESS_LOCAL_WRITE | (written ? IBV_ACCESS_REMOTE_WRITE : 0);

	c->arena = soda_verbs_map(c->link.id->verbs, arena_bytes(c));
	if (!c->arena) {
		soda_why_set(why, "%s: no memory for a connection", c->conn.peer);
		return -ENOMEM;
	}
	memset(behind(c), 1, MARKS);
	c->base = written ? 0
			  : (uintptr_t)c->arena; /* transport/verbs/memory.c: offsets, for peers */
	return soda_verbs_register(c->link.pd, c->arena, arena_bytes(c), access, &c->mr, why);
}

/* A daemon's memory is its device's, not this connection's. */
static int choose_domain(struct vdata *c, struct soda_why *why)
{
	int ret = soda_memory_any() ? soda_regcache_get(c->link.id->verbs, &c->regcache) : 0;

	if (ret < 0)
		soda_why_set(why, "%s: no protection domain for a connection", c->conn.peer);
	else if (c->regcache)
		c->link.pd = c->regcache->pd;
	return ret;
}

static struct vdata *make(struct soda_verbs_link *l, const char *rest,
			  const struct soda_conn_options *opt)
{
	uint32_t requests = soda_ring_entries(opt->depth);
	struct vdata *c;

	c = calloc(1, sizeof(*c) + requests * sizeof(c->requests[0]));
	if (!c)
		return NULL;
	soda_conn_init(&c->conn, &data_ops, opt, SODA_VERBS_PREFIX, rest);
	c->link = *l;
	c->mask = requests - 1;
	soda_spin_init(&c->spin, NULL);
	return c;
}

int soda_verbs_data_create(struct soda_verbs_link *l, const char *rest,
			   const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			   uint64_t deadline_ns, struct soda_conn **conn_p,
			   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	/* a request may be two work requests, or a SEND and its answer's receive */
	const struct soda_verbs_room room = { .sends = 2 * SLOTS,
					      .receives = SLOTS,
					      .others = SLOTS };
	struct vdata *c = make(l, rest, opt);
	int ret;

	if (!c) {
		soda_why_set(why, "verbs://%.100s: no memory for a connection", rest);
		soda_verbs_link_close(l);
		return -ENOMEM;
	}
	c->hello = *hello;
	c->as = opt->identity;
	c->client_key = opt->client_key;
	ret = choose_domain(c, why);
	if (ret == 0)
		ret = soda_verbs_link_prepare(&c->link, &room, why);
	if (ret == 0)
		ret = soda_verbs_introduce(&c->link, rest, hello, c->as, c->client_key, NULL,
					   deadline_ns, welcome_p, &c->two_sided, why);
	/* the peer sends nothing before a request */
	choose_sizes(c, opt, hello->chunk_bytes);
	if (ret == 0)
		ret = make_arena(c, why);
	if (ret < 0) {
		data_close(&c->conn);
		return ret;
	}
	*conn_p = &c->conn;
	return 0;
}
