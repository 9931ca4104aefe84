/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/messages/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dpu_agent/session/session.h"
#include "trust/identity.h"
#include "wire/messages.h"

/* Tenants (routing/jobs.h, struct soda_msg_owners); arg: the sessions of an agent that has them. */

/*
 * This agent comes to another one as the agent that it is to the memory server, too.  The name of
 * the other one is the host of its address.
 */
static int identify(void *arg, const char *address, struct soda_identity **identity_p,
		    struct soda_why *why)
{
	const struct soda_sessions *own = arg;
	const struct soda_dpu_options *opt = own->opt;
	struct soda_conf_error err = { "" };
	int ret = opt->key_file ? soda_identity_load(opt->tenant, opt->key_file, NULL, address,
						     identity_p, &err)
				: soda_conf_fail(&err, -EACCES,
						 "no --key-file here to prove ourselves by");

	if (ret == 0)
		ret = soda_identity_encrypt(opt->daemon.tls, NULL, NULL, address, identity_p, &err);
	if (ret < 0)
		snprintf(why->text, sizeof(why->text), "messages: %s", err.text);
	return ret == -ENOTSUP ? -ENOTSUP : ret < 0 ? -EACCES : 0;
}

static const char *name_of(void *arg, uint32_t tenant)
{
	const struct soda_sessions *own = arg;
	const struct soda_tenant *t = soda_tenant_numbered(own->tenants, tenant);

	return t ? t->name : NULL;
}

/* Another agent says TENANT/JOB, and is believed where its own role is agent; names have no '/'. */
static int find_owner(void *arg, uint32_t from, const char **name_p, size_t *bytes_p,
		      uint32_t *tenant_p, struct soda_why *why)
{
	const struct soda_sessions *own = arg;
	const struct soda_tenant *who = soda_tenant_numbered(own->tenants, from), *owner;
	const char *end = memchr(*name_p, '/', *bytes_p);

	*tenant_p = from;
	if (!who || soda_tenant_role(own->tenants, who) != SODA_ROLE_AGENT)
		return 0;
	owner = end ? soda_tenant_named(own->tenants, *name_p, (size_t)(end - *name_p)) : NULL;
	if (!owner) {
		snprintf(why->text, sizeof(why->text),
			 "messages: the job %.*s is of no tenant of this agent",
			 (int)(*bytes_p > 120 ? 120 : *bytes_p), *name_p);
		return -EACCES;
	}
	*tenant_p = owner->number;
	*bytes_p -= (size_t)(end + 1 - *name_p);
	*name_p = end + 1;
	return 0;
}

static uint32_t count_tenants(void *arg)
{
	const struct soda_sessions *own = arg;

	return atomic_load(&own->tenants->there);
}

/* Hooks */

static int call(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		size_t bytes, bool shares, struct soda_reply *reply)
{
	return soda_router_call(state, (int)type, body, bytes, shares, reply);
}

static int created(void *arg, struct soda_session *s, void *state)
{
	struct soda_router_client *c = state;

	c->router = arg;
	c->info = &s->info;
	return 0;
}

/* A rank's connection has ended; without a goodbye it may come back. */
static void gone(struct soda_session *s, void *state, bool stopping)
{
	soda_router_lose(state, stopping);
}

static void leave(struct soda_session *s, void *state)
{
	soda_router_leave(state);
}

static void destroyed(struct soda_session *s, void *state)
{
	soda_router_forget(state);
}

static const struct soda_agent_service service = {
	.name = "messages",
	.first = SODA_MSG_MESSAGES_JOIN,
	.last = SODA_MSG_MESSAGES_LAST,
	.tools = true,
	.state_bytes = sizeof(struct soda_router_client),
	.created = created,
	.call = call,
	.leave = leave,
	.gone = gone,
	.destroyed = destroyed,
};

int soda_messages_start(struct soda_router *m, struct soda_sessions *all, uint64_t budget,
			const struct soda_msg_tuning *tuning)
{
	int ret = soda_router_start(m, budget, tuning);

	if (ret < 0)
		return ret;
	if (all->tenants)
		m->jobs.owners = (struct soda_msg_owners){ .arg = all,
							   .identify = identify,
							   .name = name_of,
							   .find = find_owner,
							   .tenants = count_tenants };
	ret = soda_services_register(&all->services, &service, m);
	if (ret < 0)
		soda_router_stop(m);
	return ret;
}

static void say_count(struct soda_metrics *metrics, enum soda_metric_unit unit, const char *name,
		      const char *help, uint64_t value)
{
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, unit, name, help, value);
}

void soda_messages_walk(struct soda_router *m, struct soda_metrics *metrics)
{
	uint64_t reserved;
	unsigned n;

	if (!m->jobs.budget)
		return;
	pthread_mutex_lock(&m->jobs.lock);
	reserved = m->jobs.reserved.all;
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
