/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory under test: an anonymous object in FAM, or a file that the server has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soda.h"
#include "soda/bench/worker/worker.h"

static void *object; /* set by open */

static void give_up(struct soda_bench_ready *ready, const char *what, int err)
{
	const char *why = soda_last_error();

	snprintf(ready->why, sizeof(ready->why), "%s: %s", what, *why ? why : strerror(err));
}

static void configure(const struct soda_bench_plan *plan, char buffer[32], struct soda_config *cfg)
{
	snprintf(buffer, 32, "%llu", (unsigned long long)plan->buffer_bytes);
	*(plan->agent ? &cfg->dpu : &cfg->server) = plan->server;
	cfg->buffer = buffer;
	cfg->evict = *plan->evict ? plan->evict : NULL;
	cfg->mechanisms = *plan->mechanisms ? plan->mechanisms : NULL;
	cfg->chunk_bytes = plan->chunk_bytes;
	cfg->mode = plan->mode;
	cfg->threads = plan->threads;
	cfg->prefetch_chunks = plan->prefetch_chunks;
	cfg->poll_us = plan->poll_us;
}

static int soda_open(const struct soda_bench_plan *plan, uint64_t **words_p,
		     struct soda_bench_ready *ready)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct soda_stats stats;
	char buffer[32];

	configure(plan, buffer, &cfg);
	unsetenv("SODA_SERVER"); /* the plan says */
	unsetenv("SODA_DPU");
	if (*plan->record)
		setenv("SODA_TRACE", plan->record, 1);
	int err = soda_init(&cfg);
	if (err) {
		give_up(ready, "soda_init", -err);
		return err;
	}
	object = *plan->file ? soda_alloc_file(plan->file, 0, SODA_READ_ONLY, NULL)
			     : soda_alloc(plan->bytes, 0);
	if (!object) {
		err = -errno;
		give_up(ready, *plan->file ? "soda_alloc_file" : "soda_alloc", -err);
		return err;
	}
	soda_set_name(object, "soda bench");
	soda_get_stats(&stats, sizeof(stats));
	ready->buffer_bytes = stats.buffer_bytes;
	ready->mode = stats.mode;
	*words_p = object;
	return 0;
}

static int soda_prepare(const struct soda_bench_plan *plan, struct soda_bench_ready *ready)
{
	int err =
		plan->static_bytes ? soda_advise(object, plan->static_bytes, SODA_STATIC_CACHE) : 0;

	if (err)
		give_up(ready, "the static cache", -err);
	return err;
}

static void soda_attach(unsigned thread)
{
}

static int soda_sync_all(unsigned thread)
{
	return thread == 0 ? soda_sync(NULL, 0) : 0;
}

static void soda_counters(struct soda_bench_counters *out)
{
	struct soda_stats s;

	soda_get_stats(&s, sizeof(s));
	*out = (struct soda_bench_counters){
		.faults = s.faults,
		.faults_joined = s.faults_joined,
		.zero_fills = s.zero_fills,
		.local_refaults = s.local_refaults,
		.wp_faults = s.wp_faults,
		.fetches = s.fetches,
		.prefetched = s.prefetched,
		.prefetch_useless = s.prefetch_useless,
		.bytes_fetched = s.bytes_fetched,
		.bytes_written_back = s.bytes_written_back,
		.evict_waits = s.evict_waits,
		.polled = s.polled,
		.slept = s.slept,
		.installed = s.installed,
		.resident_peak_bytes = s.resident_peak_bytes,
		.metadata_bytes = s.metadata_bytes,
	};
}

static pid_t soda_server(const struct soda_bench_plan *plan)
{
	return plan->server_pid;
}

static void soda_close(void)
{
	soda_free(object);
	soda_shutdown();
}

const struct soda_bench_memory soda_bench_soda = {
	.open = soda_open,
	.prepare = soda_prepare,
	.attach = soda_attach,
	.sync = soda_sync_all,
	.counters = soda_counters,
	.server = soda_server,
	.close = soda_close,
};

const struct soda_bench_memory soda_bench_soda_file = {
	.filled = true,
	.open = soda_open,
	.prepare = soda_prepare,
	.attach = soda_attach,
	.sync = soda_sync_all,
	.counters = soda_counters,
	.server = soda_server,
	.close = soda_close,
};
