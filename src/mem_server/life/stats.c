/* SPDX-License-Identifier: BSD-3-Clause */
/* One walk over the statistics: gauges, every counter of the table, clients with their regions. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mem_server/base/counters.h"
#include "mem_server/life/server.h"
#include "mem_server/session/client.h"

/* What a Prometheus server is asked to remember at most. */
enum { CLIENTS_SHOWN = 64, REGIONS_SHOWN = 256 };

static void count(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_NONE, key, help, value);
}

static void size(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_BYTES, key, help, value);
}

static void walk_region(struct soda_metrics *m, const struct soda_region *region)
{
	soda_metrics_item(m);
	soda_metrics_id(m, "id", region->id);
	size(m, "bytes", "size of a region", region->bytes);
	soda_metrics_text(m, "kind", soda_region_kind(region));
	soda_metrics_text(m, "name", region->name);
	soda_metrics_item_end(m);
}

/* connected, epoch: of when the sessions' lock was held. */
static void walk_client(struct soda_metrics *m, struct soda_client *client, bool connected,
			uint64_t epoch)
{
	static const struct soda_metric regions_n = { .key = "regions_n",
						      .name = "regions",
						      .help = "regions of a client",
						      .kind = SODA_METRIC_GAUGE };
	static const struct soda_metric_list regions = { "regions", "region", REGIONS_SHOWN };
	struct soda_region_set *set = &client->regions;
	char id[20];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long)client->id);
	soda_metrics_item(m);
	soda_metrics_text(m, "id", id);
	soda_metrics_text(m, "address", client->info.address);
	soda_metrics_say_flag(m, "connected", "whether a client has a connection", connected);
	soda_metrics_id(m, "pid", (uint64_t)client->info.pid);
	soda_metrics_id(m, "uid", client->info.uid);
	soda_metrics_id(m, "epoch", epoch);
	soda_metrics_id(m, "chunk_bytes", client->chunk_bytes);
	size(m, "used_bytes", "memory promised to a client",
	     soda_account_used(set->pool->store, &set->account));
	pthread_mutex_lock(&set->lock);
	soda_metrics_number(m, &regions_n, set->count);
	soda_metrics_list(m, &regions);
	for (struct soda_region *at = set->list; at; at = at->next)
		walk_region(m, at);
	soda_metrics_list_end(m);
	pthread_mutex_unlock(&set->lock);
	soda_metrics_item_end(m);
}

static void walk_clients(struct soda_metrics *m, struct soda_sessions *sessions)
{
	static const struct soda_metric_list clients = { "client_list", "client", CLIENTS_SHOWN };

	struct soda_client *at, *next;
	unsigned n;

	pthread_mutex_lock(&sessions->lock);
	n = sessions->count;
	pthread_mutex_unlock(&sessions->lock);
	count(m, "clients", "clients known, away ones included", n);
	soda_metrics_list(m, &clients);
	pthread_mutex_lock(&sessions->lock);
	for (at = sessions->clients; at; at = next) {
		bool connected = at->peers;
		uint64_t epoch = at->epoch;

		at->busy++; /* it stays in the list */
		pthread_mutex_unlock(&sessions->lock);
		walk_client(m, at, connected, epoch);
		pthread_mutex_lock(&sessions->lock);
		next = at->next;
		if (--at->busy == 0)
			pthread_cond_broadcast(&sessions->changed);
	}
	pthread_mutex_unlock(&sessions->lock);
	soda_metrics_list_end(m);
}

static void walk_process(struct soda_metrics *m, struct soda_server *server)
{
	struct timespec used;
	char id[20];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long)server->sessions.instance_id);
	soda_metrics_text(m, "program", "soda-mem-server");
	soda_metrics_text(m, "version", SODA_VERSION);
	soda_metrics_text(m, "instance_id", id);
	soda_metrics_say_flag(m, "draining", "whether the server has been told to end",
			      soda_sessions_draining(&server->sessions));
	soda_metrics_id(m, "pid", (uint64_t)getpid());
	soda_metrics_say(m, SODA_METRIC_GAUGE, SODA_UNIT_MS, "uptime_ms", "time since the start",
			 soda_client_now_ms() - server->started_ms);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NS, "cpu_ns",
			 "processor time of all threads",
			 (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec);
}

static void walk_memory(struct soda_metrics *m, struct soda_server *server)
{
	uint64_t free_bytes = soda_store_free_bytes(&server->store);

	size(m, "capacity_bytes", "memory that may be promised to clients", server->store.capacity);
	size(m, "used_bytes", "memory promised to clients", server->store.capacity - free_bytes);
	size(m, "free_bytes", "memory that can still be promised", free_bytes);
	size(m, "quota_bytes", "most that one client may have; 0: no limit", server->pool.quota);
	count(m, "regions", "regions open", atomic_load(&server->pool.regions));
}

static void walk_times(struct soda_metrics *m)
{
	static const struct soda_metric metrics[] = {
		{ .key = "read_time_ns",
		  .help = "service time of READs, from the header to the last byte sent",
		  .unit = SODA_UNIT_NS },
		{ .key = "write_time_ns",
		  .help = "service time of WRITEs, from the header to the last byte stored",
		  .unit = SODA_UNIT_NS },
	};

	for (unsigned write = 0; write < 2; write++) {
		struct soda_histogram all = { 0 };

		soda_count_service_times(write, &all);
		soda_metrics_histogram(m, &metrics[write], &all);
	}
}

void soda_server_walk(void *arg, struct soda_metrics *m)
{
	struct soda_server *server = arg;

	walk_process(m, server);
	walk_memory(m, server);
	for (unsigned i = 0; i < SODA_COUNTERS_N; i++)
		soda_metrics_number(m, &soda_counter_metrics[i],
				    soda_count_get((enum soda_counter)i));
	walk_times(m);
	walk_clients(m, &server->sessions);
}
