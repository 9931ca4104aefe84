/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of one connection of a two-sided listener on verbs. See two_sided.h. */
#include <errno.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "transport/verbs/server/two_sided.h"

enum { TAGS_BYTES = SODA_WIRE_PAGE };

static int make_tags(struct soda_vconn *c, struct soda_why *why)
{
	_Static_assert(SODA_VERBS_ANSWERS * SODA_WIRE_TAG_BYTES <= TAGS_BYTES, "one page");
	struct ibv_pd *pd = soda_vpool_reach(c->worker->all->pool)->pd;

	c->tags = soda_verbs_map(pd->context, TAGS_BYTES);
	if (!c->tags) {
		soda_why_set(why, "the server has no memory for a connection more");
		return -ENOMEM;
	}
	return soda_verbs_register(pd, c->tags, TAGS_BYTES, IBV_ACCESS_LOCAL_WRITE, &c->tags_mr,
				   why);
}

static int make_queue_pair(struct soda_vconn *c)
{
	struct soda_vpool *pool = c->worker->all->pool;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = c->worker->cq,
		.recv_cq = c->worker->cq,
		.srq = soda_vpool_srq(pool),
		.cap = { .max_send_wr = SODA_VERBS_UNSENT, .max_send_sge = 2 },
	};

	if (rdma_create_qp(c->p.id, soda_vpool_reach(pool)->pd, &attr) < 0)
		return -errno;
	c->qp_num = c->p.id->qp->qp_num;
	return 0;
}

static struct soda_vworker *least_loaded(struct soda_vworkers *all)
{
	struct soda_vworker *best = &all->at[0];

	for (unsigned i = 1; i < all->n; i++)
		if (atomic_load(&all->at[i].load) < atomic_load(&best->load))
			best = &all->at[i];
	return best;
}

static void meet_worker(struct soda_vconn *c)
{
	struct soda_vworker *w = c->worker;
	struct soda_vconn **bucket = soda_vworker_bucket(w, c->qp_num);

	pthread_mutex_lock(&w->lock);
	c->next = *bucket;
	*bucket = c;
	pthread_mutex_unlock(&w->lock);
}

static void leave_worker(struct soda_vconn *c)
{
	struct soda_vworker *w = c->worker;
	struct soda_vconn **at = soda_vworker_bucket(w, c->qp_num);

	pthread_mutex_lock(&w->lock);
	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	pthread_mutex_unlock(&w->lock);
}

void soda_vconn_init(struct soda_vconn *c)
{
	pthread_mutex_init(&c->lock, NULL);
	c->refs = 1;
}

int soda_vconn_prepare(struct soda_verbs_listener *vl, struct soda_vconn *c, struct soda_why *why)
{
	struct soda_vworkers *all;
	int ret = soda_vworkers_get(vl, c->p.id->verbs, &all, why);

	if (ret < 0)
		return ret;
	c->worker = least_loaded(all);
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

void soda_vconn_say(const struct soda_listener *l, struct soda_wire_asked *asked)
{
	*asked = (struct soda_wire_asked){ .message_bytes = SODA_VERBS_MESSAGE,
					   .credits = SODA_VERBS_CREDITS,
					   .answer = (uint16_t)l->opt.answer };
}

/* Nothing of it is under way: what waits to be sent will not be. */
static void destroy_queues(struct soda_vconn *c)
{
	if (c->p.id->qp)
		rdma_destroy_qp(c->p.id);
	for (; c->reaped != c->taken; c->reaped++) {
		struct soda_vanswer *a = soda_vconn_answer(c, c->reaped);

		soda_vanswer_drop_copy(a);
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

void soda_vconn_abandon(struct soda_vconn *c)
{
	if (!c->worker)
		return;
	leave_worker(c);
	destroy_queues(c);
	atomic_fetch_sub(&c->worker->load, 1);
	c->worker = NULL;
}

bool soda_vconn_end(struct soda_vconn *c)
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

void soda_vconn_free(struct soda_vconn *c)
{
	pthread_mutex_lock(&c->lock);
	c->gone = true;
	soda_vconn_unref_locked(c);
}

void soda_vconn_unpin(struct soda_vconn *c)
{
	pthread_mutex_lock(&c->lock);
	c->pins--;
	soda_vconn_idle_locked(c);
	pthread_mutex_unlock(&c->lock);
}
