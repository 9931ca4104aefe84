/* SPDX-License-Identifier: BSD-3-Clause */
/* soda_dpu_walk(): gauges, every counter of the table, and the clients. */
#include <stdlib.h>

#include "base/lock.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/session/tenants.h"

/* At most so many clients are listed, so that Prometheus need not remember more series. */
enum { CLIENTS_SHOWN = 64 };

static const struct soda_metric counters[] = { SODA_COUNTERS(SODA_COUNTER_METRIC) };

static const struct soda_metric distributions[SODA_DISTRIBUTIONS_N] = {
	[SODA_BATCH_SIZES] = { .key = "batch_size", .help = "requests of programs in a batch" },
	[SODA_TIMES_READ] = { .key = "read_time_ns",
			      .help = "time of READs from arrival to answer",
			      .unit = SODA_UNIT_NS },
	[SODA_TIMES_WRITE] = { .key = "write_time_ns",
			       .help = "time of WRITEs from arrival to acknowledgement",
			       .unit = SODA_UNIT_NS },
};

/* A copy of what is shown of a client, so that no lock is held while it is written. */
struct shown {
	struct soda_session *session; /* with a reference */
	uint64_t id;
	uint64_t epoch, queued, read_bytes;
	unsigned peers_n;
	bool up, by_agent;
};

static void look_at(struct shown *shown)
{
	struct soda_session *s = shown->session;

	pthread_mutex_lock(&s->lock);
	for (const struct soda_task *at = soda_pager(s)->queue; at; at = at->next)
		shown->queued++;
	for (const struct soda_task *at = soda_pager(s)->gate; at; at = at->next)
		shown->queued++;
	shown->peers_n = s->peers_n;
	shown->up = s->up;
	shown->by_agent = s->by_agent;
	shown->epoch = s->epoch;
	shown->read_bytes = soda_pager(s)->read_bytes;
	pthread_mutex_unlock(&s->lock);
}

static void walk_client(struct soda_metrics *m, struct shown *shown)
{
	static const struct soda_metric under_way = { .key = "read_bytes_under_way",
						      .name = "read_under_way_bytes",
						      .help = "data of READs of a client under way",
						      .kind = SODA_METRIC_GAUGE };
	struct soda_session *s = shown->session;

	look_at(shown);
	soda_metrics_item(m);
	soda_metrics_hex(m, "id", shown->id, 16);
	soda_metrics_text(m, "address", s->info.address);
	if (s->tenant)
		soda_metrics_text(m, "tenant", s->tenant->name);
	soda_metrics_id(m, "pid", (uint64_t)s->info.pid);
	soda_metrics_say_size(m, "unwritten_bytes",
			      "data of a client that is not on the server yet",
			      soda_writes_unwritten(s));
	soda_metrics_say_flag(m, "connected", "whether a client has a connection",
			      shown->peers_n > 0);
	soda_metrics_say_flag(m, "up", "whether a client's connections to the server are up",
			      shown->up);
	soda_metrics_say_flag(m, "by_agent", "whether another agent passes a client on",
			      shown->by_agent);
	soda_metrics_id(m, "epoch", shown->epoch);
	soda_metrics_say_level(m, "connections", "connections of a client", shown->peers_n);
	soda_metrics_number(m, &under_way, shown->read_bytes);
	soda_metrics_say_level(m, "reads_queued", "READs of a client that wait for their turn",
			       shown->queued);
	soda_metrics_item_end(m);
}

/* The present sessions, each with a reference; *n_p of them. NULL: no memory, or none. */
static struct shown *take_sessions(struct soda_sessions *all, unsigned *n_p, bool *draining_p)
{
	struct shown *shown;
	unsigned n = 0;

	pthread_mutex_lock(&all->lock);
	shown = all->shares.all ? calloc(all->shares.all, sizeof(*shown)) : NULL;
	for (struct soda_session *s = all->list; shown && s; s = s->next, n++) {
		soda_session_ref(s);
		shown[n].session = s;
		shown[n].id = s->id;
	}
	*n_p = all->shares.all;
	*draining_p = all->draining;
	pthread_mutex_unlock(&all->lock);
	return shown;
}

/* of: as in soda_dpu_view. */
static void walk_clients(struct soda_metrics *m, struct soda_sessions *all,
			 const struct soda_tenant *of)
{
	static const struct soda_metric_list clients = { "client_list", "client", CLIENTS_SHOWN };
	struct shown *shown;
	bool draining;
	unsigned n;

	shown = take_sessions(all, &n, &draining);
	soda_metrics_say_level(m, "clients", "clients known, away ones included", n);
	soda_metrics_say_flag(m, "draining", "whether the agent has been told to end", draining);
	soda_metrics_list(m, &clients);
	for (unsigned i = 0; shown && i < n; i++) {
		if (!of || shown[i].session->tenant == of)
			walk_client(m, &shown[i]);
		soda_session_put(shown[i].session);
	}
	soda_metrics_list_end(m);
	free(shown);
}

static void walk_process(struct soda_metrics *m, struct soda_dpu *dpu)
{
	soda_metrics_text(m, "program", "soda-dpu-agent");
	soda_metrics_text(m, "version", SODA_VERSION);
	soda_metrics_hex(m, "instance_id", dpu->id, 8);
	soda_metrics_text(m, "server", dpu->opt->server);
	soda_metrics_say_level(m, "servers", "memory servers that programs are told of",
			       soda_dpu_servers_count(&dpu->sessions.servers));
	soda_metrics_say_flag(m, "server_is_agent", "whether the server is another agent",
			      atomic_load(&dpu->paging.server_is_agent));
	soda_metrics_say_flag(m, "aggregate", "whether requests are batched",
			      dpu->paging.aggregate);
	soda_metrics_say_flag(m, "async", "whether requests are forwarded asynchronously",
			      dpu->paging.async);
	soda_metrics_process(m, dpu->started_ns);
}

static void walk_memory(struct soda_metrics *m, struct soda_dpu *dpu)
{
	static const struct soda_metric under_way = {
		.key = "server_bytes_under_way",
		.name = "server_under_way_bytes",
		.help = "data asked of the server and not answered yet",
		.kind = SODA_METRIC_GAUGE
	};

	soda_metrics_say_size(m, "buffer_bytes", "memory of requests under way",
			      soda_blocks_bytes());
	soda_metrics_number(m, &under_way, soda_schedule_under_way(&dpu->paging.schedule));
}

/* How many clients with pages a tenant has. */
static void walk_tenant(void *arg, struct soda_metrics *m, struct soda_tenant *tenant)
{
	struct soda_sessions *all = arg;
	unsigned n = 0;

	pthread_mutex_lock(&all->lock);
	for (const struct soda_session *s = all->list; s; s = s->next)
		n += s->tenant == tenant && !s->tool;
	pthread_mutex_unlock(&all->lock);
	soda_metrics_say_level(m, "clients", "clients of a tenant, away ones included", n);
	soda_metrics_say_size(m, "used_bytes", "memory promised to a tenant",
			      atomic_load(&soda_agent_tenant(tenant)->used));
	soda_metrics_say_size(m, "quota_bytes", "most that a tenant may have; 0: no limit",
			      atomic_load(&soda_agent_tenant(tenant)->quota));
}

void soda_dpu_walk(void *arg, struct soda_metrics *m)
{
	struct soda_dpu_view view = { .dpu = arg };

	soda_dpu_walk_view(&view, m);
}

void soda_dpu_walk_view(void *arg, struct soda_metrics *m)
{
	const struct soda_dpu_view *view = arg;
	struct soda_dpu *dpu = view->dpu;

	walk_process(m, dpu);
	walk_memory(m, dpu);
	soda_counters_walk(m, counters, SODA_COUNTERS_N);
	soda_distributions_walk(m, distributions, SODA_DISTRIBUTIONS_N);
	if (!view->of) { /* of everybody's objects */
		soda_sealer_walk(&dpu->paging.sealer, m);
		soda_caches_walk(&dpu->paging.caches, m);
	}
	soda_paging_store_walk(&dpu->paging, m);
	soda_movement_walk(&dpu->movement, m);
	soda_messages_walk(&dpu->messages, m);
	soda_services_walk(&dpu->sessions.services, m);
	soda_tenants_walk(&dpu->tenants, view->of, walk_tenant, &dpu->sessions, m);
	walk_clients(m, &dpu->sessions, view->of);
}
