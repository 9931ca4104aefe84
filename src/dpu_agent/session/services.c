/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/session/services.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "dpu_agent/session/session.h"

enum { ALIGNMENT = 16 };

static void *state_of(struct soda_session *s, const struct soda_service_entry *e)
{
	return (uint8_t *)(s + 1) + e->at;
}

int soda_services_register(struct soda_services *all, const struct soda_agent_service *ops,
			   void *arg)
{
	struct soda_service_entry *e = &all->at[all->n];

	if (ops->first <= SODA_MSG_HELLO || ops->last < ops->first ||
	    (ops->last >= SODA_MSG_OK && ops->first < SODA_MSG_SERVICES) ||
	    ops->last == SODA_MSG_TOKEN)
		return -EINVAL;
	if (all->n == SODA_SERVICES_MAX)
		return -ENOSPC;
	for (unsigned i = 0; i < all->n; i++)
		if (ops->first <= all->at[i].ops->last && all->at[i].ops->first <= ops->last)
			return -EEXIST;
	*e = (struct soda_service_entry){ .ops = ops, .arg = arg, .at = all->state_bytes };
	all->state_bytes += (ops->state_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	all->n++; /* from now on the keeper's round sees it */
	return 0;
}

/* Requests */

int soda_services_refuse(struct soda_reply *reply, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(reply->why.text, sizeof(reply->why.text), fmt, args);
	va_end(args);
	return err;
}

static struct soda_service_entry *find(struct soda_services *all, enum soda_msg type)
{
	for (unsigned i = 0; i < all->n; i++)
		if (all->at[i].ops->first <= type && type <= all->at[i].ops->last)
			return &all->at[i];
	return NULL;
}

/* A request: a call's body, or a streamed call's flow. */
struct request {
	enum soda_msg type;
	const void *body;
	size_t bytes;
	bool shares;
	struct soda_inflow *in; /* NULL: not streamed */
};

static int pass(struct soda_session *s, struct soda_service_entry *e, const struct request *rq,
		struct soda_reply *reply)
{
	const struct soda_agent_service *ops = e->ops;
	int ret;

	if (ops->bytes_max && rq->bytes > ops->bytes_max)
		return soda_services_refuse(reply, -EINVAL,
					    "%s: a request of %zu bytes: %u are allowed", ops->name,
					    rq->bytes, ops->bytes_max);
	/* relaxed: the counter orders nothing */
	if (atomic_fetch_add_explicit(&e->under_way, 1, memory_order_relaxed) >= ops->calls_max &&
	    ops->calls_max)
		ret = soda_services_refuse(reply, -EBUSY,
					   "%s: %u requests are under way, and no more may be",
					   ops->name, ops->calls_max);
	else if (rq->in)
		ret = ops->stream(s, state_of(s, e), rq->type, rq->in, reply);
	else
		ret = ops->call(s, state_of(s, e), rq->type, rq->body, rq->bytes, rq->shares,
				reply);
	atomic_fetch_sub_explicit(&e->under_way, 1, memory_order_relaxed);
	return ret;
}

static int serve(struct soda_session *s, const struct request *rq, struct soda_reply *reply)
{
	struct soda_service_entry *e = find(&s->all->services, rq->type);
	int ret;

	if (!e || (rq->in ? !e->ops->stream : !e->ops->call))
		return soda_services_refuse(reply, -ENOTSUP,
					    "this agent has no service for requests of type %d",
					    (int)rq->type);
	if (s->tool && !e->ops->tools)
		return soda_services_refuse(reply, -EPROTO,
					    "%s: this client has said that it has no pages",
					    e->ops->name);
	if (s->tenant && e != s->all->services.at && soda_tenant_limited(s->tenant))
		return soda_services_refuse(reply, -EPERM,
					    "%s: tenant %s has a rate, by which READs and WRITEs "
					    "of pages alone are counted",
					    e->ops->name, s->tenant->name);
	ret = pass(s, e, rq, reply);
	atomic_fetch_add_explicit(&e->calls, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->refused, ret < 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&e->request_bytes, rq->bytes, memory_order_relaxed);
	if (ret == 0)
		atomic_fetch_add_explicit(&e->reply_bytes, reply->bytes, memory_order_relaxed);
	return ret;
}

int soda_services_call(struct soda_session *s, enum soda_msg type, const void *body, size_t bytes,
		       bool shares, struct soda_reply *reply)
{
	return serve(s, &(struct request){ type, body, bytes, shares, NULL }, reply);
}

int soda_services_stream(struct soda_session *s, enum soda_msg type, struct soda_inflow *in,
			 struct soda_reply *reply)
{
	return serve(s, &(struct request){ .type = type, .bytes = in->left, .in = in }, reply);
}

/* Hooks */

/* Call `destroyed` of the first n services. */
static void destroy(struct soda_session *s, unsigned n)
{
	while (n--) {
		const struct soda_service_entry *e = &s->all->services.at[n];

		if (e->ops->destroyed)
			e->ops->destroyed(s, state_of(s, e));
	}
}

int soda_services_created(struct soda_session *s)
{
	int ret = 0;

	for (unsigned i = 0; i < s->all->services.n; i++) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->created)
			ret = e->ops->created(e->arg, s, state_of(s, e));
		if (ret < 0) {
			destroy(s, i);
			return ret;
		}
	}
	return 0;
}

int soda_services_connected(struct soda_session *s, const struct soda_wire_hello *hello,
			    const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
			    struct soda_why *why)
{
	int ret = 0;

	for (unsigned i = 0; i < s->all->services.n && ret == 0; i++) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->connected)
			ret = e->ops->connected(s, state_of(s, e), hello, info, welcome, why);
	}
	return ret;
}

void soda_services_leave(struct soda_session *s)
{
	for (unsigned i = s->all->services.n; i--;) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->leave)
			e->ops->leave(s, state_of(s, e));
	}
}

void soda_services_round(struct soda_services *all)
{
	for (unsigned i = 0; i < all->n; i++)
		if (all->at[i].ops->round)
			all->at[i].ops->round(all->at[i].arg);
}

void soda_services_tick(struct soda_session *s)
{
	for (unsigned i = 0; i < s->all->services.n; i++) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->tick)
			e->ops->tick(s, state_of(s, e));
	}
}

void soda_services_broken(struct soda_session *s)
{
	for (unsigned i = s->all->services.n; i--;) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->broken)
			e->ops->broken(s, state_of(s, e));
	}
}

/*
 * Asks every service, also after one has said no, because each does a part of its work in the hook.
 */
bool soda_services_idle(struct soda_session *s, bool stopping)
{
	bool idle = true;

	for (unsigned i = 0; i < s->all->services.n; i++) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->idle && !e->ops->idle(s, state_of(s, e), stopping))
			idle = false;
	}
	return idle;
}

void soda_services_gone(struct soda_session *s, bool stopping)
{
	for (unsigned i = s->all->services.n; i--;) {
		const struct soda_service_entry *e = &s->all->services.at[i];

		if (e->ops->gone)
			e->ops->gone(s, state_of(s, e), stopping);
	}
}

void soda_services_destroyed(struct soda_session *s)
{
	destroy(s, s->all->services.n);
}

void soda_services_walk(struct soda_services *all, struct soda_metrics *m)
{
	static const struct soda_metric_list list = { "service_list", "service",
						      SODA_SERVICES_MAX };

	if (all->n < 2)
		return;
	soda_metrics_list(m, &list);
	for (struct soda_service_entry *e = all->at + 1; e < all->at + all->n; e++) {
		soda_metrics_item(m);
		soda_metrics_text(m, "id", e->ops->name);
		soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_NONE, "under_way",
				 "requests to a service under way", atomic_load(&e->under_way));
		soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "calls",
				 "requests to a service", atomic_load(&e->calls));
		soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "refused",
				 "of them, refused ones", atomic_load(&e->refused));
		soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "request_bytes",
				 "data of requests to a service", atomic_load(&e->request_bytes));
		soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "reply_bytes",
				 "data of a service's answers", atomic_load(&e->reply_bytes));
		soda_metrics_item_end(m);
	}
	soda_metrics_list_end(m);
}
