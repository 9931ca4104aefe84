/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics as JSON: gauges, every counter of the table, and the clients. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "dpu_agent/agent.h"
#include "dpu_agent/cache_stats.h"
#include "dpu_agent/counters.h"

static void put(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static uint64_t cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static json_t *describe_client(struct soda_session *s)
{
	json_t *object = json_object();
	uint64_t queued = 0;
	char id[20];

	snprintf(id, sizeof(id), "%016llx", (unsigned long long)s->id);
	json_object_set_new(object, "id", json_string(id));
	json_object_set_new(object, "address", json_string(s->info.address));
	put(object, "unwritten_bytes", soda_writes_unwritten(s));
	pthread_mutex_lock(&s->lock);
	for (const struct soda_task *at = s->queue; at; at = at->next)
		queued++;
	json_object_set_new(object, "connected", json_boolean(s->peers != NULL));
	json_object_set_new(object, "up", json_boolean(s->up));
	put(object, "epoch", s->epoch);
	put(object, "connections", s->peers_n);
	put(object, "read_bytes_under_way", s->read_bytes);
	pthread_mutex_unlock(&s->lock);
	put(object, "reads_queued", queued);
	return object;
}

static void put_gauges(json_t *object, struct soda_dpu *dpu)
{
	char id[20];

	snprintf(id, sizeof(id), "%08x", dpu->id);
	json_object_set_new(object, "program", json_string("soda-dpu-agent"));
	json_object_set_new(object, "version", json_string(SODA_VERSION));
	json_object_set_new(object, "instance_id", json_string(id));
	json_object_set_new(object, "server", json_string(dpu->opt->server));
	json_object_set_new(object, "aggregate", json_boolean(dpu->aggregate));
	json_object_set_new(object, "async", json_boolean(dpu->async));
	put(object, "pid", (uint64_t)getpid());
	put(object, "uptime_ms", soda_dpu_now_ms() - dpu->started_ms);
	put(object, "cpu_ns", cpu_ns());
	put(object, "buffer_bytes", soda_blocks_bytes());
	pthread_mutex_lock(&dpu->schedule.lock);
	put(object, "server_bytes_under_way", dpu->schedule.under_way);
	pthread_mutex_unlock(&dpu->schedule.lock);
}

static json_t *batch_sizes(void)
{
	json_t *object = json_object();
	char key[16];

	for (unsigned i = 0; i < SODA_BATCH_BUCKETS; i++) {
		if (i + 1 < SODA_BATCH_BUCKETS)
			snprintf(key, sizeof(key), "%u-%u", 1u << i, (2u << i) - 1);
		else
			snprintf(key, sizeof(key), "%u+", 1u << i);
		put(object, key, soda_count_batches(i));
	}
	return object;
}

static json_t *collect(struct soda_dpu *dpu, bool clients)
{
	struct soda_sessions *all = &dpu->sessions;
	json_t *object = json_object(), *list = json_array();

	put_gauges(object, dpu);
	for (unsigned i = 0; i < SODA_COUNTERS_N; i++)
		put(object, soda_counter_names[i], soda_count_get((enum soda_counter)i));
	json_object_set_new(object, "batch_sizes", batch_sizes());
	soda_caches_describe(dpu, object, clients);
	pthread_mutex_lock(&all->lock);
	put(object, "clients", all->count);
	json_object_set_new(object, "draining", json_boolean(all->draining));
	for (struct soda_session *s = all->list; s && clients; s = s->next)
		json_array_append_new(list, describe_client(s));
	pthread_mutex_unlock(&all->lock);
	if (clients)
		json_object_set_new(object, "client_list", list);
	else
		json_decref(list);
	return object;
}

long soda_dpu_stats(struct soda_dpu *dpu, char *out, size_t bytes)
{
	size_t n = bytes + 1;

	for (int clients = 1; clients >= 0 && n > bytes; clients--) {
		json_t *object = collect(dpu, clients);

		n = json_dumpb(object, out, bytes, JSON_COMPACT);
		json_decref(object);
	}
	return n && n <= bytes ? (long)n : -ENOMEM;
}
