/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics as JSON: gauges, every counter of the table, and the clients with their regions. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mem_server/client.h"
#include "mem_server/counters.h"
#include "mem_server/server.h"

/* How much there is room for. */
enum detail { TOTALS, CLIENTS, REGIONS };

static void put(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* Names come from peers and need not be UTF-8, which JSON wants. */
static json_t *text(const char *bytes)
{
	json_t *string = json_string(bytes);

	return string ? string : json_string("(not UTF-8)");
}

static json_t *describe_region(const struct soda_region *region)
{
	json_t *object = json_object();

	put(object, "id", region->id);
	put(object, "bytes", region->bytes);
	json_object_set_new(object, "kind", text(soda_region_kind(region)));
	json_object_set_new(object, "name", text(region->name));
	return object;
}

static json_t *describe_client(struct soda_client *client, enum detail detail)
{
	struct soda_region_set *set = &client->regions;
	json_t *object = json_object(), *regions = json_array();
	char id[20];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long)client->id);
	json_object_set_new(object, "id", text(id));
	json_object_set_new(object, "address", text(client->info.address));
	json_object_set_new(object, "connected", json_boolean(client->peers != NULL));
	put(object, "pid", (uint64_t)client->info.pid);
	put(object, "uid", client->info.uid);
	put(object, "epoch", client->epoch);
	put(object, "chunk_bytes", client->chunk_bytes);
	put(object, "used_bytes", soda_account_used(set->pool->store, &set->account));
	pthread_mutex_lock(&set->lock);
	put(object, "regions_n", set->count);
	for (struct soda_region *at = set->list; at && detail == REGIONS; at = at->next)
		json_array_append_new(regions, describe_region(at));
	pthread_mutex_unlock(&set->lock);
	if (detail == REGIONS)
		json_object_set_new(object, "regions", regions);
	else
		json_decref(regions);
	return object;
}

static uint64_t cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void put_gauges(json_t *object, struct soda_server *server)
{
	struct soda_sessions *sessions = &server->sessions;
	uint64_t free_bytes = soda_store_free_bytes(&server->store);
	char id[20];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long)sessions->instance_id);
	json_object_set_new(object, "program", text("soda-mem-server"));
	json_object_set_new(object, "version", text(SODA_VERSION));
	json_object_set_new(object, "instance_id", text(id));
	json_object_set_new(object, "draining", json_boolean(soda_sessions_draining(sessions)));
	put(object, "pid", (uint64_t)getpid());
	put(object, "uptime_ms", soda_client_now_ms() - server->started_ms);
	put(object, "cpu_ns", cpu_ns());
	put(object, "capacity_bytes", server->store.capacity);
	put(object, "used_bytes", server->store.capacity - free_bytes);
	put(object, "free_bytes", free_bytes);
	put(object, "quota_bytes", server->pool.quota);
	put(object, "regions", atomic_load(&server->pool.regions));
}

static json_t *collect(struct soda_server *server, enum detail detail)
{
	struct soda_sessions *sessions = &server->sessions;
	json_t *object = json_object(), *list = json_array();

	put_gauges(object, server);
	for (unsigned i = 0; i < SODA_COUNTERS_N; i++)
		put(object, soda_counter_names[i], soda_count_get((enum soda_counter)i));
	pthread_mutex_lock(&sessions->lock);
	put(object, "clients", sessions->count);
	for (struct soda_client *at = sessions->clients; at && detail > TOTALS; at = at->next)
		json_array_append_new(list, describe_client(at, detail));
	pthread_mutex_unlock(&sessions->lock);
	if (detail > TOTALS)
		json_object_set_new(object, "client_list", list);
	else
		json_decref(list);
	return object;
}

long soda_server_stats(struct soda_server *server, char *out, size_t bytes)
{
	size_t n = bytes + 1;

	for (int detail = REGIONS; detail >= TOTALS && n > bytes; detail--) {
		json_t *object = collect(server, (enum detail)detail);

		n = json_dumpb(object, out, bytes, JSON_COMPACT);
		json_decref(object);
	}
	return n && n <= bytes ? (long)n : -ENOMEM;
}
