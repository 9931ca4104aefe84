/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's end of one queue. See server.h and queue.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lock.h"
#include "transport/api/payload.h"
#include "transport/shm/handed.h"
#include "transport/shm/server.h"

enum { SERVE_MAX = 64 }; /* requests of one connection before others' turn */

/* An install by us holds nobody up but a client whose memory map is busy: let it do it itself. */
#define SLOW_NS 100000000

static struct soda_qrequest *of(struct soda_request *rq)
{
	return (struct soda_qrequest *)rq;
}

/* Events, with the lock held */

static void put_event_locked(struct soda_qconn *c, const struct soda_queue_event *e)
{
	c->q.events[c->events_tail++ & (2 * c->q.n - 1)] = *e;
}

static void publish_locked(struct soda_qconn *c)
{
	soda_queue_publish(&c->q.head->events_tail, c->events_tail, &c->q.head->client_waits,
			   c->peer.fd);
}

/*
 * The answers that are no longer behind a pending one.  On a connection that the daemon has ended
 * none is any more: the client asks again on another one, and must not take what is left for a
 * refusal.
 */
static void publish_answers_locked(struct soda_qconn *c)
{
	uint32_t before = c->answered;

	if (c->ending || atomic_load(&c->unwanted))
		return;
	for (; c->answered != c->taken; c->answered++) {
		struct soda_qanswer *a = &c->answers[c->answered & (c->q.n - 1)];

		if (!a->ready)
			break;
		put_event_locked(c, &(struct soda_queue_event){ .kind = SODA_QUEUE_DONE,
								.installed = a->installed,
								.status = a->status,
								.slot = a->slot });
	}
	if (c->answered != before)
		publish_locked(c);
}

/* Answers of the daemon */

static bool may_install(struct soda_qconn *c)
{
	bool may;

	pthread_mutex_lock(&c->lock);
	may = !c->ending && !c->slow;
	c->installing += may;
	pthread_mutex_unlock(&c->lock);
	return may;
}

static void installed(struct soda_qconn *c, uint64_t took_ns)
{
	pthread_mutex_lock(&c->lock);
	c->slow = c->slow || took_ns > SLOW_NS;
	if (--c->installing == 0 && c->ending)
		shutdown(c->peer.fd, SHUT_RDWR);
	pthread_mutex_unlock(&c->lock);
}

/* Put the page into the client's memory. False: not done, or not all of it. */
static bool install(struct soda_qrequest *r, const uint8_t *from)
{
	struct soda_qconn *c = r->conn;
	_Atomic uint32_t *claim = &c->q.head->claim[r->slot];
	uint32_t offered = SODA_CLAIM_OFFERED;
	uint64_t begin_ns;
	int ret = -ECANCELED;

	if (!r->place || c->uffd < 0 || !may_install(c))
		return false;
	begin_ns = soda_now_ns();
	if (atomic_compare_exchange_strong_explicit(claim, &offered, SODA_CLAIM_TAKEN,
						    memory_order_acq_rel, memory_order_relaxed)) {
		ret = soda_handed_install(c->uffd, r->place, from, r->rq.bytes, r->protect);
		/* pairs with the acquire in the client's revoke */
		atomic_store_explicit(claim, SODA_CLAIM_OVER, memory_order_release);
	}
	installed(c, soda_now_ns() - begin_ns);
	return ret == 0;
}

static bool deliver(struct soda_qrequest *r, const struct soda_span *span)
{
	bool done = install(r, span->memory);

	assert(span->bytes == r->rq.bytes);
	if (!done && span->memory != r->rq.data)
		soda_payload_copy(r->rq.data, span->memory, span->bytes);
	r->conn->peer.listener->ops->release(r->rq.client, false, span, false);
	return done;
}

static void request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct soda_qrequest *r = of(rq);
	struct soda_qconn *c = r->conn;
	bool done = !rq->write && status == 0 && deliver(r, span);

	pthread_mutex_lock(&c->lock);
	c->answers[r->turn & (c->q.n - 1)] = (struct soda_qanswer){
		.ready = true,
		.installed = done,
		.status = (uint16_t)soda_status_from_errno(-status),
		.slot = r->slot,
	};
	if (!rq->write)
		r->busy = false;
	publish_answers_locked(c);
	/* with the lock held: the worker needs it to let go of the connection, and of itself */
	if (--c->pending == 0 && c->ending)
		soda_qworker_wake(c->worker);
	pthread_mutex_unlock(&c->lock);
}

/* With the lock held, which it releases. */
static void unref_locked(struct soda_qconn *c)
{
	bool last = --c->refs == 0;

	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	soda_queue_unmap(&c->q);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void request_free(struct soda_request *rq)
{
	struct soda_qrequest *r = of(rq);
	struct soda_qconn *c = r->conn;

	assert(rq->write);
	pthread_mutex_lock(&c->lock);
	r->busy = false;
	if (!c->gone) {
		put_event_locked(
			c, &(struct soda_queue_event){ .kind = SODA_QUEUE_FREE, .slot = r->slot });
		publish_locked(c);
	}
	unref_locked(c);
}

static const struct soda_request_ops request_ops = { .done = request_done, .free = request_free };

/* Requests */

/* Decode a copy of an entry. NULL, or what is wrong with it. */
static const char *decode(struct soda_qconn *c, const struct soda_queue_request *e,
			  struct soda_qrequest *r)
{
	struct soda_wire_write w;
	struct soda_wire_read rd;

	if ((e->imm & 0xff) == SODA_MSG_READ) {
		soda_wire_get_read(e->body, &rd);
		w = (struct soda_wire_write){ rd.region_id, rd.page_offset, rd.size };
	} else if ((e->imm & 0xff) == SODA_MSG_WRITE) {
		soda_wire_get_write(e->body, &w);
		rd.dest_addr = 0;
	} else {
		return "unknown request in the queue";
	}
	if (soda_wire_check_range(0, w.size, SODA_WIRE_MAX_DATA) < 0 || w.size > c->q.slot_bytes)
		return "a request of a size that is not allowed";
	if (rd.dest_addr % c->chunk_bytes)
		return "a READ to be installed where no chunk begins";
	r->rq = (struct soda_request){
		.ops = &request_ops,
		.client = c->peer.client,
		.peer = &c->peer,
		.offset = w.page_offset * SODA_WIRE_PAGE,
		.bytes = w.size,
		.region_id = w.region_id,
		.write = (e->imm & 0xff) == SODA_MSG_WRITE,
		.polling = e->imm >> 8 & SODA_WIRE_POLLING,
		.data = soda_queue_slot(&c->q, e->slot),
		.told = e->imm >> 8 & SODA_WIRE_HAS,
	};
	if (r->rq.told)
		soda_wire_get_has(e->has, &r->rq.has);
	r->conn = c;
	r->slot = e->slot;
	r->place = rd.dest_addr;
	r->protect = e->imm >> 8 & SODA_QUEUE_PROTECT;
	return NULL;
}

/* Give it its slot and its turn. NULL, or what is wrong. */
static const char *admit(struct soda_qconn *c, struct soda_qrequest *r)
{
	uint32_t head = atomic_load_explicit(&c->q.head->events_head, memory_order_acquire);
	const char *why = NULL;

	pthread_mutex_lock(&c->lock);
	if (c->taken - c->answered == c->q.n)
		why = "more requests than there are credits";
	else if (c->events_tail - head > 2 * c->q.n)
		why = "a client that does not take its answers";
	if (!why) {
		r->busy = true;
		r->turn = c->taken++;
		c->answers[r->turn & (c->q.n - 1)].ready = false;
		c->pending++;
		c->refs += r->rq.write;
	}
	pthread_mutex_unlock(&c->lock);
	return why;
}

static bool is_busy(struct soda_qconn *c, const struct soda_qrequest *r)
{
	bool busy;

	pthread_mutex_lock(&c->lock);
	busy = r->busy;
	pthread_mutex_unlock(&c->lock);
	return busy;
}

static const char *take(struct soda_qconn *c)
{
	struct soda_queue_request e;
	struct soda_qrequest *r;
	const char *why;

	/* copied once: the client may go on writing to it */
	memcpy(&e, (const void *)&c->q.requests[c->requests_head & (c->q.n - 1)], sizeof(e));
	__asm__ __volatile__("" : : "m"(e) : "memory");
	if (e.slot >= c->q.n)
		return "a slot that is not there";
	r = &c->requests[e.slot];
	if (is_busy(c, r))
		return "a slot that is in use";
	why = decode(c, &e, r);
	if (!why)
		why = admit(c, r);
	if (why)
		return why;
	c->requests_head++;
	c->wants_polling = r->rq.polling;
	r->rq.arrived_ns = soda_now_ns();
	c->peer.listener->ops->request(c->peer.client, &r->rq);
	return NULL;
}

int soda_qconn_serve(struct soda_qconn *c, const char **why_p)
{
	/* acquire: the entries, and the data of WRITEs, were written before */
	uint32_t tail = atomic_load_explicit(&c->q.head->requests_tail, memory_order_acquire);
	int n = 0;

	if (tail == c->requests_head)
		return 0;
	if (tail - c->requests_head > c->q.n) {
		*why_p = "a queue's index that cannot be";
		return -EPROTO;
	}
	for (; n < SERVE_MAX && c->requests_head != tail; n++) {
		*why_p = take(c);
		if (*why_p)
			return -EPROTO;
	}
	return n;
}

bool soda_qconn_may_sleep(struct soda_qconn *c)
{
	return soda_queue_may_sleep(&c->q.head->daemon_waits, &c->q.head->requests_tail,
				    c->requests_head);
}

bool soda_qconn_end(struct soda_qconn *c)
{
	bool idle;

	pthread_mutex_lock(&c->lock);
	if (!c->ending && !c->installing)
		shutdown(c->peer.fd, SHUT_RDWR);
	c->ending = true;
	idle = !c->pending;
	pthread_mutex_unlock(&c->lock);
	return idle;
}

void soda_qconn_destroy(struct soda_qconn *c)
{
	assert(!c->pending);
	c->peer.listener->ops->gone(c->peer.client, &c->peer);
	pthread_mutex_lock(&c->lock);
	c->gone = true;
	pthread_mutex_unlock(&c->lock);
	if (c->uffd >= 0)
		close(c->uffd);
	soda_peer_remove(&c->peer); /* the listener may be gone now */
	pthread_mutex_lock(&c->lock);
	unref_locked(c);
}
