/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench dpu`: one round of one mode. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/bench/dpu/dpu.h"

/* The counters' names in the agent's statistics; one that is not there (its cache is off) is 0. */
static const char *const counter_keys[SODA_BENCH_DPU_COUNTERS] = {
	[SODA_BENCH_NET_DEMAND] = "net_demand_bytes",
	[SODA_BENCH_NET_PREFETCH] = "net_prefetch_bytes",
	[SODA_BENCH_NET_WRITEBACK] = "net_writeback_bytes",
	[SODA_BENCH_NET_PRELOAD] = "net_preload_bytes",
	[SODA_BENCH_HITS] = "cache_hits",
	[SODA_BENCH_LATE_HITS] = "cache_late_hits",
	[SODA_BENCH_USELESS] = "cache_useless_bytes",
	[SODA_BENCH_SWITCHED_ON] = "cache_switched_on",
	[SODA_BENCH_SWITCHED_OFF] = "cache_switched_off",
	[SODA_BENCH_BATCHES] = "batches",
	[SODA_BENCH_BATCHED] = "batched_requests",
	[SODA_BENCH_COPIED] = "copied_bytes",
};

int soda_bench_dpu_counters(const struct soda_bench_dpu_side *side,
			    uint64_t out[SODA_BENCH_DPU_COUNTERS])
{
	json_t *stats;

	memset(out, 0, SODA_BENCH_DPU_COUNTERS * sizeof(*out));
	if (!side->agent.pid)
		return 0;
	stats = soda_stat_ask("soda bench dpu", side->agent.address);
	if (!stats)
		return -EIO;
	for (int i = 0; i < SODA_BENCH_DPU_COUNTERS; i++)
		out[i] = soda_json_count(stats, counter_keys[i]);
	json_decref(stats);
	return 0;
}

/* Numbers that are read before a round and after it. */
struct readings {
	uint64_t agent_cpu_ns, server_cpu_ns;
	uint64_t counters[SODA_BENCH_DPU_COUNTERS];
	struct soda_bench_link_bytes link;
};

static int read_all(const struct soda_bench_dpu_stage *stage,
		    const struct soda_bench_dpu_side *side, bool before, struct readings *out)
{
	int err = 0;

	/*
	 * Asking for counters costs time and bytes: it is done outside of the time that is
	 * measured.
	 */
	if (before)
		err = soda_bench_dpu_counters(side, out->counters);
	out->agent_cpu_ns = soda_bench_daemon_cpu_ns(&side->agent);
	out->server_cpu_ns = soda_bench_daemon_cpu_ns(&stage->server);
	memset(&out->link, 0, sizeof(out->link));
	if (!err && stage->plan->link.rate[0]) {
		err = soda_bench_link_read(&stage->plan->link, &out->link);
		if (err)
			fprintf(stderr, "soda bench dpu: cannot read the counters of %s: %s\n",
				stage->plan->link.host_name, strerror(-err));
	}
	if (!before && !err)
		err = soda_bench_dpu_counters(side, out->counters);
	return err;
}

static int run_workers(const struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side,
		       uint32_t flags, struct soda_bench_dpu_sample *sum)
{
	struct soda_bench_sample samples[SODA_BENCH_PROCESSES_MAX];
	uint32_t n = stage->plan->processes;
	int err = soda_bench_drivers_round(side->workers, n, flags, samples);

	for (uint32_t i = 0; i < n && !err; i++) {
		const struct soda_bench_sample *one = &samples[i];

		sum->host_cpu_ns += one->client_cpu_ns;
		sum->fetched_bytes += one->counters.bytes_fetched;
		sum->accesses += one->accesses;
		if (side->mode == SODA_BENCH_MEMSERVER) {
			sum->counters[SODA_BENCH_NET_DEMAND] += one->counters.bytes_fetched;
			sum->counters[SODA_BENCH_NET_WRITEBACK] += one->counters.bytes_written_back;
		}
	}
	sum->wall_ns = err ? 0 : soda_bench_samples_wall_ns(samples, n);
	return err;
}

int soda_bench_dpu_warm(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side)
{
	struct soda_bench_dpu_sample ignored = { 0 };

	return run_workers(stage, side, SODA_BENCH_ROUND_WARM, &ignored);
}

int soda_bench_dpu_round(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side,
			 struct soda_bench_dpu_sample *sample)
{
	struct readings before, after;
	int err = read_all(stage, side, true, &before);

	memset(sample, 0, sizeof(*sample));
	if (!err)
		err = run_workers(stage, side, SODA_BENCH_ROUND_MEASURED, sample);
	if (!err)
		err = read_all(stage, side, false, &after);
	if (err)
		return err;
	if (side->agent.pid)
		sample->agent_cpu_ns = after.agent_cpu_ns - before.agent_cpu_ns;
	sample->server_cpu_ns = after.server_cpu_ns - before.server_cpu_ns;
	for (int i = 0; i < SODA_BENCH_DPU_COUNTERS; i++)
		sample->counters[i] += after.counters[i] - before.counters[i];
	sample->link.from_server = after.link.from_server - before.link.from_server;
	sample->link.to_server = after.link.to_server - before.link.to_server;
	return 0;
}
