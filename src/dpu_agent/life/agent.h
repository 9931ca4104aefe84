/* SPDX-License-Identifier: BSD-3-Clause */
/* The DPU agent as a whole: its sessions, its services, and what transports call. */
#ifndef SODA_DPU_AGENT_AGENT_H
#define SODA_DPU_AGENT_AGENT_H

#include <stddef.h>

#include "daemon/metrics.h"
#include "dpu_agent/messages/messages.h"
#include "dpu_agent/movement/movement.h"
#include "dpu_agent/paging/paging.h"
#include "dpu_agent/session/session.h"
#include "transport/api/service.h"

struct soda_dpu {
	const struct soda_dpu_options *opt; /* set before start, then constant, and so the next */
	uint32_t id; /* random; soda_wire_welcome.agent for clients that have lost nothing */
	uint64_t started_ns;
	struct soda_tenants tenants; /* whom it serves, if there is a file */
	struct soda_sessions sessions;
	struct soda_paging paging;     /* the first service */
	struct soda_movement movement; /* the second, where it has memory */
	struct soda_router messages;   /* the third, likewise */
};

extern const struct soda_service soda_dpu_service;

/*
 * Start the agent; *opt must stay until soda_dpu_stop. 0, negative errno.  After that, before a
 * listener starts, further services may be registered in dpu->sessions.services.
 */
int soda_dpu_start(struct soda_dpu *dpu, const struct soda_dpu_options *opt);
/*
 * End the agent, when no client is connected any more: bring acknowledged WRITEs to the server for
 * at most patience_ms, end the threads.  Returns how many sessions lost some.
 */
unsigned soda_dpu_stop(struct soda_dpu *dpu, uint32_t patience_ms);

/*
 * Say all statistics to m; arg: the struct soda_dpu. Any thread; takes the table's lock and each
 * session's, for a moment each.
 */
void soda_dpu_walk(void *arg, struct soda_metrics *m);
/* The same for one who may see the clients of one tenant only. arg: a struct soda_dpu_view. */
struct soda_dpu_view {
	struct soda_dpu *dpu;
	const struct soda_tenant *of; /* NULL: all clients, all tenants, and what the caches have */
};
void soda_dpu_walk_view(void *arg, struct soda_metrics *m);

/*
 * registry.c: the registry that --server may name, etcd://HOST:PORT[,...]/POOL: which servers the
 * agent begins with, and a thread that tells soda_dpu_servers of those that come and go.  While
 * etcd is away nothing changes.
 *
 * soda_dpu_registry_find: if opt->server names a registry, ask it, and set opt->registered.  0;
 * -EINVAL: also for options of a registry without one; errors of soda_registry_resolve(); logged.
 */
int soda_dpu_registry_find(struct soda_dpu_options *opt);
/* Behind soda_dpu_start(), whose options these were.  0, also without a registry; an error, logged.
 */
int soda_dpu_registry_follow(struct soda_dpu *dpu);
/* Before soda_dpu_stop(): the agent is told of no change from now on. */
void soda_dpu_registry_stop(void);

static inline struct soda_dpu *soda_dpu_of(struct soda_session *s)
{
	return (struct soda_dpu *)((char *)s->all - offsetof(struct soda_dpu, sessions));
}

#endif
