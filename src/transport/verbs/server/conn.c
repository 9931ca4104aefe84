/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of a two-sided listener on verbs: its requests, their answers in order, and its
 * life. See two_sided.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "transport/api/memory.h"
#include "transport/verbs/server/two_sided.h"

enum { TAGS_BYTES = SODA_WIRE_PAGE };

static struct soda_verbs_request *of(struct soda_request *rq)
{
	return (struct soda_verbs_request *)rq;
}

void soda_verbs_conn_fail(struct soda_verbs_conn *c)
{
	atomic_store(&c->p.unwanted, true);
	soda_ring(c->p.peer.listener->wake_fd);
}

/* Data of answers */

/* The device cannot reach them: a copy that it can. */
static int copy(struct soda_verbs_conn *c, struct soda_verbs_answer *a)
{
	struct ibv_pd *pd = soda_verbs_pool_regcache(c->worker->all->pool)->pd;
	struct soda_why why;
	int ret;

	a->copy = aligned_alloc(SODA_WIRE_PAGE, a->span.bytes);
	if (!a->copy)
		return -ENOMEM;
	soda_payload_copy(a->copy, a->span.memory, a->span.bytes);
	ret = soda_verbs_register(pd, a->copy, a->span.bytes, IBV_ACCESS_LOCAL_WRITE, &a->copy_mr,
				  &why);
	if (ret == 0)
		return 0;
	soda_log_warning("%s: an answer cannot be sent: %s", c->p.peer.info.address, why.text);
	free(a->copy);
	a->copy = NULL;
	return ret;
}

static void drop_copy(struct soda_verbs_answer *a)
{
	soda_verbs_unregister(a->copy_mr);
	free(a->copy);
	a->copy = NULL;
	a->copy_mr = NULL;
}

/* Sending: the lock is held */

static struct ibv_sge data_of(struct soda_verbs_conn *c, const struct soda_verbs_answer *a)
{
	struct ibv_sge sge = { .addr = (uintptr_t)a->span.memory, .length = a->span.bytes };

	if (a->copy) {
		sge.addr = (uintptr_t)a->copy;
		sge.lkey = a->copy_mr->lkey;
	} else if (!soda_regcache_lkey(soda_verbs_pool_regcache(c->worker->all->pool),
				       a->span.memory, a->span.bytes, &sge.lkey)) {
		assert(false); /* it was there when the answer came, and is held */
	}
	return sge;
}

static bool send_locked(struct soda_verbs_conn *c, uint32_t turn)
{
	struct soda_verbs_answer *a = soda_verbs_conn_answer(c, turn);
	enum soda_msg type = a->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY;
	bool direct = a->span.bytes && c->p.peer.listener->opt.answer == SODA_ANSWER_WRITE;
	struct ibv_sge sge[2] = { { (uintptr_t)soda_verbs_conn_tag(c, turn), SODA_WIRE_TAG_BYTES,
				    c->tags_mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = soda_verbs_send_id(turn),
				  .sg_list = sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = soda_verbs_imm(type, 0, a->status) },
			   *bad;

	if (direct) {
		sge[0] = data_of(c, a);
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.wr.rdma.remote_addr = a->dest_addr;
		wr.wr.rdma.rkey = a->dest_rkey;
	} else if (a->span.bytes) {
		sge[1] = data_of(c, a);
		wr.num_sge = 2;
	}
	return ibv_post_send(c->p.id->qp, &wr, &bad) == 0;
}

/*
 * The answers that are no longer behind a pending one.  None once it is to be closed: a daemon that
 * closes it means the client to ask again, and then fails what it has.
 */
static void publish_locked(struct soda_verbs_conn *c)
{
	while (!c->ending && !atomic_load(&c->p.unwanted) && c->posted != c->taken &&
	       c->posted - c->reaped < SODA_VERBS_UNSENT) {
		struct soda_verbs_answer *a = soda_verbs_conn_answer(c, c->posted);

		if (!a->ready || (a->write && c->held > SODA_VERBS_HELD))
			return;
		if (!send_locked(c, c->posted)) {
			soda_verbs_conn_fail(c);
			return;
		}
		c->posted++;
	}
}

/* Answers of the daemon */

/* If it ends and nothing of it is pending, wake the events thread. */
static void idle_locked(struct soda_verbs_conn *c)
{
	if (c->ending && !c->pins && !c->pending)
		soda_ring(c->p.peer.listener->wake_fd);
}

static void request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct soda_verbs_request *ask = of(rq);
	struct soda_verbs_conn *c = ask->conn;
	struct soda_verbs_answer *a = soda_verbs_conn_answer(c, ask->turn);
	void *client = rq->client;
	struct soda_span unused = { .bytes = 0 };
	uint32_t lkey;

	/* nobody else looks at the answer before it is ready */
	if (!a->write && status == 0) {
		assert(span->bytes == rq->bytes);
		a->span = *span;
		if (!soda_regcache_lkey(soda_verbs_pool_regcache(c->worker->all->pool),
					span->memory, span->bytes, &lkey)) {
			status = copy(c, a);
			if (status < 0) {
				unused = a->span;
				a->span.bytes = 0;
			}
		}
	}
	a->status = (uint16_t)-status;
	if (unused.bytes)
		c->p.peer.listener->ops->release(client, false, &unused, false);
	pthread_mutex_lock(&c->lock);
	a->ready = true;
	c->pending--;
	publish_locked(c);
	/* with the lock held: the events thread needs it to let go of the connection */
	idle_locked(c);
	pthread_mutex_unlock(&c->lock);
}

/* With the lock held, which it releases. */
void soda_verbs_conn_unref_locked(struct soda_verbs_conn *c)
{
	bool last = --c->refs == 0;

	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void request_free(struct soda_request *rq)
{
	struct soda_verbs_request *ask = of(rq);
	struct soda_verbs_conn *c = ask->conn;

	assert(rq->write);
	soda_verbs_buffer_put((struct soda_verbs_buffer *)ask);
	pthread_mutex_lock(&c->lock);
	c->held--;
	if (!c->gone)
		publish_locked(c);
	soda_verbs_conn_unref_locked(c);
}

static const struct soda_request_ops request_ops = { .done = request_done, .free = request_free };

void soda_verbs_conn_sent(struct soda_verbs_conn *c, uint32_t end)
{
	pthread_mutex_lock(&c->lock);
	while (c->reaped != end && c->reaped != c->posted) {
		struct soda_verbs_answer *a = soda_verbs_conn_answer(c, c->reaped);
		struct soda_span span = a->span;

		drop_copy(a);
		a->span.bytes = 0;
		c->reaped++;
		if (!span.bytes)
			continue;
		pthread_mutex_unlock(&c->lock);
		c->p.peer.listener->ops->release(c->p.peer.client, false, &span, false);
		pthread_mutex_lock(&c->lock);
	}
	publish_locked(c);
	pthread_mutex_unlock(&c->lock);
}

/* Requests */

/* Give it its turn. NULL, or what is wrong. */
static const char *admit(struct soda_verbs_conn *c, bool write, uint32_t *turn_p)
{
	const char *why = NULL;

	pthread_mutex_lock(&c->lock);
	if (c->taken - c->posted >= SODA_VERBS_CREDITS) {
		why = "more requests than there are credits";
	} else {
		*turn_p = c->taken++;
		soda_verbs_conn_answer(c, *turn_p)->ready = false;
		c->pending++;
		c->held += write;
		c->refs += write;
	}
	pthread_mutex_unlock(&c->lock);
	return why;
}

static void deliver(struct soda_verbs_conn *c, struct soda_verbs_request *ask,
		    const struct soda_wire_write *w, bool polling)
{
	ask->rq = (struct soda_request){
		.ops = &request_ops,
		.client = c->p.peer.client,
		.peer = &c->p.peer,
		.arrived_ns = soda_now_ns(),
		.offset = w->page_offset * SODA_WIRE_PAGE,
		.bytes = w->size,
		.region_id = w->region_id,
		.polling = polling,
	};
	ask->conn = c;
}

static const char *take_read(struct soda_verbs_conn *c, struct soda_verbs_buffer *b, bool polling,
			     bool told)
{
	uint8_t body[SODA_WIRE_READ_BYTES + SODA_WIRE_RESIDENCY_BYTES];
	struct soda_verbs_answer *a;
	struct soda_wire_read r;
	const char *why;
	uint32_t turn;

	memcpy(body, b->head, SODA_WIRE_WRITE_BYTES);
	memcpy(body + SODA_WIRE_WRITE_BYTES, b->data, sizeof(body) - SODA_WIRE_WRITE_BYTES);
	soda_verbs_buffer_taken(b, false);
	soda_wire_get_read(body, &r);
	if (soda_wire_check_range(0, r.size, SODA_VERBS_MESSAGE) < 0)
		return "a READ of a size that is not allowed";
	why = admit(c, false, &turn);
	if (why)
		return why;
	a = soda_verbs_conn_answer(c, turn);
	a->write = false;
	a->dest_addr = r.dest_addr;
	a->dest_rkey = r.dest_rkey;
	a->read.turn = turn;
	memcpy(soda_verbs_conn_tag(c, turn), body + 8,
	       SODA_WIRE_TAG_BYTES); /* dest_addr as it came */
	deliver(c, &a->read, &(struct soda_wire_write){ r.region_id, r.page_offset, r.size },
		polling);
	a->read.rq.told = told;
	if (told)
		soda_wire_get_residency(body + SODA_WIRE_READ_BYTES, &a->read.rq.residency);
	c->p.peer.listener->ops->request(c->p.peer.client, &a->read.rq);
	return NULL;
}

/* Which data a WRITE without any means, of whose body so many bytes are in b->data. False: none. */
static bool get_kept(struct soda_verbs_buffer *b, uint32_t bytes, struct soda_request *rq)
{
	rq->kept = true;
	if (bytes == SODA_WIRE_ORIGIN_BYTES)
		soda_wire_get_origin(b->data, &rq->origin);
	else if (soda_wire_get_code(b->data, bytes, &b->code))
		rq->code = &b->code;
	else
		return false;
	return true;
}

/* bytes: of its data, or of what says which are meant. NULL, or what is wrong with it. */
static const char *decode_write(struct soda_verbs_conn *c, struct soda_verbs_buffer *b,
				uint32_t bytes, uint32_t flags)
{
	struct soda_request *rq = &b->ask.rq;
	struct soda_wire_write w;

	soda_wire_get_write(b->head, &w);
	deliver(c, &b->ask, &w, flags & SODA_WIRE_POLLING);
	rq->write = true;
	if (soda_wire_check_range(0, w.size, SODA_VERBS_MESSAGE) < 0)
		return "a WRITE of a size that is not allowed";
	if (flags & SODA_WIRE_KEPT)
		return get_kept(b, bytes, rq) ? NULL : "a WRITE without data that makes no sense";
	rq->keep = flags & SODA_WIRE_KEEP;
	rq->data = b->data;
	return bytes == w.size ? NULL : "a WRITE of another size than it says";
}

static const char *take_write(struct soda_verbs_conn *c, struct soda_verbs_buffer *b,
			      uint32_t bytes, uint32_t flags)
{
	const char *why = decode_write(c, b, bytes, flags);
	uint32_t turn;

	if (!why)
		why = admit(c, true, &turn);
	soda_verbs_buffer_taken(b, !why);
	if (why)
		return why;
	soda_verbs_conn_answer(c, turn)->write = true;
	b->ask.turn = turn;
	memcpy(soda_verbs_conn_tag(c, turn), b->head, SODA_WIRE_TAG_BYTES);
	c->p.peer.listener->ops->request(c->p.peer.client, &b->ask.rq);
	return NULL;
}

const char *soda_verbs_conn_request(struct soda_verbs_conn *c, struct soda_verbs_buffer *b,
				    const struct ibv_wc *wc)
{
	uint32_t imm = be32toh(wc->imm_data), type = imm & 0xff, flags = imm >> 8 & 0xff;
	bool told = flags & SODA_WIRE_RESIDENCY;

	if (wc->opcode == IBV_WC_RECV && wc->wc_flags & IBV_WC_WITH_IMM) {
		if (type == SODA_MSG_READ &&
		    wc->byte_len == SODA_WIRE_READ_BYTES + (told ? SODA_WIRE_RESIDENCY_BYTES : 0))
			return take_read(c, b, flags & SODA_WIRE_POLLING, told);
		if (type == SODA_MSG_WRITE && wc->byte_len > SODA_WIRE_WRITE_BYTES)
			return take_write(c, b, wc->byte_len - SODA_WIRE_WRITE_BYTES, flags);
	}
	soda_verbs_buffer_taken(b, false);
	return "unknown request, or of the wrong length";
}

/* Life */

static int make_tags(struct soda_verbs_conn *c, struct soda_why *why)
{
	_Static_assert(SODA_VERBS_ANSWERS * SODA_WIRE_TAG_BYTES <= TAGS_BYTES, "one page");
	struct ibv_pd *pd = soda_verbs_pool_regcache(c->worker->all->pool)->pd;

	c->tags = soda_verbs_map(pd->context, TAGS_BYTES);
	if (!c->tags) {
		soda_why_set(why, "the server has no memory for a connection more");
		return -ENOMEM;
	}
	return soda_verbs_register(pd, c->tags, TAGS_BYTES, IBV_ACCESS_LOCAL_WRITE, &c->tags_mr,
				   why);
}

static int make_queue_pair(struct soda_verbs_conn *c)
{
	struct soda_verbs_pool *pool = c->worker->all->pool;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = c->worker->cq,
		.recv_cq = c->worker->cq,
		.srq = soda_verbs_pool_srq(pool),
		.cap = { .max_send_wr = SODA_VERBS_UNSENT, .max_send_sge = 2 },
	};

	if (rdma_create_qp(c->p.id, soda_verbs_pool_regcache(pool)->pd, &attr) < 0)
		return -errno;
	c->qp_num = c->p.id->qp->qp_num;
	return 0;
}

static unsigned load_of(const void *workers, unsigned i)
{
	return atomic_load(&((const struct soda_verbs_worker *)workers)[i].load);
}

static void meet_worker(struct soda_verbs_conn *c)
{
	struct soda_verbs_worker *w = c->worker;
	struct soda_verbs_conn **bucket = soda_verbs_worker_bucket(w, c->qp_num);

	pthread_mutex_lock(&w->lock);
	c->next = *bucket;
	*bucket = c;
	pthread_mutex_unlock(&w->lock);
}

static void leave_worker(struct soda_verbs_conn *c)
{
	struct soda_verbs_worker *w = c->worker;
	struct soda_verbs_conn **at = soda_verbs_worker_bucket(w, c->qp_num);

	pthread_mutex_lock(&w->lock);
	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&w->lock);
}

void soda_verbs_conn_init(struct soda_verbs_conn *c)
{
	pthread_mutex_init(&c->lock, NULL);
	c->refs = 1;
}

int soda_verbs_conn_prepare(struct soda_verbs_listener *vl, struct soda_verbs_conn *c,
			    struct soda_why *why)
{
	struct soda_verbs_workers *all;
	int ret = soda_verbs_workers_get(vl, c->p.id->verbs, &all, why);

	if (ret < 0)
		return ret;
	c->worker = &all->at[soda_least_loaded(all->at, all->n, load_of)];
	if (atomic_fetch_add(&c->worker->load, 1) >= c->worker->room) {
		soda_why_set(why, "the server has all of the connections that its workers take");
		return -EBUSY;
	}
	ret = make_tags(c, why);
	if (ret < 0)
		return ret;
	ret = make_queue_pair(c);
	if (ret < 0)
		soda_why_set(why, "the server has no queue pair more: %s", soda_strerror(ret));
	else
		meet_worker(c); /* requests may come as soon as it is accepted */
	return ret;
}

void soda_verbs_conn_say(const struct soda_listener *l, struct soda_wire_two_sided *how)
{
	*how = (struct soda_wire_two_sided){ .message_bytes = SODA_VERBS_MESSAGE,
					     .credits = SODA_VERBS_CREDITS,
					     .features = SODA_TWO_SIDED_KEEPS,
					     .answer = (uint16_t)l->opt.answer };
}

/* Nothing of it is under way: what waits to be sent will not be. */
static void destroy_queues(struct soda_verbs_conn *c)
{
	if (c->p.id->qp)
		rdma_destroy_qp(c->p.id);
	for (; c->reaped != c->taken; c->reaped++) {
		struct soda_verbs_answer *a = soda_verbs_conn_answer(c, c->reaped);

		drop_copy(a);
		if (a->span.bytes)
			c->p.peer.listener->ops->release(c->p.peer.client, false, &a->span, false);
		a->span.bytes = 0;
	}
	soda_verbs_unregister(c->tags_mr);
	c->tags_mr = NULL;
	if (c->tags)
		munmap(c->tags, TAGS_BYTES);
	c->tags = NULL;
}

void soda_verbs_conn_abandon(struct soda_verbs_conn *c)
{
	if (!c->worker)
		return;
	leave_worker(c);
	destroy_queues(c);
	atomic_fetch_sub(&c->worker->load, 1);
	c->worker = NULL;
}

bool soda_verbs_conn_end(struct soda_verbs_conn *c)
{
	bool first, idle;

	leave_worker(c);
	pthread_mutex_lock(&c->lock);
	first = !c->ending;
	c->ending = true;
	idle = !c->pins && !c->pending;
	pthread_mutex_unlock(&c->lock);
	if (first) {
		rdma_disconnect(c->p.id); /* the client is to know at once */
		c->ended_ns = soda_now_ns();
	}
	c->drains = idle && soda_now_ns() - c->ended_ns < SODA_VERBS_DRAIN_MS * SODA_MS_NS;
	if (!idle || c->drains)
		return false;
	destroy_queues(c);
	atomic_fetch_sub(&c->worker->load, 1);
	return true;
}

void soda_verbs_conn_free(struct soda_verbs_conn *c)
{
	pthread_mutex_lock(&c->lock);
	c->gone = true;
	soda_verbs_conn_unref_locked(c);
}

void soda_verbs_conn_unpin(struct soda_verbs_conn *c)
{
	pthread_mutex_lock(&c->lock);
	c->pins--;
	idle_locked(c);
	pthread_mutex_unlock(&c->lock);
}
