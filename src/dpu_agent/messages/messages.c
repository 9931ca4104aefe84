/* SPDX-License-Identifier: BSD-3-Clause */
/* Each body from a client is decoded and checked here, or in the function that it is passed to. */
#include "dpu_agent/messages/messages.h"

#include <errno.h>
#include <stdio.h>

#include "dpu_agent/session/session.h"
#include "wire/field.h"

/* A client: one of the two connections of a rank, or another agent. */
struct client {
	struct soda_messages *messages;
	struct soda_session *session;
	struct soda_msg_job
		*job; /* NULL: before JOIN. Set by the one control connection's thread */
	struct soda_msg_link *link; /* not NULL: another agent */
	uint32_t rank;
	enum soda_msg_role role;
	struct soda_inbox_view view; /* of who pulls: what this connection was shown */
	bool over;		     /* it has left, or is lost */
	bool kept; /* its reference to the job is the job's, in case it comes back */
};

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

static int join(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
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
		ret = soda_msg_job_join(&c->messages->jobs, &j, &place, &c->session->info, c,
					&c->job, &made, &reply->why);
	if (ret < 0)
		return ret;
	c->rank = j.rank;
	c->role = (enum soda_msg_role)j.role;
	if (made)
		soda_msg_links_start(c->job);
	return say_version(reply);
}

static int link_agent(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_msg_link l;
	int ret = 0;

	if (bytes >= sizeof(uint32_t) && check_version(soda_wire_get_u32(body), reply) < 0)
		return -ENOTSUP;
	ret = soda_wire_get_msg_link(body, bytes, &l);
	if (ret == 0)
		ret = soda_msg_job_link(&c->messages->jobs, &l,
					(const char *)body + SODA_WIRE_MSG_LINK_BYTES,
					bytes - SODA_WIRE_MSG_LINK_BYTES, c->session->info.tenant,
					&c->job, &c->link, &reply->why);
	return ret < 0 ? ret : say_version(reply);
}

static int await(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_msg_missing missing;
	int ret;

	if (bytes != sizeof(uint32_t))
		return -EPROTO;
	ret = soda_msg_job_await(&c->messages->jobs, c->job, soda_wire_get_u32(body), &missing,
				 &reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_missing(reply->body, &missing);
	reply->bytes = SODA_WIRE_MSG_MISSING_BYTES;
	return 0;
}

static void count_routed(struct soda_messages *m, const struct soda_msg_routed *routed)
{
	atomic_fetch_add(&m->messages, routed->messages);
	atomic_fetch_add(&m->bytes, routed->bytes);
	atomic_fetch_add(&m->packets, routed->packets);
	atomic_fetch_add(&m->refused, routed->refused);
}

static int push(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_messages *m = c->messages;
	struct soda_msg_routed routed;
	struct soda_wire_msg_push p;
	int ret = soda_wire_get_msg_push(body, bytes, &p);

	if (ret == 0 && soda_msg_job_has_rings(c->job, c->rank))
		ret = soda_services_refuse(reply, -EINVAL, "messages: rank %u has rings", c->rank);
	if (ret == 0)
		ret = soda_msg_job_route(&m->jobs, c->job, c->rank, body, &p, reply->body, &routed,
					 &reply->why);
	if (ret < 0)
		return ret;
	reply->bytes = p.packets;
	count_routed(m, &routed);
	return 0;
}

static int relay(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_messages *m = c->messages;
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

static int offer(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_messages *m = c->messages;
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
static int near(struct client *c, size_t bytes, bool shares, struct soda_reply *reply)
{
	struct soda_wire_msg_rings sizes;
	int ret;

	if (bytes)
		return -EPROTO;
	if (!shares)
		return soda_services_refuse(reply, -ENOTSUP,
					    "messages: packets' memory is for agents on the same "
					    "machine");
	ret = soda_msg_job_near(c->job, c->link, &c->session->info, &sizes, &reply->share.fd,
				&reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_rings(reply->body, &sizes);
	reply->bytes = SODA_WIRE_MSG_RINGS_BYTES;
	return 0;
}

static int break_job(struct client *c, const void *body, size_t bytes)
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
static int rings(struct client *c, size_t bytes, bool shares, struct soda_reply *reply)
{
	struct soda_msg_rings *r;
	int ret;

	if (bytes)
		return -EPROTO;
	if (!shares)
		return soda_services_refuse(reply, -ENOTSUP,
					    "messages: rings need an agent on the same machine");
	ret = soda_msg_job_rings(&c->messages->jobs, c->job, c->rank, c->role, &r, &reply->why);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_rings(reply->body, &r->sizes);
	reply->bytes = SODA_WIRE_MSG_RINGS_BYTES;
	reply->share.fd = c->role == SODA_MSG_PUSHES ? r->out_fd : r->in_fd;
	return 0;
}

/* A PULL of a rank with rings brings nothing but collectives; while it waits they are served. */
static int serve(struct client *c, const struct soda_wire_msg_pull *p, struct soda_reply *reply)
{
	struct soda_wire_msg_pulled pulled;
	struct soda_msg_routed routed;
	int ret;

	if (p->room)
		return soda_services_refuse(reply, -EINVAL, "messages: rank %u has rings", c->rank);
	ret = soda_msg_job_serve(c->job, c->rank, p, &pulled, &routed, &reply->why);
	count_routed(c->messages, &routed);
	if (ret < 0)
		return ret;
	soda_wire_put_msg_pulled(reply->body, &pulled);
	reply->bytes = SODA_WIRE_MSG_PULLED_BYTES;
	return 0;
}

static int pull(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
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
		atomic_fetch_add(&c->messages->pulls, 1);
	return 0;
}

static int reduce(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_msg_reduce r;
	int ret = soda_wire_get_msg_reduce(body, bytes, &r);

	return ret < 0 ? ret
		       : soda_msg_job_reduce(&c->messages->jobs, c->job, c->rank, &r, &reply->why);
}

/* Calls of one that has joined, each role its own. */
static int call_joined(struct client *c, int type, const void *body, size_t bytes, bool shares,
		       struct soda_reply *reply)
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
			       ? soda_msg_job_finish(&c->messages->jobs, c->job, c->rank,
						     soda_wire_get_u32(body), &reply->why)
			       : -EPROTO;
	case SODA_MSG_MESSAGES_REDUCE:
		return pushes ? reduce(c, body, bytes, reply) : -EPROTO;
	default:
		return -EPROTO;
	}
}

static int call_agent(struct client *c, int type, const void *body, size_t bytes, bool shares,
		      struct soda_reply *reply)
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

/* Hooks */

static int call(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		size_t bytes, bool shares, struct soda_reply *reply)
{
	struct client *c = state;

	bool first = (int)type == SODA_MSG_MESSAGES_JOIN || (int)type == SODA_MSG_MESSAGES_LINK;

	if (first && c->job) {
		snprintf(reply->why.text, sizeof(reply->why.text), "messages: it has joined");
		return -EBUSY;
	}
	if (first)
		return (int)type == SODA_MSG_MESSAGES_JOIN ? join(c, body, bytes, reply)
							   : link_agent(c, body, bytes, reply);
	if (!c->job) {
		snprintf(reply->why.text, sizeof(reply->why.text),
			 "messages: a rank begins with JOIN, an agent with LINK");
		return -EINVAL;
	}
	return c->link ? call_agent(c, (int)type, body, bytes, shares, reply)
		       : call_joined(c, (int)type, body, bytes, shares, reply);
}

static int created(void *arg, struct soda_session *s, void *state)
{
	struct client *c = state;

	c->messages = arg;
	c->session = s;
	return 0;
}

/* A rank's connection has ended; without a goodbye it may come back. */
static void gone(struct soda_session *s, void *state, bool stopping)
{
	struct client *c = state;

	if (!c->job || c->link || c->over)
		return;
	c->over = true;
	if (!stopping && soda_msg_job_lose(c->job, c->rank, c->role, c))
		c->kept = true;
	else if (soda_msg_job_owns(c->job, c->rank, c->role, c))
		soda_msg_job_leave(&c->messages->jobs, c->job, c->rank);
}

static void leave(struct soda_session *s, void *state)
{
	struct client *c = state;

	if (!c->job || c->link || c->over)
		return;
	c->over = true;
	if (soda_msg_job_owns(c->job, c->rank, c->role, c))
		soda_msg_job_leave(&c->messages->jobs, c->job, c->rank);
}

static void destroyed(struct soda_session *s, void *state)
{
	struct client *c = state;

	gone(s, state, true); /* of a session that ended before it was in the table */
	if (c->job && !c->kept)
		soda_msg_job_put(c->job, !c->link);
}

static const struct soda_agent_service service = {
	.name = "messages",
	.first = SODA_MSG_MESSAGES_JOIN,
	.last = SODA_MSG_MESSAGES_LAST,
	.tools = true,
	.state_bytes = sizeof(struct client),
	.created = created,
	.call = call,
	.leave = leave,
	.gone = gone,
	.destroyed = destroyed,
};

int soda_messages_start(struct soda_messages *m, struct soda_sessions *all, uint64_t budget,
			const struct soda_msg_tuning *tuning)
{
	int ret = soda_msg_jobs_init(&m->jobs, budget, tuning);

	if (ret < 0)
		return ret;
	ret = soda_services_register(&all->services, &service, m);
	if (ret < 0)
		soda_messages_stop(m);
	return ret;
}

void soda_messages_stop(struct soda_messages *m)
{
	if (!m->jobs.budget)
		return;
	soda_msg_jobs_destroy(&m->jobs);
	m->jobs.budget = 0;
}

static void say_count(struct soda_metrics *metrics, enum soda_metric_unit unit, const char *name,
		      const char *help, uint64_t value)
{
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, unit, name, help, value);
}

void soda_messages_walk(struct soda_messages *m, struct soda_metrics *metrics)
{
	uint64_t reserved;
	unsigned n;

	if (!m->jobs.budget)
		return;
	pthread_mutex_lock(&m->jobs.lock);
	reserved = m->jobs.reserved;
	n = m->jobs.n;
	pthread_mutex_unlock(&m->jobs.lock);
	soda_metrics_say_level(metrics, "msg_jobs", "jobs whose messages are routed", n);
	soda_metrics_say_size(metrics, "msg_reserved_bytes", "memory of their inboxes", reserved);
	say_count(metrics, SODA_UNIT_NONE, "msg_messages", "messages that were routed",
		  atomic_load(&m->messages));
	say_count(metrics, SODA_UNIT_BYTES, "msg_bytes", "their data", atomic_load(&m->bytes));
	say_count(metrics, SODA_UNIT_NONE, "msg_packets", "packets that they came in",
		  atomic_load(&m->packets));
	say_count(metrics, SODA_UNIT_NONE, "msg_refused",
		  "packets that were refused for lack of room", atomic_load(&m->refused));
	say_count(metrics, SODA_UNIT_NONE, "msg_deliveries", "transfers to ranks",
		  atomic_load(&m->pulls));
	say_count(metrics, SODA_UNIT_NONE, "msg_relay_transfers",
		  "transfers to other agents that had packets",
		  atomic_load(&m->jobs.relays.transfers));
	say_count(metrics, SODA_UNIT_NONE, "msg_relay_near",
		  "of them, those whose packets an agent on this machine has taken out of memory",
		  atomic_load(&m->jobs.relays.near));
	say_count(metrics, SODA_UNIT_BYTES, "msg_relay_bytes", "packets in them",
		  atomic_load(&m->jobs.relays.bytes));
	say_count(metrics, SODA_UNIT_NONE, "msg_relay_packets",
		  "their number, of those that were sent", atomic_load(&m->jobs.relays.packets));
	say_count(metrics, SODA_UNIT_NONE, "msg_relay_refused",
		  "packets that another agent had no room for",
		  atomic_load(&m->jobs.relays.refused));
	say_count(metrics, SODA_UNIT_NONE, "msg_relay_again",
		  "connections to other agents that were lost and made again",
		  atomic_load(&m->jobs.relays.again));
	soda_metrics_say_level(metrics, "msg_relay_blocked", "ranks on blocklists",
			       (uint64_t)atomic_load(&m->jobs.relays.blocked));
	say_count(metrics, SODA_UNIT_NONE, "msg_relayed", "messages that other agents have sent",
		  atomic_load(&m->relayed));
	say_count(metrics, SODA_UNIT_NONE, "msg_returned",
		  "connections of ranks that were lost and made again",
		  atomic_load(&m->jobs.returned));
	say_count(metrics, SODA_UNIT_NONE, "msg_broken", "jobs that were broken off",
		  atomic_load(&m->jobs.broken_n));
}
