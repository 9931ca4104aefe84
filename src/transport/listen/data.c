/* SPDX-License-Identifier: BSD-3-Clause */
/* The data-plane protocol of the listening side, and requests that a two-sided daemon answers
 * later. See data.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "base/limits.h"
#include "base/lock.h"
#include "transport/listen/worker.h"
#include "transport/stream/stream.h"

enum { COMPANY_BYTES = 64 << 10 }; /* of a WRITE still to come: some microseconds */

static const struct soda_service *ops(const struct soda_stream_conn *c)
{
	return c->peer.listener->ops;
}

static bool tx_full(const struct soda_stream_conn *c)
{
	return c->tx_tail - c->tx_head == SODA_TX_REPLIES;
}

static void reject(struct soda_stream_conn *c, const char *why)
{
	c->closing = true;
	soda_peer_rejected(&c->peer, why);
}

/* Requests of a two-sided daemon, and the places of answers in the queue */

struct stream_request {
	struct soda_request rq;
	struct soda_stream_conn *conn; /* until done */
	uint32_t place;		       /* of the answer */
};

static struct stream_request *stream_request(struct soda_request *rq)
{
	return (struct stream_request *)rq;
}

static struct soda_answer *answer_take(struct soda_stream_conn *c, const uint8_t *tag)
{
	struct soda_answer *a = &c->tx[c->tx_tail % SODA_TX_REPLIES];

	assert(c->tx_tail - c->tx_head < SODA_TX_REPLIES);
	atomic_store_explicit(&a->ready, false, memory_order_relaxed);
	memset(a->head, 0, sizeof(a->head));
	memcpy(a->head + SODA_WIRE_HEAD_BYTES - SODA_WIRE_TAG_BYTES, tag, SODA_WIRE_TAG_BYTES);
	c->tx_tail++;
	return a;
}

static void answer_set(struct soda_answer *a, enum soda_msg type, int err,
		       const struct soda_span *span)
{
	struct soda_wire_frame frame = {
		.type = (uint8_t)type,
		.status = (uint16_t)soda_status_from_errno(-err),
		.length = SODA_WIRE_TAG_BYTES + (span ? span->bytes : 0),
	};

	soda_wire_put_frame(a->head, &frame);
	if (span)
		a->span = *span;
	else
		a->span.bytes = 0;
	/* pairs with the acquire in soda_stream_conn_aim_send */
	atomic_store_explicit(&a->ready, true, memory_order_release);
}

static void request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct stream_request *r = stream_request(rq);
	struct soda_stream_conn *c = r->conn;
	struct soda_worker *w = c->worker;
	struct soda_answer *a = &c->tx[r->place % SODA_TX_REPLIES];
	enum soda_msg type = rq->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY;

	r->conn = NULL;
	if (!rq->write)
		free(r);
	/* once it is ready and the lock is free the connection may end, and the worker, too */
	pthread_mutex_lock(&w->lock);
	answer_set(a, type, status, status < 0 || type == SODA_MSG_WRITE_REPLY ? NULL : span);
	c->answered++;
	soda_worker_push_locked(w, c);
	pthread_mutex_unlock(&w->lock);
}

static void request_free(struct soda_request *rq)
{
	assert(rq->write && !stream_request(rq)->conn);
	free(stream_request(rq));
}

static const struct soda_request_ops request_ops = { .done = request_done, .free = request_free };

/* more: bytes of memory behind it. */
static struct soda_request *request_with(struct soda_stream_conn *c, size_t more)
{
	struct stream_request *r = malloc(sizeof(*r) + more);

	if (!r)
		return NULL;
	*r = (struct stream_request){
		.rq = { .ops = &request_ops, .client = c->peer.client, .peer = &c->peer },
		.conn = c,
	};
	return &r->rq;
}

static struct soda_request *request_new(struct soda_stream_conn *c)
{
	return request_with(c, 0);
}

static void request_drop(struct soda_request *rq)
{
	free(stream_request(rq));
}

static void request_deliver(struct soda_stream_conn *c, struct soda_request *rq, const uint8_t *tag)
{
	stream_request(rq)->place = c->tx_tail;
	answer_take(c, tag);
	rq->arrived_ns = soda_now_ns();
	rq->polling = c->wants_polling;
	c->pending++;
	if (!c->rung) {
		c->rung = true;
		c->rung_next = c->worker->rung;
		c->worker->rung = c;
	}
	c->peer.listener->ops->request(c->peer.client, rq);
}

/* Answers */

static void queue_answer(struct soda_stream_conn *c, enum soda_msg type, int err,
			 const uint8_t *tag, const struct soda_span *span)
{
	answer_set(answer_take(c, tag), type, err, span);
}

static size_t answer_bytes(const struct soda_answer *a)
{
	return SODA_WIRE_HEAD_BYTES + (size_t)a->span.bytes;
}

/*
 * Bare acknowledgements wait for the next one, whose WRITE is half here: each send of its own
 * costs both sides a wake-up.
 */
static bool company_comes(const struct soda_stream_conn *c, size_t bytes)
{
	return c->writing && c->write_left <= COMPANY_BYTES &&
	       bytes < SODA_TX_BATCH * SODA_WIRE_HEAD_BYTES;
}

bool soda_stream_conn_aim_send(struct soda_stream_conn *c)
{
	size_t skip = c->tx_offset, total = 0;
	int n = 0;

	if (c->closing)
		return false;
	for (uint32_t i = c->tx_head; i != c->tx_tail && n <= 2 * SODA_TX_BATCH - 2; i++) {
		struct soda_answer *a = &c->tx[i % SODA_TX_REPLIES];

		if (!atomic_load_explicit(&a->ready, memory_order_acquire))
			break;
		if (n && total + answer_bytes(a) > SODA_TX_BATCH_BYTES)
			break;
		total += answer_bytes(a);
		n = soda_iov_add(c->tx_iov, n, a->head, sizeof(a->head), &skip);
		n = soda_iov_add(c->tx_iov, n, a->span.memory, a->span.bytes, &skip);
	}
	c->tx_msg = (struct msghdr){ .msg_iov = c->tx_iov, .msg_iovlen = (size_t)n };
	return n > 0 && !company_comes(c, total);
}

/* Requests */

static void deliver_read(struct soda_stream_conn *c, const struct soda_wire_read *read,
			 const uint8_t *tag, const uint8_t *residency)
{
	struct soda_request *rq = request_new(c);

	if (!rq) {
		queue_answer(c, SODA_MSG_READ_REPLY, -ENOMEM, tag, NULL);
		return;
	}
	rq->region_id = read->region_id;
	rq->offset = read->page_offset * SODA_WIRE_PAGE;
	rq->bytes = read->size;
	rq->told = residency;
	if (residency)
		soda_wire_get_residency(residency, &rq->residency);
	request_deliver(c, rq, tag);
}

/* residency: a soda_wire_residency, or NULL. */
static void start_read(struct soda_stream_conn *c, const uint8_t *in, const uint8_t *residency)
{
	struct soda_wire_read read;
	struct soda_span span;
	const uint8_t *tag = in + 8; /* dest_addr as it came */
	int ret;

	soda_wire_get_read(in, &read);
	/* the region is the daemon's to know; only the size counts here */
	if (soda_wire_check_range(0, read.size, SODA_WIRE_MAX_DATA) < 0) {
		reject(c, "a READ of a size that is not allowed");
		return;
	}
	if (ops(c)->request) {
		deliver_read(c, &read, tag, residency);
		return;
	}
	ret = ops(c)->translate(c->peer.client, false, read.region_id, read.page_offset, read.size,
				&span);
	queue_answer(c, SODA_MSG_READ_REPLY, ret, tag, ret < 0 ? NULL : &span);
}

/* What tells the daemon of the WRITE is there before the data are. */
static void prepare_write(struct soda_stream_conn *c)
{
	c->write_rq = request_new(c);
	if (c->write_rq)
		return;
	ops(c)->release(c->peer.client, true, &c->write_span, false);
	c->write_status = -ENOMEM;
	c->discard = true;
}

static void deliver_write(struct soda_stream_conn *c, const uint8_t *tag)
{
	struct soda_request *rq = c->write_rq;

	c->write_rq = NULL;
	rq->write = true;
	rq->region_id = c->write.region_id;
	rq->offset = c->write.page_offset * SODA_WIRE_PAGE;
	rq->bytes = c->write.size;
	rq->data = c->write_span.memory;
	rq->hold = c->write_span.hold;
	rq->keep = c->write_keep;
	request_deliver(c, rq, tag);
}

static int find_memory(struct soda_stream_conn *c)
{
	const struct soda_wire_write *w = &c->write;

	if (ops(c)->reserve)
		return ops(c)->reserve(c->peer.client, &c->peer, w->region_id, w->page_offset,
				       w->size, &c->write_span);
	return ops(c)->translate(c->peer.client, true, w->region_id, w->page_offset, w->size,
				 &c->write_span);
}

static void start_write(struct soda_stream_conn *c, const uint8_t *in, uint32_t length)
{
	soda_wire_get_write(in, &c->write);
	if (soda_wire_check_range(0, c->write.size, SODA_WIRE_MAX_DATA) < 0 ||
	    length != SODA_WIRE_WRITE_BYTES + c->write.size) {
		reject(c, "a WRITE of a size that is not allowed");
		return;
	}
	c->write_status = find_memory(c);
	if (c->write_status == -EAGAIN) {
		c->paused = true; /* the request stays where it is */
		return;
	}
	c->discard = c->write_status < 0;
	if (!c->discard && ops(c)->request)
		prepare_write(c);
	c->rx_begin += SODA_WIRE_HEAD_BYTES;
	c->write_left = c->write.size;
	c->writing = true;
	c->writes++;
}

/* A WRITE of data that a two-sided peer has kept; code: of parity of such data, or NULL. */
static void start_kept(struct soda_stream_conn *c, const uint8_t *in,
		       const struct soda_wire_code *code)
{
	const uint8_t *body = in + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES;
	struct soda_wire_write write;
	struct soda_request *rq;

	soda_wire_get_write(body, &write);
	if (soda_wire_check_range(0, write.size, SODA_WIRE_MAX_DATA) < 0) {
		reject(c, "a WRITE of a size that is not allowed");
		return;
	}
	rq = request_with(c, code ? sizeof(*code) : 0);
	if (!rq) {
		queue_answer(c, SODA_MSG_WRITE_REPLY, -ENOMEM, body, NULL);
		return;
	}
	rq->write = rq->kept = true;
	rq->region_id = write.region_id;
	rq->offset = write.page_offset * SODA_WIRE_PAGE;
	rq->bytes = write.size;
	soda_wire_get_origin(in + SODA_WIRE_FRAME_BYTES, &rq->origin);
	if (code)
		rq->code = memcpy(stream_request(rq) + 1, code, sizeof(*code));
	request_deliver(c, rq, body);
}

/* `bytes` of a WRITE's data are where they belong. */
static void write_landed(struct soda_stream_conn *c, uint32_t bytes)
{
	uint8_t tag[SODA_WIRE_WRITE_BYTES];

	c->write_left -= bytes;
	if (c->write_left)
		return;
	c->writing = false;
	soda_wire_put_write(tag, &c->write); /* its first eight bytes are the tag */
	if (c->write_rq) {
		deliver_write(c, tag);
		return;
	}
	if (!c->discard)
		ops(c)->release(c->peer.client, true, &c->write_span, true);
	queue_answer(c, SODA_MSG_WRITE_REPLY, c->write_status, tag, NULL);
}

static uint8_t *write_at(const struct soda_stream_conn *c)
{
	return c->write_span.memory + (c->write.size - c->write_left);
}

/* Data of a WRITE that came together with its header. */
static void take_data(struct soda_stream_conn *c)
{
	uint32_t have = c->rx_end - c->rx_begin;
	uint32_t n = have < c->write_left ? have : c->write_left;

	if (!c->discard)
		memcpy(write_at(c), c->rx + c->rx_begin, n);
	c->rx_begin += n;
	write_landed(c, n);
}

/*
 * Shares: a request that may not go on yet stays where it is, and nothing is received.  The peer's
 * number of bytes has not been checked: what is too large ends the connection, and costs no more
 * than what may be.
 */
static bool may_go_on(struct soda_stream_conn *c, uint32_t bytes)
{
	return !c->share ||
	       soda_worker_admits(c, bytes < SODA_WIRE_MAX_DATA ? bytes : SODA_WIRE_MAX_DATA);
}

static bool read_may_go_on(struct soda_stream_conn *c, const uint8_t *in)
{
	struct soda_wire_read read;

	if (!c->share)
		return true;
	soda_wire_get_read(in, &read);
	return may_go_on(c, read.size);
}

/* Of the tenant's rate it takes what its data would: the member gets them. */
static bool kept_may_go_on(struct soda_stream_conn *c, const uint8_t *in)
{
	struct soda_wire_write write;

	soda_wire_get_write(in + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES, &write);
	return may_go_on(c, write.size);
}

/* The code behind a WRITE's header: have bytes of both are there. False: not all, or it was bad. */
static bool take_coded(struct soda_stream_conn *c, const uint8_t *in, uint32_t have, uint32_t bytes)
{
	struct soda_wire_code code;

	if (bytes > SODA_WIRE_CODE_BYTES_MAX) {
		reject(c, "a code of more pieces than there may be");
		return false;
	}
	if (have < SODA_WIRE_HEAD_BYTES + bytes || !kept_may_go_on(c, in))
		return false;
	if (!soda_wire_get_code(in + SODA_WIRE_HEAD_BYTES, bytes, &code)) {
		reject(c, "a code that makes no sense");
		return false;
	}
	c->rx_begin += SODA_WIRE_HEAD_BYTES + bytes;
	start_kept(c, in, &code);
	return true;
}

/* One request, if it is all there. False: it is not, or it was bad. */
static bool take_request(struct soda_stream_conn *c)
{
	const uint8_t *in = c->rx + c->rx_begin;
	uint32_t have = c->rx_end - c->rx_begin;
	struct soda_wire_frame frame;

	if (have < SODA_WIRE_FRAME_BYTES)
		return false;
	soda_wire_get_frame(in, &frame);
	c->wants_polling = frame.flags & SODA_WIRE_POLLING;
	if (frame.type == SODA_MSG_READ && frame.length == SODA_WIRE_READ_BYTES) {
		if (have < SODA_WIRE_HEAD_BYTES ||
		    !read_may_go_on(c, in + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES))
			return false;
		c->rx_begin += SODA_WIRE_HEAD_BYTES;
		start_read(c, in + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES,
			   frame.flags & SODA_WIRE_RESIDENCY ? in + SODA_WIRE_FRAME_BYTES : NULL);
	} else if (frame.type == SODA_MSG_WRITE && frame.length > SODA_WIRE_WRITE_BYTES &&
		   frame.flags & SODA_WIRE_KEPT && ops(c)->request) {
		if (!take_coded(c, in, have, frame.length - SODA_WIRE_WRITE_BYTES))
			return false;
	} else if (frame.type == SODA_MSG_WRITE && frame.length > SODA_WIRE_WRITE_BYTES) {
		if (have < SODA_WIRE_HEAD_BYTES ||
		    !may_go_on(c, frame.length - SODA_WIRE_WRITE_BYTES))
			return false;
		c->write_keep = frame.flags & SODA_WIRE_KEEP;
		start_write(c, in + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES, frame.length);
	} else if (frame.type == SODA_MSG_WRITE && frame.length == SODA_WIRE_WRITE_BYTES &&
		   frame.flags & SODA_WIRE_KEPT && ops(c)->request) {
		if (have < SODA_WIRE_HEAD_BYTES || !kept_may_go_on(c, in))
			return false;
		c->rx_begin += SODA_WIRE_HEAD_BYTES;
		start_kept(c, in, NULL);
	} else {
		reject(c, "unknown request, or of the wrong length");
	}
	return !c->closing && !c->paused;
}

static void take_all(struct soda_stream_conn *c)
{
	bool go_on = !c->closing && !c->paused && !c->held;

	while (go_on) {
		if (c->writing && c->rx_begin != c->rx_end)
			take_data(c);
		else
			go_on = !c->writing && !tx_full(c) && take_request(c);
	}
	if (c->rx_begin == c->rx_end)
		c->rx_begin = c->rx_end = 0;
}

bool soda_stream_conn_may_recv(const struct soda_stream_conn *c)
{
	return !c->closing && !c->paused && !c->held && (c->writing || !tx_full(c));
}

bool soda_stream_conn_aim_recv(struct soda_stream_conn *c, void *scratch, size_t scratch_bytes)
{
	int n = 0;

	if (!soda_stream_conn_may_recv(c))
		return false;
	if (c->rx_begin) {
		memmove(c->rx, c->rx + c->rx_begin, c->rx_end - c->rx_begin);
		c->rx_end -= c->rx_begin;
		c->rx_begin = 0;
	}
	if (c->writing) {
		size_t left = c->write_left;

		if (c->discard && left > scratch_bytes)
			left = scratch_bytes;
		c->rx_iov[n++] = (struct iovec){ .iov_base = c->discard ? scratch : write_at(c),
						 .iov_len = left };
	}
	/* the next request may be there as well; not behind a part of the data, of course */
	if (!c->writing || c->rx_iov[0].iov_len == c->write_left)
		c->rx_iov[n++] = (struct iovec){ .iov_base = c->rx + c->rx_end,
						 .iov_len = sizeof(c->rx) - c->rx_end };
	c->rx_msg = (struct msghdr){ .msg_iov = c->rx_iov, .msg_iovlen = (size_t)n };
	return true;
}

void soda_stream_conn_received(struct soda_stream_conn *c, int result)
{
	uint32_t n = (uint32_t)result;

	if (result == -EAGAIN || result == -EINTR)
		return;
	if (result <= 0) {
		if (!c->closing && (c->writing || c->rx_begin != c->rx_end))
			reject(c, "the connection ended within a request");
		c->closing = true;
		return;
	}
	if (c->writing) {
		uint32_t data = n < c->rx_iov[0].iov_len ? n : (uint32_t)c->rx_iov[0].iov_len;

		n -= data;
		write_landed(c, data);
	}
	c->rx_end += n;
	take_all(c);
}

void soda_stream_conn_sent(struct soda_stream_conn *c, int result)
{
	if (result == -EAGAIN || result == -EINTR)
		return;
	if (result < 0) {
		c->closing = true;
		return;
	}
	c->tx_offset += (size_t)result;
	while (c->tx_offset) { /* what has gone is of answers that were ready */
		struct soda_answer *a = &c->tx[c->tx_head % SODA_TX_REPLIES];

		if (c->tx_offset < answer_bytes(a))
			break;
		c->tx_offset -= answer_bytes(a);
		if (a->span.bytes)
			ops(c)->release(c->peer.client, false, &a->span, false);
		c->tx_head++;
	}
	take_all(c);
}

void soda_stream_conn_continue(struct soda_stream_conn *c, uint32_t answered, bool resumed)
{
	assert(answered <= c->pending);
	c->pending -= answered;
	if (resumed && c->paused) {
		c->paused = false;
		take_all(c);
	}
}

void soda_stream_conn_release(struct soda_stream_conn *c)
{
	c->held = false;
	take_all(c);
}

static bool is_stuck(struct soda_stuck *s, bool under_way, uint32_t number)
{
	if (s->seen != number)
		s->looks = 0;
	s->looks = under_way ? s->looks + 1 : 0;
	s->seen = number;
	return s->looks > SODA_STUCK_LOOKS;
}

void soda_stream_conn_look(struct soda_stream_conn *c)
{
	const struct soda_answer *a = &c->tx[c->tx_head % SODA_TX_REPLIES];
	bool ready =
		c->tx_head != c->tx_tail && atomic_load_explicit(&a->ready, memory_order_acquire);
	bool half = is_stuck(&c->half, c->writing, c->writes);
	bool untaken = is_stuck(&c->untaken, ready, c->tx_head);

	if (c->closing)
		return;
	if (half)
		reject(c, "the rest of a WRITE does not come");
	else if (untaken)
		reject(c, "an answer is not taken");
}

static void drop_write(struct soda_stream_conn *c)
{
	if (!c->writing || c->discard)
		return;
	ops(c)->release(c->peer.client, true, &c->write_span, false);
	if (c->write_rq)
		request_drop(c->write_rq);
}

void soda_stream_conn_destroy(struct soda_stream_conn *c)
{
	assert(!c->rx_busy && !c->tx_busy && !c->pending);
	drop_write(c);
	for (; c->tx_head != c->tx_tail; c->tx_head++) {
		struct soda_answer *a = &c->tx[c->tx_head % SODA_TX_REPLIES];

		if (a->span.bytes)
			ops(c)->release(c->peer.client, false, &a->span, false);
	}
	ops(c)->gone(c->peer.client, &c->peer);
	soda_worker_forget(c->worker, c);
	soda_peer_remove(&c->peer);
	free(c);
}
