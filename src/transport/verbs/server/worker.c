/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers of a two-sided listener on verbs. See two_sided.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/listen/worker.h"
#include "transport/verbs/server/two_sided.h"

enum {
	BATCH = 32,	     /* completions that are looked at before a doorbell */
	COMPLETIONS = 16384, /* that a worker's queue holds: it must never be too small */
	OF_CONN = SODA_VERBS_UNSENT + 1,
};

/* Completions */

/* Pinned; NULL: it is about to end, or has. */
static struct soda_verbs_conn *find(struct soda_verbs_worker *w, uint32_t qp_num)
{
	struct soda_verbs_conn *c;

	pthread_mutex_lock(&w->lock);
	for (c = *soda_verbs_worker_bucket(w, qp_num); c && c->qp_num != qp_num;)
		c = c->next;
	if (c) {
		pthread_mutex_lock(&c->lock);
		c->pins++;
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return c;
}

/* It has requests: pinned until its doorbell. False: it had already. */
static bool ring(struct soda_verbs_worker *w, struct soda_verbs_conn *c)
{
	if (c->rung)
		return false;
	c->rung = true;
	c->rung_next = w->rung;
	w->rung = c;
	return true;
}

static void reject(struct soda_verbs_conn *c, const char *why)
{
	c->closing = true;
	if (why)
		soda_peer_rejected(&c->p.peer, why);
	soda_verbs_conn_fail(c);
}

/* True: the pin is kept, until the doorbell. */
static bool received(struct soda_verbs_worker *w, struct soda_verbs_conn *c,
		     const struct ibv_wc *wc)
{
	struct soda_verbs_buffer *b = (struct soda_verbs_buffer *)(uintptr_t)wc->wr_id;
	const char *why;

	if (!c || c->closing || wc->status != IBV_WC_SUCCESS) {
		soda_verbs_buffer_taken(b, false);
		if (c && !c->closing)
			reject(c, wc->status == IBV_WC_WR_FLUSH_ERR
					  ? NULL
					  : "a request that is longer than is allowed");
		return false;
	}
	why = soda_verbs_conn_request(c, b, wc);
	if (why) {
		reject(c, why);
		return false;
	}
	w->polls = be32toh(wc->imm_data) >> 8 & SODA_WIRE_POLLING;
	return ring(w, c);
}

static void sent(struct soda_verbs_conn *c, const struct ibv_wc *wc)
{
	if (!c)
		return;
	if (wc->status == IBV_WC_SUCCESS)
		soda_verbs_conn_sent(c, (uint32_t)(wc->wr_id >> 1) + 1);
	else if (!c->closing) /* its memory cannot be written to, or it has gone */
		reject(c,
		       wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_REM_INV_REQ_ERR
			       ? "a READ into memory that is not the client's to give"
			       : NULL);
}

static void completed(struct soda_verbs_worker *w, const struct ibv_wc *wc)
{
	struct soda_verbs_conn *c = find(w, wc->qp_num);
	bool keeps = false;

	if (wc->wr_id & 1)
		sent(c, wc);
	else
		keeps = received(w, c, wc);
	if (c && !keeps)
		soda_verbs_conn_unpin(c);
}

static void doorbells(struct soda_verbs_worker *w)
{
	const struct soda_service *ops = w->all->listener->ops;
	struct soda_verbs_conn *c;

	while ((c = w->rung)) {
		w->rung = c->rung_next;
		c->rung = false;
		ops->doorbell(c->p.peer.client, &c->p.peer);
		soda_verbs_conn_unpin(c);
	}
}

/* True: something was there. */
static bool turn(struct soda_verbs_worker *w)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(w->cq, BATCH, wc);

	for (int i = 0; i < n; i++)
		completed(w, &wc[i]);
	doorbells(w);
	return n > 0;
}

/* Waiting */

static bool look(void *arg)
{
	return turn(arg);
}

/* True: something came while we looked. */
static bool look_awhile(struct soda_verbs_worker *w)
{
	return w->polls && soda_spin_until(&w->spin, SODA_WORKER_SPIN_NS, look, w);
}

static void take_events(struct soda_verbs_worker *w)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(w->comp, &cq, &context) == 0)
		w->unacked++;
}

static void *worker_main(void *arg)
{
	struct soda_verbs_worker *w = arg;
	struct pollfd p[] = { { .fd = w->comp->fd, .events = POLLIN },
			      { .fd = w->all->stop_fd, .events = POLLIN } };

	pthread_setname_np(pthread_self(), "soda-data");
	soda_spin_init(&w->spin, &w->all->listener->polling);
	while (!atomic_load(&w->all->stop)) {
		if (turn(w) || look_awhile(w))
			continue;
		ibv_req_notify_cq(w->cq, 0);
		if (turn(w)) /* what came before */
			continue;
		poll(p, 2, -1);
		take_events(w);
	}
	return NULL;
}

/* Life */

static int start(struct soda_verbs_worker *w)
{
	struct soda_verbs_workers *all = w->all;
	struct ibv_device_attr limits = { .max_cqe = COMPLETIONS };
	int entries, ret;

	pthread_mutex_init(&w->lock, NULL);
	ibv_query_device(all->device, &limits);
	entries = limits.max_cqe < COMPLETIONS ? limits.max_cqe : COMPLETIONS;
	w->room = (unsigned)entries > soda_verbs_pool_most(all->pool) + OF_CONN
			  ? ((unsigned)entries - soda_verbs_pool_most(all->pool)) / OF_CONN
			  : 1;
	w->comp = ibv_create_comp_channel(all->device);
	if (w->comp && fcntl(w->comp->fd, F_SETFL, fcntl(w->comp->fd, F_GETFL) | O_NONBLOCK) == 0)
		w->cq = ibv_create_cq(all->device, entries, NULL, w->comp, 0);
	if (!w->cq)
		return errno ? -errno : -ENOMEM;
	ret = pthread_create(&w->thread, NULL, worker_main, w);
	w->started = ret == 0;
	return -ret;
}

static void end(struct soda_verbs_workers *all)
{
	atomic_store(&all->stop, true);
	soda_ring(all->stop_fd);
	for (unsigned i = 0; i < all->n; i++) {
		struct soda_verbs_worker *w = &all->at[i];

		if (w->started)
			soda_wait_join(w->thread, "a worker to end");
		if (w->cq) {
			ibv_ack_cq_events(w->cq, w->unacked);
			ibv_destroy_cq(w->cq);
		}
		if (w->comp)
			ibv_destroy_comp_channel(w->comp);
		pthread_mutex_destroy(&w->lock);
	}
	if (all->pool)
		soda_verbs_pool_close(all->pool);
	close(all->stop_fd);
	free(all);
}

static int make(struct soda_listener *l, struct ibv_context *device,
		struct soda_verbs_workers **all_p, struct soda_why *why)
{
	struct soda_verbs_workers *all =
		calloc(1, sizeof(*all) + l->opt.workers * sizeof(all->at[0]));
	int ret = 0;

	if (!all)
		return -ENOMEM;
	all->listener = l;
	all->device = device;
	all->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->stop_fd < 0) {
		ret = -errno;
		free(all);
		return ret;
	}
	ret = soda_verbs_pool_create(device, &all->pool, why);
	for (; ret == 0 && all->n < l->opt.workers; all->n++) {
		all->at[all->n].all = all;
		ret = start(&all->at[all->n]);
		if (ret < 0)
			soda_why_set(why, "the server cannot start a data worker: %s",
				     soda_strerror(ret));
	}
	if (ret < 0)
		end(all);
	else
		*all_p = all;
	return ret;
}

int soda_verbs_workers_get(struct soda_verbs_listener *vl, struct ibv_context *device,
			   struct soda_verbs_workers **all_p, struct soda_why *why)
{
	struct soda_verbs_workers *all = vl->workers;
	int ret;

	while (all && all->device != device)
		all = all->next;
	if (!all) {
		ret = make(vl->base, device, &all, why);
		if (ret < 0)
			return ret;
		all->next = vl->workers;
		vl->workers = all;
	}
	*all_p = all;
	return 0;
}

void soda_verbs_workers_end(struct soda_verbs_listener *vl)
{
	while (vl->workers) {
		struct soda_verbs_workers *all = vl->workers;

		vl->workers = all->next;
		end(all);
	}
}
