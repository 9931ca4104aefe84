/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that a two-sided daemon answers later, and the answers' places in the queue. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "transport/listen/worker.h"

struct stream_request {
	struct soda_request rq;
	struct soda_dconn *conn; /* until done */
	uint32_t place;		 /* of the answer */
};

static struct stream_request *stream_request(struct soda_request *rq)
{
	return (struct stream_request *)rq;
}

struct soda_answer *soda_answer_take(struct soda_dconn *c, const uint8_t *tag)
{
	struct soda_answer *a = &c->tx[c->tx_tail % SODA_TX_REPLIES];

	assert(c->tx_tail - c->tx_head < SODA_TX_REPLIES);
	atomic_store_explicit(&a->ready, false, memory_order_relaxed);
	memset(a->head, 0, sizeof(a->head));
	memcpy(a->head + SODA_WIRE_HEAD_BYTES - SODA_WIRE_TAG_BYTES, tag, SODA_WIRE_TAG_BYTES);
	c->tx_tail++;
	return a;
}

void soda_answer_set(struct soda_answer *a, enum soda_msg type, int err,
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
	/* pairs with the acquire in soda_dconn_aim_send */
	atomic_store_explicit(&a->ready, true, memory_order_release);
}

static void request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct stream_request *r = stream_request(rq);
	struct soda_dconn *c = r->conn;
	struct soda_worker *w = c->worker;
	struct soda_answer *a = &c->tx[r->place % SODA_TX_REPLIES];
	enum soda_msg type = rq->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY;

	r->conn = NULL;
	if (!rq->write)
		free(r);
	/* once it is ready and the lock is free the connection may end, and the worker, too */
	pthread_mutex_lock(&w->lock);
	soda_answer_set(a, type, status, status < 0 || type == SODA_MSG_WRITE_REPLY ? NULL : span);
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

struct soda_request *soda_request_new(struct soda_dconn *c)
{
	struct stream_request *r = malloc(sizeof(*r));

	if (!r)
		return NULL;
	*r = (struct stream_request){
		.rq = { .ops = &request_ops, .client = c->peer.client, .peer = &c->peer },
		.conn = c,
	};
	return &r->rq;
}

void soda_request_drop(struct soda_request *rq)
{
	free(stream_request(rq));
}

void soda_request_deliver(struct soda_dconn *c, struct soda_request *rq, const uint8_t *tag)
{
	stream_request(rq)->place = c->tx_tail;
	soda_answer_take(c, tag);
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

void soda_request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	rq->ops->done(rq, status, span);
}

void soda_request_free(struct soda_request *rq)
{
	rq->ops->free(rq);
}
