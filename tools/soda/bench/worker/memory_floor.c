/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory under test: the bare mechanism of floor.h, filled by its server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "soda/bench/floor/floor.h"
#include "soda/bench/worker/access.h"
#include "soda/bench/worker/worker.h"

static uint32_t chunk_bytes; /* set by open */

static int floor_open(const struct soda_bench_plan *plan, uint64_t **words_p,
		      struct soda_bench_ready *ready)
{
	struct soda_floor_options opt = {
		.bytes = plan->bytes,
		.chunk_bytes = plan->chunk_bytes,
		.limit = (uint32_t)(plan->buffer_bytes / plan->chunk_bytes),
		.threads = plan->threads,
		.shm = plan->shm,
		.writes = plan->stores,
		.fill = soda_bench_fill,
		.seed = plan->seed,
	};
	uint8_t *base;
	int err = soda_floor_open(&opt, &base);

	if (err) {
		snprintf(ready->why, sizeof(ready->why), "the floor cannot start: %s",
			 strerror(-err));
		return err;
	}
	chunk_bytes = plan->chunk_bytes;
	ready->buffer_bytes = (uint64_t)opt.limit * opt.chunk_bytes;
	*words_p = (uint64_t *)(void *)base;
	return 0;
}

static void floor_counters(struct soda_bench_counters *out)
{
	struct soda_floor_counters c;

	soda_floor_counters(&c);
	*out = (struct soda_bench_counters){
		.faults = c.faults,
		.faults_joined = c.joined,
		.fetches = c.fetched,
		.bytes_fetched = c.fetched * chunk_bytes,
		.bytes_written_back = c.written * chunk_bytes,
		.resident_peak_bytes = c.resident_peak * chunk_bytes,
		.metadata_bytes = c.metadata_bytes,
	};
}

static pid_t floor_server(const struct soda_bench_plan *plan)
{
	return soda_floor_server();
}

const struct soda_bench_memory soda_bench_floor = {
	.filled = true,
	.open = floor_open,
	.attach = soda_floor_attach,
	.sync = soda_floor_sync,
	.counters = floor_counters,
	.server = floor_server,
	.close = soda_floor_close,
};
