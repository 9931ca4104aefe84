/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm data connections to a two-sided daemon, the side that connects: posts wait
 * here for a slot, travel through the queue of queue.h, and are reported in
 * their order.
 *
 *      done <= answered <= sent <= flushed <= posted          (free-running counters)
 *
 * Async-signal-safe after create.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "base/lock.h"
#include "base/own_fd.h"
#include "transport/api/rawsys.h"
#include "transport/api/spin.h"
#include "transport/shm/queue.h"
#include "transport/shm/shm.h"
#include "wire/field.h"

enum { RECV_TIMEOUT_S = 1 }; /* of a blocking recv: spares a ppoll where the limit is longer */

#define REVOKE_SPIN_NS 1000000 /* an install takes some 20 us, if nobody pre-empts it */

/* A slot, as far as we know. */
enum slot_state {
	SLOT_FREE = 0,
	SLOT_READ,  /* under way, or its data not yet used */
	SLOT_WRITE, /* under way */
	SLOT_FREED, /* of a WRITE: the daemon is through with it, the answer is not here yet */
	SLOT_KEPT,  /* of an answered WRITE: still the daemon's */
};

struct request {
	uint64_t cookie;
	uint64_t offset;
	uint64_t place; /* READ: where the daemon may install it, 0: nowhere */
	uint8_t *data;	/* READ: destination; WRITE: source */
	uint32_t bytes;
	uint32_t slot; /* from `sent` on */
	int status;
	uint16_t region_id;
	bool write, protect;
	bool stored; /* READ: may be answered by SODA_QUEUE_STORED */
	bool told;
	bool keep;	     /* WRITE: the agent is asked to keep its data */
	const uint8_t *code; /* WRITE of parity: of which data, instead of data */
	uint32_t code_bytes; /* then; or of `origin`, in place of data; else 0 */
	uint8_t origin[SODA_WIRE_ORIGIN_BYTES];
	uint8_t where;			      /* enum soda_queue_where, of the answer */
	struct soda_wire_residency residency; /* where told */
};

struct client {
	struct soda_conn conn;
	int fd;
	bool in_place;
	bool installs; /* the daemon has our userfaultfd */
	bool polling;  /* of the last flush */
	struct soda_queue q;
	struct soda_spin spin;
	uint32_t mask; /* requests - 1 */
	uint32_t done, answered, sent, flushed, posted;
	uint32_t released; /* slots of READs before this one have been given back; <= done */
	uint32_t events_head;
	uint8_t slots[SODA_QUEUE_MAX]; /* enum slot_state */
	struct request requests[];
};

static struct client *client(const struct soda_conn *conn)
{
	return (struct client *)(uintptr_t)conn;
}

static struct request *request_at(struct client *c, uint32_t i)
{
	return &c->requests[i & c->mask];
}

/* The data of the READs that were reported last have been used by now. */
static void release_reported(struct client *c)
{
	for (; c->released != c->done; c->released++) {
		const struct request *r = request_at(c, c->released);

		if (!r->write)
			c->slots[r->slot] = SLOT_FREE;
	}
}

/* Instead of data: which data are meant, that the agent has kept. */
static void name_kept(struct request *r, const struct soda_post *p)
{
	r->code = p->code;
	r->code_bytes = p->code_bytes;
	if (!p->origin)
		return;
	soda_wire_put_origin(r->origin, p->origin);
	r->code = NULL;
	r->code_bytes = sizeof(r->origin);
}

static int client_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct client *c = client(conn);

	release_reported(c);
	*request_at(c, c->posted) = (struct request){ .cookie = p->cookie,
						      .offset = p->offset,
						      .place = (uintptr_t)p->place,
						      .data = p->data,
						      .bytes = p->bytes,
						      .region_id = p->mr->region_id,
						      .write = p->write,
						      .protect = p->protect,
						      .stored = p->stored,
						      .keep = p->keep,
						      .told = p->residency };
	if (p->origin || p->code)
		name_kept(request_at(c, c->posted), p);
	if (p->residency)
		request_at(c, c->posted)->residency = *p->residency;
	c->posted++;
	return 0;
}

/* Sending */

/* The lowest that is free: memory that was never used is no memory. -1: none. */
static int find_slot(const struct client *c)
{
	for (uint32_t i = 0; i < c->q.n; i++)
		if (c->slots[i] == SLOT_FREE)
			return (int)i;
	return -1;
}

static void put_request(struct client *c, const struct request *r, bool polling)
{
	struct soda_queue_request *e = &c->q.requests[c->sent & (c->q.n - 1)];
	uint64_t page = r->offset / SODA_WIRE_PAGE;
	uint32_t flags = (polling ? SODA_WIRE_POLLING : 0) | (r->protect ? SODA_QUEUE_PROTECT : 0) |
			 (r->told ? SODA_WIRE_RESIDENCY : 0) | (r->stored ? SODA_WIRE_STORED : 0) |
			 (r->keep ? SODA_WIRE_KEEP : 0) | (r->code_bytes ? SODA_WIRE_KEPT : 0);

	e->imm = (r->write ? SODA_MSG_WRITE : SODA_MSG_READ) | flags << 8;
	e->slot = r->slot;
	if (r->write)
		soda_wire_put_write(e->body, &(struct soda_wire_write){ .region_id = r->region_id,
									.page_offset = page,
									.size = r->bytes });
	else
		soda_wire_put_read(e->body, &(struct soda_wire_read){ .region_id = r->region_id,
								      .page_offset = page,
								      .dest_addr = r->place,
								      .size = r->bytes });
	if (r->told)
		soda_wire_put_residency(e->residency, &r->residency);
	if (r->code_bytes)
		soda_wire_put_u32(e->residency, r->code_bytes);
}

/* What the slot of a WRITE gets. 0; -EFAULT: the data may not be read. */
static int fill_slot(uint8_t *slot, const struct request *r)
{
	if (!r->code_bytes)
		return soda_guard_copy(slot, r->data, r->bytes);
	memcpy(slot, r->code ? r->code : r->origin, r->code_bytes);
	return 0;
}

/* What was flushed goes, as far as there are slots. 0; -EFAULT: some of it may not be read. */
static int push(struct client *c)
{
	uint32_t before = c->sent;
	int ret = 0;

	while (c->sent != c->flushed && c->sent - c->answered < c->q.n) {
		struct request *r = request_at(c, c->sent);
		int slot = find_slot(c);

		if (slot < 0)
			break;
		if (r->write) {
			ret = fill_slot(soda_queue_slot(&c->q, (uint32_t)slot), r);
			if (ret)
				break;
		}
		r->slot = (uint32_t)slot;
		c->slots[slot] = r->write ? SLOT_WRITE : SLOT_READ;
		/* it is published together with the request */
		atomic_store_explicit(&c->q.head->claim[slot], r->place ? SODA_CLAIM_OFFERED : 0,
				      memory_order_relaxed);
		put_request(c, r, c->polling && c->sent + 1 == c->flushed);
		c->sent++;
	}
	if (c->sent == before)
		return ret;
	atomic_store_explicit(&c->q.head->client_cpu, (uint32_t)(sched_getcpu() + 1),
			      memory_order_relaxed);
	soda_queue_publish(&c->q.head->requests_tail, c->sent, &c->q.head->daemon_waits, c->fd);
	return ret;
}

static int client_flush(struct soda_conn *conn, bool polling)
{
	struct client *c = client(conn);

	if (c->flushed == c->posted)
		return 0;
	c->flushed = c->posted;
	c->polling = polling;
	/* who does not poll may wait on the socket, and not only in here (soda_conn_fd) */
	if (polling)
		soda_queue_awake(&c->q.head->client_waits);
	else
		atomic_store(&c->q.head->client_waits, 1);
	return push(c);
}

/* Answers */

/* Whether the request may be answered like this. */
static bool may_be(const struct request *r, const struct soda_queue_event *e)
{
	switch (e->where) {
	case SODA_QUEUE_IN_SLOT:
		return true;
	case SODA_QUEUE_INSTALLED:
		return r->place && !e->status;
	case SODA_QUEUE_STORED:
		return r->stored && !e->status;
	default:
		return false;
	}
}

/* 0 or -EPROTO */
static int take_done(struct client *c, const struct soda_queue_event *e)
{
	struct request *r = request_at(c, c->answered);

	if (c->answered == c->sent || e->slot != r->slot || !may_be(r, e))
		return -EPROTO;
	r->status = -soda_status_to_errno(e->status);
	r->where = e->where;
	if (r->write)
		c->slots[r->slot] = c->slots[r->slot] == SLOT_FREED ? SLOT_FREE : SLOT_KEPT;
	c->answered++;
	return 0;
}

static int take_free(struct client *c, const struct soda_queue_event *e)
{
	if (e->slot >= c->q.n ||
	    (c->slots[e->slot] != SLOT_WRITE && c->slots[e->slot] != SLOT_KEPT))
		return -EPROTO;
	c->slots[e->slot] = c->slots[e->slot] == SLOT_WRITE ? SLOT_FREED : SLOT_FREE;
	return 0;
}

/* All events that are there. 0 or -EPROTO. */
static int reap(struct client *c)
{
	/* acquire: the data in slots and the entries were written before */
	uint32_t tail = atomic_load_explicit(&c->q.head->events_tail, memory_order_acquire);
	int ret = 0;

	if (tail == c->events_head)
		return 0;
	if (tail - c->events_head > 2 * c->q.n)
		return -EPROTO;
	while (c->events_head != tail && ret == 0) {
		struct soda_queue_event e = c->q.events[c->events_head++ & (2 * c->q.n - 1)];

		if (e.kind == SODA_QUEUE_DONE)
			ret = take_done(c, &e);
		else
			ret = e.kind == SODA_QUEUE_FREE ? take_free(c, &e) : -EPROTO;
	}
	atomic_store_explicit(&c->q.head->events_head, tail, memory_order_release);
	return ret;
}

static int report(struct client *c, struct soda_done *done, int max)
{
	int n = 0;

	for (; n < max && c->done != c->answered; n++) {
		struct request *r = request_at(c, c->done++);
		const uint8_t *at = soda_queue_slot(&c->q, r->slot);
		bool data = !r->write && !r->status && r->where == SODA_QUEUE_IN_SLOT;

		if (data && !c->in_place)
			memcpy(r->data, at, r->bytes);
		done[n] = (struct soda_done){ .cookie = r->cookie,
					      .bytes = r->bytes,
					      .status = r->status,
					      .installed = r->where == SODA_QUEUE_INSTALLED,
					      .stored = r->where == SODA_QUEUE_STORED,
					      .data = data && c->in_place ? at : NULL };
	}
	if (!c->in_place)
		release_reported(c);
	return n;
}

/* Waiting */

/* Read the bytes that woke us. 0; or the peer has gone, or does what it must not. */
static int drain(struct client *c, int flags)
{
	uint8_t bytes[64];
	long n = raw_recv(c->fd, bytes, sizeof(bytes), flags);

	if (n == -EAGAIN || n == -EINTR || n > 0)
		return 0;
	return n < 0 ? (int)n : -ECONNRESET;
}

static bool quiet(struct client *c)
{
	return atomic_load_explicit(&c->q.head->events_tail, memory_order_relaxed) ==
	       c->events_head;
}

/* Busy-wait for an event, for at most spin_ns. */
static void spin(struct client *c, int64_t spin_ns)
{
	if (!quiet(c) || spin_ns <= 0 || !soda_spin_begin(&c->spin, (uint64_t)spin_ns))
		return;
	do {
		for (int i = 0; i < 16; i++)
			soda_cpu_relax();
		if (!quiet(c)) {
			soda_spin_end(&c->spin, true);
			return;
		}
	} while (soda_spin_again(&c->spin));
}

/* Sleep until there is an event, for at most `left` (< 0: no limit). As drain. */
static int sleep_for_event(struct client *c, int64_t left)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	if (!soda_queue_may_sleep(&c->q.head->client_waits, &c->q.head->events_tail,
				  c->events_head))
		return 0;
	if (left < 0 || left >= RECV_TIMEOUT_S * 1000000000ll)
		return drain(c, 0);
	if (left > 0)
		raw_poll(&p, 1, left);
	return drain(c, MSG_DONTWAIT);
}

/* Events in, requests out, answers reported. How many, or negative errno. */
static int turn(struct client *c, struct soda_done *done, int max)
{
	int ret = reap(c), n;

	if (ret < 0)
		return ret;
	n = report(c, done, max);
	if (c->sent != c->flushed)
		ret = push(c);
	return n ? n : ret;
}

static int await(struct client *c, struct soda_done *done, int max, int64_t timeout_ns,
		 int64_t spin_ns)
{
	uint64_t deadline_ns = timeout_ns > 0 ? soda_now_ns() + (uint64_t)timeout_ns : 0;
	int64_t left;
	int n, gone;

	spin(c, timeout_ns < 0 || spin_ns < timeout_ns ? spin_ns : timeout_ns);
	for (;;) {
		n = turn(c, done, max);
		if (n)
			return n;
		if (atomic_load_explicit(&c->conn.aborted, memory_order_acquire))
			return -ECONNABORTED;
		left = soda_time_left(deadline_ns, timeout_ns);
		gone = sleep_for_event(c, left);
		/* what was answered before the end counts */
		n = turn(c, done, max);
		if (n || gone < 0)
			return n ? n : gone;
		if (left == 0)
			return 0;
	}
}

static int client_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		       int64_t spin_ns)
{
	struct client *c = client(conn);
	int n;

	release_reported(c);
	n = turn(c, done, max);
	if (n == 0 && c->done == c->flushed)
		return drain(c, MSG_DONTWAIT);
	if (n == 0)
		n = await(c, done, max, timeout_ns, spin_ns);
	if (n <= 0)
		return n;
	if (c->done == c->flushed)
		soda_queue_awake(&c->q.head->client_waits);
	else if (n < max && !soda_queue_may_sleep(&c->q.head->client_waits, &c->q.head->events_tail,
						  c->events_head)) {
		/* a waiter on the descriptor is told of new completions, not of those that are here
		 */
		int more = turn(c, done + n, max - n);

		n = more > 0 ? n + more : n;
	}
	return n;
}

/* Ending */

/* The peer's process or its end of the connection is no more. */
static bool has_gone(struct client *c)
{
	struct pollfd p = { .fd = c->fd };

	return raw_poll(&p, 1, 0) > 0 && (p.revents & POLLHUP);
}

/* false: the daemon is at it. */
static bool take_back(struct client *c, uint32_t slot)
{
	_Atomic uint32_t *claim = &c->q.head->claim[slot];
	uint32_t is = SODA_CLAIM_OFFERED;

	/* acquire: pairs with the release of OVER, the pages are there */
	return atomic_compare_exchange_strong_explicit(claim, &is, SODA_CLAIM_REVOKED,
						       memory_order_acq_rel,
						       memory_order_acquire) ||
	       is != SODA_CLAIM_TAKEN;
}

static int client_revoke(struct soda_conn *conn)
{
	struct client *c = client(conn);
	uint64_t begin_ns = soda_now_ns();

	for (uint32_t i = c->answered; i != c->sent; i++) {
		while (!take_back(c, request_at(c, i)->slot)) {
			if (has_gone(c))
				break;
			if (soda_now_ns() - begin_ns > REVOKE_SPIN_NS)
				return -EAGAIN;
			soda_cpu_relax();
		}
	}
	return 0;
}

static bool client_installs(const struct soda_conn *conn)
{
	return client(conn)->installs;
}

static bool client_keeps(const struct soda_conn *conn)
{
	return client(conn)->q.keeps;
}

static int client_fd(const struct soda_conn *conn)
{
	return client(conn)->fd;
}

/*
 * Only what we receive is cut off, which ends any sleep: the connection's real end
 * must stay to be told apart, see has_gone.
 */
static void client_abort(struct soda_conn *conn)
{
	static const char bye = SODA_QUEUE_BYE;

	syscall(SYS_sendto, client(conn)->fd, &bye, 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	syscall(SYS_shutdown, client(conn)->fd, SHUT_RD);
}

static void client_close(struct soda_conn *conn)
{
	struct client *c = client(conn);

	soda_fd_close(c->fd);
	soda_queue_unmap(&c->q);
	free(c);
}

static const struct soda_conn_ops client_ops = {
	.close = client_close,
	.abort = client_abort,
	.fd = client_fd,
	.post = client_post,
	.flush = client_flush,
	.poll = client_poll,
	.installs = client_installs,
	.keeps = client_keeps,
	.revoke = client_revoke,
};

int soda_shm_client_create(int fd, int queue_fd, const char *rest,
			   const struct soda_conn_options *opt, struct soda_conn **conn_p,
			   struct soda_why *why)
{
	struct timeval patience = { .tv_sec = RECV_TIMEOUT_S };
	uint32_t requests = soda_ring_entries(opt->depth);
	struct client *c;
	int ret;

	c = calloc(1, sizeof(*c) + requests * sizeof(c->requests[0]));
	ret = c ? soda_queue_map(queue_fd, &c->q, why) : -ENOMEM;
	soda_fd_close(queue_fd);
	if (ret < 0) {
		free(c);
		soda_fd_close(fd);
		return ret;
	}
	soda_conn_init(&c->conn, &client_ops, opt, SODA_SHM_PREFIX, rest);
	c->conn.max_data = c->q.slot_bytes;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	c->fd = fd;
	c->in_place = opt->in_place;
	c->installs = opt->hand_over;
	c->mask = requests - 1;
	soda_spin_init(&c->spin, NULL);
	*conn_p = &c->conn;
	return 0;
}
