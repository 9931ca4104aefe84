/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench dpu`: medians and sums. */
#include "soda/bench/dpu/summary.h"

#include <math.h>
#include <string.h>

#include "soda/bench/worker/summary.h"

static double divide(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

enum column { SECONDS, GB, TOUCHED, CPU_HOST, CPU_AGENT, CPU_SERVER, COLUMNS };

static void columns_of(const struct soda_bench_dpu_sample *s, uint32_t chunk_bytes,
		       double out[COLUMNS])
{
	double wall = (double)s->wall_ns, fetched = (double)s->fetched_bytes;

	out[SECONDS] = wall / 1e9;
	out[GB] = divide(fetched, wall); /* bytes a nanosecond: GB a second */
	out[TOUCHED] = divide((double)s->accesses * chunk_bytes, wall);
	out[CPU_HOST] = divide((double)s->host_cpu_ns, fetched);
	out[CPU_AGENT] = divide((double)s->agent_cpu_ns, fetched);
	out[CPU_SERVER] = divide((double)s->server_cpu_ns, fetched);
}

static void add_up(const struct soda_bench_dpu_sample *s, struct soda_bench_dpu_summary *out)
{
	out->fetched_bytes += s->fetched_bytes;
	for (int i = 0; i < SODA_BENCH_DPU_COUNTERS; i++)
		out->counters[i] += s->counters[i];
	out->link.from_server += s->link.from_server;
	out->link.to_server += s->link.to_server;
}

void soda_bench_dpu_summarise(const struct soda_bench_dpu_sample *samples, uint32_t rounds,
			      uint32_t chunk_bytes, uint64_t preloaded_bytes,
			      struct soda_bench_dpu_summary *out)
{
	double column[COLUMNS][SODA_BENCH_ROUNDS_MAX], row[COLUMNS], middle[COLUMNS];

	memset(out, 0, sizeof(*out));
	out->gb_min = out->gb_max = NAN;
	out->counters[SODA_BENCH_NET_PRELOAD] = preloaded_bytes;
	for (uint32_t i = 0; i < rounds; i++) {
		columns_of(&samples[i], chunk_bytes, row);
		for (int c = 0; c < COLUMNS; c++)
			column[c][i] = row[c];
		out->gb_min = fmin(out->gb_min, row[GB]);
		out->gb_max = fmax(out->gb_max, row[GB]);
		add_up(&samples[i], out);
	}
	for (int c = 0; c < COLUMNS; c++)
		middle[c] = soda_bench_median(column[c], rounds);
	out->seconds = middle[SECONDS];
	out->gb_per_s = middle[GB];
	out->touched_gb_per_s = middle[TOUCHED];
	out->cpu_host = middle[CPU_HOST];
	out->cpu_agent = middle[CPU_AGENT];
	out->cpu_server = middle[CPU_SERVER];
	out->spread = divide(out->gb_max - out->gb_min, out->gb_per_s);
	for (int i = SODA_BENCH_NET_DEMAND; i <= SODA_BENCH_NET_PRELOAD; i++)
		out->traffic_bytes += out->counters[i];
	/* What is under way when a round ends is asked for in it and fetched after it. */
	out->hit_rate = 1 - divide((double)out->counters[SODA_BENCH_NET_DEMAND],
				   (double)out->fetched_bytes);
	if (out->hit_rate < 0)
		out->hit_rate = 0;
}

double soda_bench_dpu_slower(const struct soda_bench_dpu_sample *a,
			     const struct soda_bench_dpu_sample *b, uint32_t rounds)
{
	double ratio[SODA_BENCH_ROUNDS_MAX];

	for (uint32_t i = 0; i < rounds; i++)
		ratio[i] = divide((double)a[i].wall_ns, (double)b[i].wall_ns);
	return soda_bench_median(ratio, rounds);
}
