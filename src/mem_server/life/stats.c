/* SPDX-License-Identifier: BSD-3-Clause */
/* soda_server_walk(): gauges, every counter of the table, clients with their regions. */
#include "mem_server/base/counters.h"
#include "mem_server/life/server.h"

/* At most so many are listed, so that Prometheus need not remember more series. */
enum { CLIENTS_SHOWN = 64, REGIONS_SHOWN = 256 };

static const struct soda_metric counters[] = { SODA_COUNTERS(SODA_COUNTER_METRIC) };

static const struct soda_metric times[SODA_DISTRIBUTIONS_N] = {
	[SODA_TIMES_READ] = { .key = "read_time_ns",
			      .help = "service time of READs, from the header to the last byte "
				      "sent",
			      .unit = SODA_UNIT_NS },
	[SODA_TIMES_WRITE] = { .key = "write_time_ns",
			       .help = "service time of WRITEs, from the header to the last byte "
				       "stored",
			       .unit = SODA_UNIT_NS },
};

static void walk_region(struct soda_metrics *m, const struct soda_client_region *region)
{
	soda_metrics_item(m);
	soda_metrics_id(m, "id", region->id);
	soda_metrics_say_size(m, "bytes", "size of a region", region->bytes);
	soda_metrics_text(m, "kind", soda_region_kind(region));
	soda_metrics_text(m, "name", region->name);
	soda_metrics_item_end(m);
}

/* What a program has said of the pool that this server is a member of. */
static void walk_told(struct soda_metrics *m, const struct soda_wire_tell *told)
{
	if (!told->members)
		return;
	soda_metrics_hex(m, "pool_program", told->program, 16);
	soda_metrics_say_level(m, "pool_members", "servers of a client's pool", told->members);
	soda_metrics_say_level(m, "pool_slabs", "slabs of a client's objects, on all servers",
			       told->slabs);
	soda_metrics_say_level(m, "pool_slabs_here", "of them, those with a copy here", told->here);
	soda_metrics_say_level(m, "pool_copies_missing",
			       "slabs of a client's with fewer copies than they should have",
			       told->missing);
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "pool_copies_expelled",
			 "copies that a client gave up, as their server was away", told->expelled);
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "pool_copies_rebuilt",
			 "copies that a client has made anew", told->rebuilt);
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "pool_copies_moved",
			 "copies that it has moved, as a server is drained or the pool balanced",
			 told->moved);
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "pool_rebuilt_bytes",
			 "what it has copied for both", told->rebuilt_bytes);
	soda_metrics_say_level(m, "pool_held",
			       "why what a client has here does not move though the server is "
			       "drained; 0: it does, 1: no other server may take it",
			       told->held);
}

/* connected, epoch, told: the client's, read while the clients' lock was held. */
static void walk_client(struct soda_metrics *m, struct soda_client *client, bool connected,
			uint64_t epoch, const struct soda_wire_tell *told)
{
	static const struct soda_metric regions_n = { .key = "regions_n",
						      .name = "regions",
						      .help = "regions of a client",
						      .kind = SODA_METRIC_GAUGE };
	static const struct soda_metric_list regions = { "regions", "region", REGIONS_SHOWN };
	struct soda_region_set *set = &client->regions;

	soda_metrics_item(m);
	soda_metrics_hex(m, "id", client->id, 16);
	soda_metrics_text(m, "address", client->info.address);
	if (client->tenant)
		soda_metrics_text(m, "tenant", client->tenant->name);
	soda_metrics_say_flag(m, "connected", "whether a client has a connection", connected);
	soda_metrics_id(m, "pid", (uint64_t)client->info.pid);
	soda_metrics_id(m, "uid", client->info.uid);
	soda_metrics_id(m, "epoch", epoch);
	soda_metrics_id(m, "chunk_bytes", client->chunk_bytes);
	soda_metrics_say_size(m, "used_bytes", "memory promised to a client",
			      soda_account_used(set->pool->store, &set->account));
	walk_told(m, told);
	pthread_mutex_lock(&set->lock);
	soda_metrics_number(m, &regions_n, set->count);
	soda_metrics_list(m, &regions);
	for (struct soda_client_region *at = set->list; at; at = at->next)
		walk_region(m, at);
	soda_metrics_list_end(m);
	pthread_mutex_unlock(&set->lock);
	soda_metrics_item_end(m);
}

/* of: as in soda_server_view. */
static void walk_clients(struct soda_metrics *m, struct soda_clients *clients,
			 const struct soda_tenant *of)
{
	static const struct soda_metric_list listed = { "client_list", "client", CLIENTS_SHOWN };

	struct soda_client *at, *next;
	unsigned n;

	pthread_mutex_lock(&clients->lock);
	n = clients->shares.all;
	pthread_mutex_unlock(&clients->lock);
	soda_metrics_say_level(m, "clients", "clients known, away ones included", n);
	soda_metrics_list(m, &listed);
	pthread_mutex_lock(&clients->lock);
	for (at = clients->list; at; at = next) {
		bool connected = at->peers;
		uint64_t epoch = at->epoch;
		struct soda_wire_tell told = at->told;

		at->busy++; /* so that it stays in the list */
		pthread_mutex_unlock(&clients->lock);
		if (!of || at->tenant == of)
			walk_client(m, at, connected, epoch, &told);
		pthread_mutex_lock(&clients->lock);
		next = at->next;
		if (--at->busy == 0)
			pthread_cond_broadcast(&clients->changed);
	}
	pthread_mutex_unlock(&clients->lock);
	soda_metrics_list_end(m);
}

static void walk_process(struct soda_metrics *m, struct soda_mem_server *server)
{
	soda_metrics_text(m, "program", "soda-mem-server");
	soda_metrics_text(m, "version", SODA_VERSION);
	soda_metrics_hex(m, "instance_id", server->clients.instance_id, 16);
	soda_metrics_text(m, "domain", server->domain ? server->domain : "");
	soda_metrics_say_flag(m, "draining", "whether the server has been told to end",
			      soda_clients_draining(&server->clients));
	soda_metrics_say_flag(m, "pool_draining",
			      "whether what the server has is to move to others",
			      atomic_load(&server->clients.moving));
	soda_metrics_process(m, server->started_ns);
}

static void walk_memory(struct soda_metrics *m, struct soda_mem_server *server)
{
	uint64_t free_bytes = soda_store_free_bytes(&server->store);

	soda_metrics_say_size(m, "capacity_bytes", "memory that may be promised to clients",
			      server->store.capacity);
	soda_metrics_say_size(m, "used_bytes", "memory promised to clients",
			      server->store.capacity - free_bytes);
	soda_metrics_say_size(m, "free_bytes", "memory that can still be promised", free_bytes);
	soda_metrics_say_size(m, "quota_bytes", "most that one client may have; 0: no limit",
			      server->pool.quota);
	soda_metrics_say_level(m, "regions", "regions open", soda_region_pool_count(&server->pool));
}

/* How many clients with pages a tenant has. */
static unsigned count_clients(struct soda_clients *clients, const struct soda_tenant *tenant)
{
	unsigned n = 0;

	pthread_mutex_lock(&clients->lock);
	for (const struct soda_client *at = clients->list; at; at = at->next)
		n += at->tenant == tenant && at->chunk_bytes;
	pthread_mutex_unlock(&clients->lock);
	return n;
}

static void walk_tenant(void *arg, struct soda_metrics *m, struct soda_tenant *t)
{
	struct soda_account *account = &soda_server_tenant(t)->account;
	struct soda_mem_server *server = arg;
	uint64_t quota;

	pthread_mutex_lock(&server->store.lock);
	quota = account->quota;
	pthread_mutex_unlock(&server->store.lock);
	soda_metrics_say_level(m, "clients", "clients of a tenant, away ones included",
			       count_clients(&server->clients, t));
	soda_metrics_say_size(m, "used_bytes", "memory promised to a tenant",
			      soda_account_used(&server->store, account));
	soda_metrics_say_size(m, "quota_bytes", "most that a tenant may have; 0: no limit", quota);
}

void soda_server_walk(void *arg, struct soda_metrics *m)
{
	struct soda_server_view view = { .server = arg };

	soda_server_walk_view(&view, m);
}

void soda_server_walk_view(void *arg, struct soda_metrics *m)
{
	const struct soda_server_view *view = arg;
	struct soda_mem_server *server = view->server;

	walk_process(m, server);
	walk_memory(m, server);
	soda_counters_walk(m, counters, SODA_COUNTERS_N);
	soda_distributions_walk(m, times, SODA_DISTRIBUTIONS_N);
	soda_tenants_walk(&server->tenants, view->of, walk_tenant, server, m);
	walk_clients(m, &server->clients, view->of);
}
