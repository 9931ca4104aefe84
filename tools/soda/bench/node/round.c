/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench node`: one round of one mode. */
#include <errno.h>
#include <math.h>

#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/bench/node/node.h"
#include "soda/bench/worker/summary.h"
#include "soda/stage/footprint.h"

#define STORE_MEMFDS "soda-store" /* how the names of the agent's memfds begin */

/* Numbers that are read before a round and after it. */
struct readings {
	uint64_t daemons_cpu_ns;
	uint64_t sent_bytes; /* by the memory server, all READs so far */
};

/* Asking costs the server CPU time: it is done outside of the time that is measured. */
static int read_all(const struct soda_bench_node_stage *stage,
		    const struct soda_bench_node_side *side, bool before, struct readings *out)
{
	json_t *stats = before ? soda_stat_ask("soda bench node", stage->server.address) : NULL;

	out->daemons_cpu_ns =
		soda_bench_daemon_cpu_ns(&side->agent) + soda_bench_daemon_cpu_ns(&stage->server);
	if (!before)
		stats = soda_stat_ask("soda bench node", stage->server.address);
	if (!stats)
		return -EIO;
	out->sent_bytes = soda_json_count(stats, "bytes_read");
	json_decref(stats);
	return 0;
}

/* The processes' own pages and the store's, which they have in common; NAN: not known. */
static double memory_of(const struct soda_bench_node_stage *stage,
			const struct soda_bench_node_side *side)
{
	struct soda_footprint used;
	uint64_t sum;

	if (soda_footprint_memfds(side->agent.pid, STORE_MEMFDS, &sum))
		return NAN;
	for (uint32_t i = 0; i < stage->plan->processes; i++) {
		if (soda_footprint_read(side->workers[i].pid, &used))
			return NAN;
		sum += used.anon_bytes;
	}
	return (double)sum;
}

static double microseconds(uint64_t ns)
{
	return ns ? (double)ns / 1e3 : NAN;
}

static void take(const struct soda_bench_sample *samples, uint32_t n,
		 struct soda_bench_node_sample *out)
{
	double p50[SODA_BENCH_PROCESSES_MAX];

	out->p99_us = NAN;
	for (uint32_t i = 0; i < n; i++) {
		out->cpu_s += (double)samples[i].client_cpu_ns / 1e9;
		p50[i] = microseconds(samples[i].p50_ns);
		out->p99_us = fmax(out->p99_us, microseconds(samples[i].p99_ns));
	}
	out->p50_us = soda_bench_median(p50, n);
	out->seconds = (double)soda_bench_samples_wall_ns(samples, n) / 1e9;
}

int soda_bench_node_warm(const struct soda_bench_node_stage *stage,
			 struct soda_bench_node_side *side)
{
	struct soda_bench_sample ignored[SODA_BENCH_PROCESSES_MAX];

	return soda_bench_drivers_round(side->workers, stage->plan->processes,
					SODA_BENCH_ROUND_WARM, ignored);
}

int soda_bench_node_round(const struct soda_bench_node_stage *stage,
			  struct soda_bench_node_side *side,
			  struct soda_bench_node_sample *sample_p)
{
	struct soda_bench_sample samples[SODA_BENCH_PROCESSES_MAX];
	struct soda_bench_node_sample sample = { 0 };
	uint32_t n = stage->plan->processes;
	struct readings before, after;
	int err = read_all(stage, side, true, &before);

	if (!err)
		err = soda_bench_drivers_round(side->workers, n, SODA_BENCH_ROUND_MEASURED,
					       samples);
	if (!err)
		err = read_all(stage, side, false, &after);
	if (err)
		return err;
	take(samples, n, &sample);
	sample.cpu_s += (double)(after.daemons_cpu_ns - before.daemons_cpu_ns) / 1e9;
	sample.net_bytes = (double)(after.sent_bytes - before.sent_bytes);
	sample.memory_bytes = memory_of(stage, side);
	*sample_p = sample;
	return 0;
}
