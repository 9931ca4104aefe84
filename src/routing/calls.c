/* SPDX-License-Identifier: BSD-3-Clause */
/* Each body from a client is decoded and checked here, or in the function that it is passed to. */
#include "routing/calls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/wait.h"
#include "routing/jobs_impl.h"
#include "wire/field.h"

enum { OWN_BYTES = 16 << 20 }; /* of inboxes, in a router of one rank's own */

static int check_version(uint32_t version, struct soda_reply *reply)
{
	if (version == SODA_MSG_VERSION)
		return 0;
	snprintf(reply->why.text, sizeof(reply->why.text),
		 "messages: the agent speaks version %u, its client version %u", SODA_MSG_VERSION,
		 version);
	return -ENOTSUP;
}

static int say_version(struct soda_reply *reply)
{
	soda_wire_put_u32(reply->body, SODA_MSG_VERSION);
	reply->bytes = sizeof(uint32_t);
	return 0;
}

static int challenge(struct soda_router_client *c, const void *body, size_t bytes,
		     struct soda_reply *reply)
{
	int ret;

	if (bytes != sizeof(uint32_t))
		return -EPROTO;
	ret = check_version(soda_wire_get_u32(body), reply);
	if (ret == 0)
		ret = soda_msg_jobs_challenge(&c->router->jobs, &c->challenge, &reply->why);
	if (ret < 0)
		return ret;
	c->asked = true;
	soda_wire_put_msg_challenge(reply->body, &c->challenge);
	reply->bytes = SODA_WIRE_MSG_CHALLENGE_BYTES;
	return 0;
}

static bool has_key(const uint8_t key[SODA_MSG_KEY_BYTES])
{
	static const uint8_t none[SODA_MSG_KEY_BYTES];

	return memcmp(key, none, sizeof(none)) != 0;
}

/* A nonce is good for one try. */
static int take_challenge(struct soda_router_client *c, struct soda_why *why)
{
	if (!c->asked)
		return soda_msg_refuse(why, -EACCES,
				       "messages: who has a job's key proves it, after CHALLENGE");
	c->asked = false;
	return 0;
}

static int say_proved(int ret, struct soda_why *why)
{
	return ret == -EACCES
		       ? soda_msg_refuse(why, ret, "messages: the proof of the job's key is wrong")
		       : ret;
}

static int check_join(struct soda_router_client *c, const void *body, size_t bytes,
		      const struct soda_wire_msg_join *j, struct soda_why *why)
{
	int ret = has_key(j->key) ? take_challenge(c, why) : 0;

	return ret || !has_key(j->key)
		       ? ret
		       : say_proved(soda_job_check_join(&c->challenge, body, bytes), why);
}

/* Whether the job's ranks there say that the router does serve it. */
static int check_link(struct soda_router_client *c, const void *body, size_t bytes,
		      const struct soda_wire_msg_link *l, const char *name, size_t name_bytes,
		      struct soda_why *why)
{
	char text[SODA_WIRE_MAX_NAME + 1];
	const struct soda_job_place place = { text, l->ranks, l->agents, l->from, l->shape };
	int ret = has_key(l->key) ? take_challenge(c, why) : 0;

	if (ret || !has_key(l->key))
		return ret;
	if (name_bytes > SODA_WIRE_MAX_NAME)
		return -EPROTO;
	memcpy(text, name, name_bytes);
	text[name_bytes] = 0;
	return say_proved(soda_job_check_link(c->challenge.nonce, body, bytes, &place), why);
}

static int join(struct soda_router_client *c, const void *body, size_t bytes,
		struct soda_reply *reply)
{
	struct soda_wire_msg_place place;
	struct soda_wire_msg_join j;
	bool made = false;
	int ret;

	/* the version first: a body of another version may be any */
	if (bytes >= sizeof(uint32_t) && check_version(soda_wire_get_u32(body), reply) < 0)
		return -ENOTSUP;
	ret = soda_wire_get_msg_join(body, bytes, &j, &place);
	if (ret == 0)
		ret = check_join(c, body, bytes, &j, &reply->why);
	if (ret == 0)
		ret = soda_msg_job_join(&c->router->jobs, &j, &place, c->info, c, &c->job, &made,
					&reply->why);
	if (ret < 0)
		return ret;
	c->rank = j.rank;
	c->role = (enum soda_msg_role)j.role;
	if (made)
		soda_msg_links_start(c->job);
	return say_version(reply);
}

static int link_agent(struct soda_router_client *c, const void *body, size_t bytes,
		      struct soda_reply *reply)
{
	const struct soda_msg_owners *owners = &c->router->jobs.owners;
	const char *name = (const char *)body + SODA_WIRE_MSG_LINK_BYTES;
	size_t name_bytes = bytes - SODA_WIRE_MSG_LINK_BYTES;
	uint32_t tenant = c->info->tenant;
	struct soda_wire_msg_link l;
	int ret = 0;

	if (bytes >= sizeof(uint32_t) && check_version(soda_wire_get_u32(body), reply) < 0)
		return -ENOTSUP;
	ret = soda_wire_get_msg_link(body, bytes, &l);
	if (ret == 0 && owners->find)
		ret = owners->find(owners->arg, tenant, &name, &name_bytes, &tenant, &reply->why);
	if (ret == 0)
		ret = check_link(c, body, bytes, &l, name, name_bytes, &reply->why);
	if (ret == 0)
		ret = soda_msg_job_link(&c->router->jobs, &l, name, name_bytes, tenant, &c->job,
					&c->link, &reply->why);
	return ret < 0 ? ret : say_version(reply);
}

static int await(struct soda_router_client *c, const void *body, size_t bytes,
		 struct soda_reply *reply)
{
	struct soda_wire_msg_missing missing;
	int ret;

	if (bytes != sizeof(uint32_t))
		return -EPROTO;
	ret = soda_msg_job_await(&c->router->jobs, c->job, soda_wire_get_u32(body), &missing,
				 &reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_missing(reply->body, &missing);
	reply->bytes = SODA_WIRE_MSG_MISSING_BYTES;
	return 0;
}

static void count_routed(struct soda_router *m, const struct soda_msg_routed *routed)
{
	atomic_fetch_add(&m->messages, routed->messages);
	atomic_fetch_add(&m->bytes, routed->bytes);
	atomic_fetch_add(&m->packets, routed->packets);
	atomic_fetch_add(&m->refused, routed->refused);
}

static int push(struct soda_router_client *c, const void *body, size_t bytes,
		struct soda_reply *reply)
{
	struct soda_router *m = c->router;
	struct soda_msg_routed routed;
	struct soda_wire_msg_push p;
	int ret = soda_wire_get_msg_push(body, bytes, &p);

	if (ret == 0 && soda_msg_job_has_rings(c->job, c->rank))
		ret = soda_msg_refuse(&reply->why, -EINVAL, "messages: rank %u has rings", c->rank);
	if (ret == 0)
		ret = soda_msg_job_route(&m->jobs, c->job, c->rank, body, &p, reply->body, &routed,
					 &reply->why);
	if (ret < 0)
		return ret;
	reply->bytes = p.packets;
	count_routed(m, &routed);
	return 0;
}

static int relay(struct soda_router_client *c, const void *body, size_t bytes,
		 struct soda_reply *reply)
{
	struct soda_router *m = c->router;
	struct soda_msg_routed routed;
	struct soda_wire_msg_relay r;
	int ret = soda_wire_get_msg_relay(body, bytes, &r);

	if (ret == 0)
		ret = soda_msg_job_relay(c->job, c->link, body, &r, reply->body, &routed,
					 &reply->why);
	if (ret < 0)
		return ret;
	reply->bytes = r.packets;
	atomic_fetch_add(&m->relayed, routed.messages);
	return 0;
}

static int offer(struct soda_router_client *c, const void *body, size_t bytes,
		 struct soda_reply *reply)
{
	struct soda_router *m = c->router;
	struct soda_msg_routed routed;
	struct soda_wire_msg_relay r;
	uint32_t ranks = c->job->here_n;
	int ret = soda_wire_get_msg_offer(body, bytes, ranks, &r);

	if (ret == 0)
		ret = soda_msg_job_offer(c->job, c->link, &r,
					 (const uint8_t *)body + SODA_WIRE_MSG_RELAY_BYTES,
					 reply->body, &routed, &reply->why);
	if (ret < 0)
		return ret;
	reply->bytes = sizeof(uint64_t) * ranks;
	atomic_fetch_add(&m->relayed, routed.messages);
	return 0;
}

/* The memory of packets for the other agent. */
static int near(struct soda_router_client *c, size_t bytes, bool shares, struct soda_reply *reply)
{
	struct soda_wire_msg_rings sizes;
	int ret;

	if (bytes)
		return -EPROTO;
	if (!shares)
		return soda_msg_refuse(&reply->why, -ENOTSUP,
				       "messages: packets' memory is for agents on the same "
				       "machine");
	ret = soda_msg_job_near(c->job, c->link, c->info, &sizes, &reply->share.fd, &reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_rings(reply->body, &sizes);
	reply->bytes = SODA_WIRE_MSG_RINGS_BYTES;
	return 0;
}

static int break_job(struct soda_router_client *c, const void *body, size_t bytes)
{
	char text[sizeof(((struct soda_why *)0)->text)];

	if (!bytes || bytes >= sizeof(text))
		return -EPROTO;
	for (size_t i = 0; i < bytes; i++) /* it is logged */
		text[i] = ((const char *)body)[i] < ' ' ? ' ' : ((const char *)body)[i];
	text[bytes] = 0;
	soda_msg_job_fail(c->job, text);
	return 0;
}

/* Its rings, of which each of a rank's clients gets its own part. */
static int rings(struct soda_router_client *c, size_t bytes, bool shares, struct soda_reply *reply)
{
	struct soda_msg_rings *r;
	int ret;

	if (bytes)
		return -EPROTO;
	if (!shares)
		return soda_msg_refuse(&reply->why, -ENOTSUP,
				       "messages: rings need an agent on the same machine");
	ret = soda_msg_job_rings(&c->router->jobs, c->job, c->rank, c->role, &r, &reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_rings(reply->body, &r->sizes);
	reply->bytes = SODA_WIRE_MSG_RINGS_BYTES;
	reply->share.fd = c->role == SODA_MSG_PUSHES ? r->out_fd : r->in_fd;
	return 0;
}

/* A PULL of a rank with rings brings nothing but collectives; while it waits they are served. */
static int serve(struct soda_router_client *c, const struct soda_wire_msg_pull *p,
		 struct soda_reply *reply)
{
	struct soda_wire_msg_pulled pulled;
	struct soda_msg_routed routed;
	int ret;

	if (p->room)
		return soda_msg_refuse(&reply->why, -EINVAL, "messages: rank %u has rings",
				       c->rank);
	ret = soda_msg_job_serve(c->job, c->rank, p, &pulled, &routed, &reply->why);
	count_routed(c->router, &routed);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_pulled(reply->body, &pulled);
	reply->bytes = SODA_WIRE_MSG_PULLED_BYTES;
	return 0;
}

static int pull(struct soda_router_client *c, const void *body, size_t bytes,
		struct soda_reply *reply)
{
	struct soda_wire_msg_pulled pulled;
	struct soda_wire_msg_pull p;
	int ret = soda_wire_get_msg_pull(body, bytes, &p);

	if (ret < 0)
		return ret;
	if (p.room > SODA_WIRE_MAX_CONTROL - SODA_WIRE_MSG_PULLED_BYTES)
		return -EPROTO;
	if (soda_msg_job_has_rings(c->job, c->rank))
		return serve(c, &p, reply);
	ret = soda_msg_job_pull(c->job, c->rank, &c->view, &p,
				reply->body + SODA_WIRE_MSG_PULLED_BYTES, &pulled, &reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_pulled(reply->body, &pulled);
	reply->bytes = SODA_WIRE_MSG_PULLED_BYTES + (size_t)ret;
	if (ret)
		atomic_fetch_add(&c->router->pulls, 1);
	return 0;
}

static int reduce(struct soda_router_client *c, const void *body, size_t bytes,
		  struct soda_reply *reply)
{
	struct soda_wire_msg_reduce r;
	int ret = soda_wire_get_msg_reduce(body, bytes, &r);

	return ret < 0 ? ret
		       : soda_msg_job_reduce(&c->router->jobs, c->job, c->rank, &r, &reply->why);
}

/* Calls of one that has joined, each role its own. */
static int call_joined(struct soda_router_client *c, int type, const void *body, size_t bytes,
		       bool shares, struct soda_reply *reply)
{
	bool pushes = c->role == SODA_MSG_PUSHES;

	if (!soda_msg_job_owns(c->job, c->rank, c->role, c)) {
		snprintf(reply->why.text, sizeof(reply->why.text),
			 "messages: rank %u has come back on another connection", c->rank);
		return -ESTALE;
	}
	switch (type) {
	case SODA_MSG_MESSAGES_AWAIT:
		return await(c, body, bytes, reply);
	case SODA_MSG_MESSAGES_RINGS:
		return rings(c, bytes, shares, reply);
	case SODA_MSG_MESSAGES_PUSH:
		return pushes ? push(c, body, bytes, reply) : -EPROTO;
	case SODA_MSG_MESSAGES_PULL:
		return pushes ? -EPROTO : pull(c, body, bytes, reply);
	case SODA_MSG_MESSAGES_FINISH:
		return pushes && bytes == sizeof(uint32_t)
			       ? soda_msg_job_finish(&c->router->jobs, c->job, c->rank,
						     soda_wire_get_u32(body), &reply->why)
			       : -EPROTO;
	case SODA_MSG_MESSAGES_REDUCE:
		return pushes ? reduce(c, body, bytes, reply) : -EPROTO;
	default:
		return -EPROTO;
	}
}

static int call_agent(struct soda_router_client *c, int type, const void *body, size_t bytes,
		      bool shares, struct soda_reply *reply)
{
	switch (type) {
	case SODA_MSG_MESSAGES_RELAY:
		return relay(c, body, bytes, reply);
	case SODA_MSG_MESSAGES_OFFER:
		return offer(c, body, bytes, reply);
	case SODA_MSG_MESSAGES_RINGS:
		return near(c, bytes, shares, reply);
	case SODA_MSG_MESSAGES_BREAK:
		return break_job(c, body, bytes);
	default:
		return -EPROTO;
	}
}

int soda_router_call(struct soda_router_client *c, int type, const void *body, size_t bytes,
		     bool shares, struct soda_reply *reply)
{
	bool first = type == SODA_MSG_MESSAGES_JOIN || type == SODA_MSG_MESSAGES_LINK;

	if (first && c->job)
		return soda_msg_refuse(&reply->why, -EBUSY, "messages: it has joined");
	if (type == SODA_MSG_MESSAGES_CHALLENGE)
		return challenge(c, body, bytes, reply);
	if (first)
		return type == SODA_MSG_MESSAGES_JOIN ? join(c, body, bytes, reply)
						      : link_agent(c, body, bytes, reply);
	if (!c->job)
		return soda_msg_refuse(&reply->why, -EINVAL,
				       "messages: a rank begins with JOIN, an agent with LINK");
	return c->link ? call_agent(c, type, body, bytes, shares, reply)
		       : call_joined(c, type, body, bytes, shares, reply);
}

void soda_router_lose(struct soda_router_client *c, bool stopping)
{
	if (!c->job || c->link || c->over)
		return;
	c->over = true;
	if (!stopping && soda_msg_job_lose(c->job, c->rank, c->role, c))
		c->kept = true;
	else if (soda_msg_job_owns(c->job, c->rank, c->role, c))
		soda_msg_job_leave(&c->router->jobs, c->job, c->rank);
}

void soda_router_leave(struct soda_router_client *c)
{
	if (!c->job || c->link || c->over)
		return;
	c->over = true;
	if (soda_msg_job_owns(c->job, c->rank, c->role, c))
		soda_msg_job_leave(&c->router->jobs, c->job, c->rank);
}

void soda_router_forget(struct soda_router_client *c)
{
	soda_router_lose(c, true); /* where nobody has said that it has ended */
	if (c->job && !c->kept)
		soda_msg_job_put(c->job, !c->link);
}

int soda_router_start(struct soda_router *r, uint64_t budget, const struct soda_msg_tuning *tuning)
{
	return soda_msg_jobs_init(&r->jobs, budget, tuning);
}

uint64_t soda_router_budget(uint32_t ranks)
{
	uint64_t inboxes = (uint64_t)ranks * SODA_MSG_INBOX_LEAST;

	/* every rank's inbox is taken, and rings for each are looked for (jobs.c) */
	return (inboxes < OWN_BYTES ? OWN_BYTES : inboxes) + ranks * soda_msg_rings_bytes(ranks);
}

void soda_router_drain(struct soda_router *r)
{
	struct timespec end = soda_wait_until(SODA_MSG_GOODBYE_MS);
	struct soda_msg_jobs *all = &r->jobs;

	pthread_mutex_lock(&all->lock);
	while (all->threads && !pthread_cond_timedwait(&all->fewer, &all->lock, &end))
		;
	pthread_mutex_unlock(&all->lock);
}

void soda_router_stop(struct soda_router *r)
{
	if (!r->jobs.budget)
		return;
	soda_msg_jobs_destroy(&r->jobs);
	r->jobs.budget = 0;
}
