/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data connections on verbs, the side that connects: one-sided READ and WRITE between
 * the server's memory and registered staging slots of ours.  Registered once, when the
 * connection is made: neither the program's pages nor what the caller gave is ever
 * pinned.  A READ that fits a slot and whose caller takes it in place is not copied.
 *
 * Requests are cut into pieces of at most a slot; both are rings with free-running
 * counters, and everything completes in the order of the posts:
 *
 *      released <= done <= answered <= issued <= flushed <= posted     requests
 *      freed <= completed <= sent                                      pieces
 *
 * Piece k has slot k mod slots, until its data are where they belong: a READ in place
 * keeps its slot until the caller's next post or poll (`released`).  Only the last
 * piece of what goes at once makes a completion, and one for every so many bytes: it
 * tells of all before it.
 *
 * Async-signal-safe after create.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/lock.h"
#include "rawsys.h"
#include "spin.h"
#include "verbs.h"

enum {
	SLOTS_MAX = 16,
	ARENA_BYTES = 1 << 20, /* of the slots; at least two of them */
	SIGNAL_BYTES = 64 << 10,
	SIGNAL_BYTES_DEEP = 256 << 10,
	MARKS_MAX = SODA_WIRE_MAX_DATA / SODA_DIRTY_UNIT + 1,
};

struct request {
	uint64_t cookie;
	uint64_t offset;
	uint64_t marks_at; /* WRITE: of its first dirty mark */
	uint8_t *data;
	uint32_t bytes;
	uint32_t rkey;
	uint32_t slot; /* READ in place, from its answer on */
	uint8_t marks; /* WRITE: how many dirty marks; 0: none */
	bool write;
};

struct piece {
	uint32_t request, offset, bytes;
};

struct data {
	struct soda_conn conn;
	struct soda_verbs_link link;
	struct ibv_mr *mr;
	uint8_t *arena; /* the slots, and behind them a page of dirty marks */
	uint32_t slot_bytes, slots;
	uint32_t signal_bytes;
	bool in_place;
	bool poked; /* soda_verbs_link_poke */
	int failed; /* of the queue pair: 0, or negative errno */
	struct soda_spin spin;
	uint32_t mask; /* requests - 1 */
	uint32_t released, done, answered, issued, flushed, posted;
	uint32_t issued_bytes; /* of request `issued` */
	uint32_t freed, completed, sent;
	uint32_t unsignalled;
	struct piece pieces[SLOTS_MAX];
	struct ibv_send_wr wr[2 * SLOTS_MAX];
	struct ibv_sge sge[2 * SLOTS_MAX];
	struct request requests[];
};

static struct data *data(const struct soda_conn *conn)
{
	return (struct data *)(uintptr_t)conn;
}

static struct request *request_at(struct data *c, uint32_t i)
{
	return &c->requests[i & c->mask];
}

static uint8_t *slot_at(const struct data *c, uint32_t piece)
{
	return c->arena + (size_t)(piece & (c->slots - 1)) * c->slot_bytes;
}

/* Its data stay in the slot for the caller to use. */
static bool stays(const struct data *c, const struct request *r)
{
	return c->in_place && !r->write && r->bytes <= c->slot_bytes;
}

/* Slots */

static void free_slots(struct data *c)
{
	while (c->freed != c->completed) {
		const struct piece *p = &c->pieces[c->freed & (c->slots - 1)];

		if ((int32_t)(p->request - c->released) >= 0 && stays(c, request_at(c, p->request)))
			break;
		c->freed++;
	}
}

/* The data of what was reported last have been used by now. */
static void release_reported(struct data *c)
{
	if (c->released == c->done)
		return;
	c->released = c->done;
	free_slots(c);
}

static int data_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct data *c = data(conn);
	struct request *r = request_at(c, c->posted);
	uint64_t unit = p->offset / SODA_DIRTY_UNIT;

	if (!p->mr->keyed)
		return -EINVAL;
	release_reported(c);
	*r = (struct request){ .cookie = p->cookie,
			       .offset = p->offset,
			       .data = p->data,
			       .bytes = p->bytes,
			       .rkey = p->mr->rkey,
			       .write = p->write };
	if (p->write && p->mr->dirty_at) {
		r->marks_at = p->mr->dirty_at + unit;
		r->marks = (uint8_t)((p->offset + p->bytes - 1) / SODA_DIRTY_UNIT - unit + 1);
	}
	c->posted++;
	return 0;
}

/* Sending */

static void add(struct data *c, uint32_t n, const void *local, uint32_t bytes, uint64_t remote,
		const struct request *r)
{
	c->sge[n] =
		(struct ibv_sge){ .addr = (uintptr_t)local, .length = bytes, .lkey = c->mr->lkey };
	c->wr[n] = (struct ibv_send_wr){
		.wr_id = c->sent + 1u,
		.next = &c->wr[n + 1],
		.sg_list = &c->sge[n],
		.num_sge = 1,
		.opcode = r->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = remote, .rkey = r->rkey },
	};
	if (r->write && bytes <= c->link.inline_bytes)
		c->wr[n].send_flags = IBV_SEND_INLINE;
}

/* The next piece: one work request, or two. How many there are now. */
static uint32_t add_piece(struct data *c, uint32_t n)
{
	const struct request *r = request_at(c, c->issued);
	uint8_t *slot = slot_at(c, c->sent);
	uint32_t left = r->bytes - c->issued_bytes;
	uint32_t bytes = left < c->slot_bytes ? left : c->slot_bytes;

	if (r->write)
		memcpy(slot, r->data + c->issued_bytes, bytes);
	add(c, n++, slot, bytes, r->offset + c->issued_bytes, r);
	/* behind the data: a server that clears a mark and saves the unit has them, or sees it
	 * again */
	if (bytes == left && r->marks)
		add(c, n++, c->arena + (size_t)c->slots * c->slot_bytes, r->marks, r->marks_at, r);
	c->pieces[c->sent & (c->slots - 1)] =
		(struct piece){ .request = c->issued, .offset = c->issued_bytes, .bytes = bytes };
	c->unsignalled += bytes;
	if (c->unsignalled >= c->signal_bytes) {
		c->wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
		c->unsignalled = 0;
	}
	c->sent++;
	c->issued_bytes += bytes;
	if (bytes == left) {
		c->issued++;
		c->issued_bytes = 0;
	}
	return n;
}

/* What was flushed goes, as far as there are slots: one chain, one doorbell. */
static void pump(struct data *c)
{
	struct ibv_send_wr *bad;
	uint32_t n = 0;
	int ret;

	while (!c->failed && c->issued != c->flushed && c->sent - c->freed < c->slots)
		n = add_piece(c, n);
	if (!n)
		return;
	c->wr[n - 1].next = NULL;
	c->wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	c->unsignalled = 0;
	ret = ibv_post_send(c->link.id->qp, c->wr, &bad);
	if (ret)
		c->failed = ret == EINVAL ? -ECONNRESET : -ret; /* EINVAL: it is in error */
}

/* Completions */

/* Everything before piece `end` is here. */
static void settle(struct data *c, uint32_t end)
{
	while (c->completed != end && c->completed != c->sent) {
		const struct piece *p = &c->pieces[c->completed & (c->slots - 1)];
		struct request *r = request_at(c, p->request);
		uint8_t *slot = slot_at(c, c->completed);

		if (!r->write && !stays(c, r))
			memcpy(r->data + p->offset, slot, p->bytes);
		if (p->offset + p->bytes == r->bytes) {
			r->slot = c->completed & (c->slots - 1);
			c->answered++;
		}
		c->completed++;
	}
	free_slots(c);
}

static void reap(struct data *c)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(c->link.cq, 1, &wc)) > 0) {
		if (c->failed)
			continue;
		if (wc.status == IBV_WC_SUCCESS) {
			settle(c, (uint32_t)wc.wr_id);
		} else {
			settle(c, (uint32_t)wc.wr_id - 1);
			c->failed = soda_verbs_link_error(wc.status, c->conn.peer);
		}
	}
	if (n < 0 && !c->failed)
		c->failed = -EIO;
}

static int report(struct data *c, struct soda_done *done, int max)
{
	int n = 0;

	for (; n < max && c->done != c->answered; n++) {
		const struct request *r = request_at(c, c->done++);

		done[n] = (struct soda_done){ .cookie = r->cookie,
					      .bytes = r->bytes,
					      .data = stays(c, r) ? slot_at(c, r->slot) : NULL };
	}
	return n;
}

/* Completions in, requests out, answers reported: how many. */
static int turn(struct data *c, struct soda_done *done, int max)
{
	reap(c);
	pump(c);
	return report(c, done, max);
}

static int flush(struct data *c, bool polling)
{
	int ret = 0;

	if (c->flushed == c->posted)
		return c->failed;
	c->flushed = c->posted;
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
static int look(struct data *c, struct soda_done *done, int max, int64_t spin_ns)
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

static int64_t until(uint64_t deadline_ns, int64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns <= 0)
		return timeout_ns;
	now = soda_now_ns();
	return now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
}

static int await(struct data *c, struct soda_done *done, int max, int64_t timeout_ns,
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
		left = until(deadline_ns, timeout_ns);
		ended = soda_verbs_link_sleep(&c->link, left);
		n = turn(c, done, max);
		if (n || ended < 0)
			return n ? n : ended;
		if (left == 0)
			return 0;
	}
}

/* Nothing is under way: is the peer there? */
static int idle(struct data *c)
{
	soda_verbs_link_drain(&c->link);
	if (c->failed)
		return c->failed;
	return soda_verbs_link_ended(&c->link) ? -ECONNRESET : 0;
}

/* Whoever waits on the descriptor now is told of what comes, not of what is here. */
static int top_up(struct data *c, struct soda_done *done, int n, int max)
{
	if (!c->failed && soda_verbs_link_arm(&c->link) == 0)
		n += turn(c, done + n, max - n);
	return n;
}

static int data_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		     int64_t spin_ns)
{
	struct data *c = data(conn);
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

static void data_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = data(conn)->link.end_fd, .events = POLLIN };
}

static void data_abort(struct soda_conn *conn)
{
	soda_verbs_link_abort(&data(conn)->link);
}

/* Making and ending */

static size_t arena_bytes(const struct data *c)
{
	return (size_t)c->slots * c->slot_bytes + SODA_WIRE_PAGE;
}

static void data_close(struct soda_conn *conn)
{
	struct data *c = data(conn);

	soda_verbs_link_stop(&c->link);
	soda_verbs_unregister(c->mr);
	if (c->arena)
		munmap(c->arena, arena_bytes(c));
	soda_verbs_link_close(&c->link);
	free(c);
}

static const struct soda_conn_ops data_ops = {
	.close = data_close,
	.abort = data_abort,
	.fd = data_fd,
	.device = data_device,
	.end_poll = data_end_poll,
	.post = data_post,
	.flush = data_flush,
	.poll = data_poll,
};

static int make_arena(struct data *c, struct soda_why *why)
{
	c->arena = soda_verbs_map(c->link.id->verbs, arena_bytes(c));
	if (!c->arena) {
		soda_why_set(why, "%s: no memory for a connection", c->conn.peer);
		return -ENOMEM;
	}
	memset(c->arena + (size_t)c->slots * c->slot_bytes, 1, MARKS_MAX);
	return soda_verbs_register(c->link.pd, c->arena, arena_bytes(c), IBV_ACCESS_LOCAL_WRITE,
				   &c->mr, why);
}

/* Slots of the client's chunk size: what is fetched is a chunk, or a few at a time. */
static void choose_sizes(struct data *c, const struct soda_conn_options *opt, uint32_t chunk_bytes)
{
	bool fits = chunk_bytes >= SODA_WIRE_PAGE && chunk_bytes <= SODA_WIRE_MAX_DATA &&
		    chunk_bytes % SODA_WIRE_PAGE == 0;

	c->slot_bytes = fits ? chunk_bytes : SODA_DIRTY_UNIT;
	c->slots = 2;
	while (c->slots < SLOTS_MAX && c->slots < opt->depth &&
	       2 * c->slots * c->slot_bytes <= ARENA_BYTES)
		c->slots *= 2;
	c->signal_bytes = opt->deep ? SIGNAL_BYTES_DEEP : SIGNAL_BYTES;
	c->in_place = opt->in_place;
}

int soda_verbs_data_create(struct soda_verbs_link *l, const char *rest,
			   const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			   uint64_t deadline_ns, struct soda_conn **conn_p,
			   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_verbs_room room = { .sends = 2 * SLOTS_MAX, .receives = 1 };
	uint32_t requests = 1;
	struct data *c;
	int ret;

	while (requests < opt->depth)
		requests *= 2;
	c = calloc(1, sizeof(*c) + requests * sizeof(c->requests[0]));
	if (!c) {
		soda_why_set(why, "verbs://%.100s: no memory for a connection", rest);
		soda_verbs_link_close(l);
		return -ENOMEM;
	}
	soda_conn_init(&c->conn, &data_ops, opt, SODA_VERBS_PREFIX, rest);
	c->link = *l;
	c->mask = requests - 1;
	soda_spin_init(&c->spin, NULL);
	choose_sizes(c, opt, hello->chunk_bytes);
	ret = soda_verbs_link_prepare(&c->link, &room, why);
	if (ret == 0)
		ret = make_arena(c, why);
	if (ret == 0)
		ret = soda_verbs_link_connect(&c->link, rest, hello, deadline_ns, welcome_p, why);
	if (ret < 0) {
		data_close(&c->conn);
		return ret;
	}
	*conn_p = &c->conn;
	return 0;
}
