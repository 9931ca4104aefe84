/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench dpu`: results for programs and for people. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/conf/conf.h"
#include "soda/base/json.h"
#include "soda/bench/dpu/summary.h"
#include "soda/bench/worker/pattern.h"

/* The side of a mode, or NULL. */
static const struct soda_bench_dpu_side *side_of(const struct soda_bench_dpu_stage *stage,
						 enum soda_bench_dpu_mode mode)
{
	for (uint32_t i = 0; i < stage->plan->modes_n; i++)
		if (stage->sides[i].mode == mode)
			return &stage->sides[i];
	return NULL;
}

/* How much longer than another mode, round by round; NAN without that one. */
static double slower_than(const struct soda_bench_dpu_stage *stage,
			  const struct soda_bench_dpu_side *side, enum soda_bench_dpu_mode mode)
{
	const struct soda_bench_dpu_side *other = side_of(stage, mode);

	return other ? soda_bench_dpu_slower(side->samples, other->samples, stage->plan->rounds)
		     : NAN;
}

static void describe(json_t *out, const struct soda_bench_dpu_stage *stage,
		     const struct soda_bench_dpu_side *side)
{
	const struct soda_bench_dpu_plan *plan = stage->plan;
	const struct soda_bench_plan *worker = &plan->worker;
	bool agent = side->mode != SODA_BENCH_MEMSERVER, linked = plan->link.rate[0];
	char pattern[600];

	soda_json_set_text(out, "bench", "dpu");
	soda_json_set_text(out, "mode", soda_bench_dpu_mode_names[side->mode]);
	soda_json_set_text(out, "pattern",
			   soda_bench_pattern_name(worker, pattern, sizeof(pattern)));
	soda_json_set_text(out, "touch", soda_bench_touch_names[worker->touch]);
	soda_json_set_count(out, "threads", worker->threads);
	soda_json_set_count(out, "processes", plan->processes);
	soda_json_set_count(out, "size", worker->bytes);
	soda_json_set_count(out, "chunk", worker->chunk_bytes);
	soda_json_set_count(out, "buffer", side->buffer_bytes);
	soda_json_set_count(out, "agent_cache", plan->cache_bytes);
	soda_json_set_text(out, "host_transport", agent && plan->shm ? "shm" : "tcp");
	soda_json_set_text(out, "link", linked ? plan->link.rate : NULL);
	soda_json_set_real(out, "link_bits_per_s",
			   linked ? (double)stage->link_bits / (double)plan->rounds : NAN);
	if (plan->cpu_pct)
		soda_json_set_count(out, "dpu_cpu_pct", plan->cpu_pct);
	else
		soda_json_set_text(out, "dpu_cpu_pct", NULL);
	json_object_set_new(out, "emulated", json_boolean(linked || plan->cpu_pct));
	soda_json_set_count(out, "seed", worker->seed);
	soda_json_set_count(out, "rounds", plan->rounds);
	soda_json_set_count(out, "laps", worker->passes);
}

static json_t *traffic_of(const struct soda_bench_dpu_summary *s)
{
	json_t *out = json_object();

	soda_json_set_count(out, "on_demand", s->counters[SODA_BENCH_NET_DEMAND]);
	soda_json_set_count(out, "prefetch", s->counters[SODA_BENCH_NET_PREFETCH]);
	soda_json_set_count(out, "write_back", s->counters[SODA_BENCH_NET_WRITEBACK]);
	soda_json_set_count(out, "preload", s->counters[SODA_BENCH_NET_PRELOAD]);
	soda_json_set_count(out, "total", s->traffic_bytes);
	return out;
}

static json_t *run_of(const struct soda_bench_dpu_stage *stage,
		      const struct soda_bench_dpu_side *side,
		      const struct soda_bench_dpu_summary *s)
{
	bool agent = side->mode != SODA_BENCH_MEMSERVER;
	json_t *out = json_object(), *link = json_object();

	describe(out, stage, side);
	soda_json_set_real(out, "seconds", s->seconds);
	soda_json_set_real(out, "gb_per_s", s->gb_per_s);
	soda_json_set_real(out, "gb_per_s_min", s->gb_min);
	soda_json_set_real(out, "gb_per_s_max", s->gb_max);
	soda_json_set_real(out, "spread", s->spread);
	soda_json_set_real(out, "touched_gb_per_s", s->touched_gb_per_s);
	soda_json_set_real(out, "cpu_s_per_gb_host", s->cpu_host);
	soda_json_set_real(out, "cpu_s_per_gb_agent", agent ? s->cpu_agent : NAN);
	soda_json_set_real(out, "cpu_s_per_gb_server", s->cpu_server);
	soda_json_set_count(out, "bytes_fetched", s->fetched_bytes);
	json_object_set_new(out, "traffic", traffic_of(s));
	soda_json_set_count(link, "from_server", s->link.from_server);
	soda_json_set_count(link, "to_server", s->link.to_server);
	if (stage->plan->link.rate[0])
		json_object_set(out, "interface_bytes", link);
	else
		soda_json_set_text(out, "interface_bytes", NULL);
	json_decref(link);
	soda_json_set_real(out, "hit_rate", agent ? s->hit_rate : NAN);
	soda_json_set_count(out, "hits", s->counters[SODA_BENCH_HITS]);
	soda_json_set_count(out, "useless_bytes", s->counters[SODA_BENCH_USELESS]);
	soda_json_set_count(out, "late_hits", s->counters[SODA_BENCH_LATE_HITS]);
	soda_json_set_count(out, "switched_on", s->counters[SODA_BENCH_SWITCHED_ON]);
	soda_json_set_count(out, "switched_off", s->counters[SODA_BENCH_SWITCHED_OFF]);
	soda_json_set_count(out, "batches", s->counters[SODA_BENCH_BATCHES]);
	soda_json_set_count(out, "batched_requests", s->counters[SODA_BENCH_BATCHED]);
	soda_json_set_count(out, "copied_bytes", s->counters[SODA_BENCH_COPIED]);
	soda_json_set_real(out, "seconds_vs_memserver",
			   slower_than(stage, side, SODA_BENCH_MEMSERVER));
	soda_json_set_real(out, "seconds_vs_base", slower_than(stage, side, SODA_BENCH_BASE));
	return out;
}

static int print_json(const struct soda_bench_dpu_stage *stage,
		      const struct soda_bench_dpu_summary *summaries)
{
	json_t *out = json_object(), *runs = json_array();

	for (uint32_t i = 0; i < stage->plan->modes_n; i++)
		json_array_append_new(runs, run_of(stage, &stage->sides[i], &summaries[i]));
	soda_json_set_text(out, "format", "soda-bench-dpu");
	soda_json_set_count(out, "version", 1);
	json_object_set_new(out, "runs", runs);
	return soda_json_print(out);
}

static void print_head(const struct soda_bench_dpu_stage *stage)
{
	const struct soda_bench_dpu_plan *plan = stage->plan;
	const struct soda_bench_plan *worker = &plan->worker;
	char size[16], chunk[16], buffer[16], cache[16], pattern[600];

	printf("%s, %u process%s of %u thread%s, %s in chunks of %s, buffer %s, agent cache %s, "
	       "host to agent %s\n",
	       soda_bench_pattern_name(worker, pattern, sizeof(pattern)), plan->processes,
	       plan->processes == 1 ? "" : "es", worker->threads, worker->threads == 1 ? "" : "s",
	       soda_format_size(worker->bytes, size), soda_format_size(worker->chunk_bytes, chunk),
	       soda_format_size(stage->sides[0].buffer_bytes, buffer),
	       soda_format_size(plan->cache_bytes, cache), plan->shm ? "shm" : "tcp");
	if (plan->link.rate[0])
		printf("link to the server %s (emulated; a plain stream got %.3f Gbit/s)\n",
		       plan->link.rate, (double)stage->link_bits / (double)plan->rounds / 1e9);
	if (plan->cpu_pct)
		printf("agent capped at %u %% of a processor (emulated)\n", plan->cpu_pct);
	printf("medians of %u round%s of %u lap%s; every value verified\n\n", plan->rounds,
	       plan->rounds == 1 ? "" : "s", worker->passes, worker->passes == 1 ? "" : "s");
	printf("%-10s %8s %6s %6s %6s %6s | %22s | %8s %6s %6s | %8s %8s\n", "", "", "", "", "CPU",
	       "s/GB", "MB over the network", "", "hit", "late", "time of", "time of");
	printf("%-10s %8s %6s %6s %6s %6s | %6s %7s %7s | %8s %6s %6s | %8s %8s\n", "mode", "GB/s",
	       "spread", "host", "agent", "server", "demand", "ahead", "written", "total", "rate",
	       "hits", "memsrv", "base");
}

/* A number in its column, or "-". */
static void cell(int width, int decimals, double value)
{
	if (isnan(value))
		printf(" %*s", width, "-");
	else
		printf(" %*.*f", width, decimals, value);
}

static void print_run(const struct soda_bench_dpu_stage *stage,
		      const struct soda_bench_dpu_side *side,
		      const struct soda_bench_dpu_summary *s)
{
	const uint64_t *c = s->counters;
	bool agent = side->mode != SODA_BENCH_MEMSERVER;
	double mb = 1e6;

	printf("%-10s", soda_bench_dpu_mode_names[side->mode]);
	cell(8, 3, s->gb_per_s);
	cell(6, 2, s->spread);
	cell(6, 3, s->cpu_host);
	cell(6, 3, agent ? s->cpu_agent : NAN);
	cell(6, 3, s->cpu_server);
	printf(" |");
	cell(6, 0, (double)c[SODA_BENCH_NET_DEMAND] / mb);
	cell(7, 0, (double)(c[SODA_BENCH_NET_PREFETCH] + c[SODA_BENCH_NET_PRELOAD]) / mb);
	cell(7, 0, (double)c[SODA_BENCH_NET_WRITEBACK] / mb);
	printf(" |");
	cell(8, 0, (double)s->traffic_bytes / mb);
	cell(6, 2, agent ? s->hit_rate : NAN);
	cell(6, 0, agent ? (double)c[SODA_BENCH_LATE_HITS] : NAN);
	printf(" |");
	cell(8, 2, slower_than(stage, side, SODA_BENCH_MEMSERVER));
	cell(8, 2, slower_than(stage, side, SODA_BENCH_BASE));
	putchar('\n');
}

int soda_bench_dpu_report(const struct soda_bench_dpu_stage *stage, bool json)
{
	const struct soda_bench_dpu_plan *plan = stage->plan;
	struct soda_bench_dpu_summary summaries[SODA_BENCH_DPU_MODES];

	for (uint32_t i = 0; i < plan->modes_n; i++)
		soda_bench_dpu_summarise(stage->sides[i].samples, plan->rounds,
					 plan->worker.chunk_bytes, stage->sides[i].preloaded_bytes,
					 &summaries[i]);
	if (json)
		return print_json(stage, summaries);
	print_head(stage);
	for (uint32_t i = 0; i < plan->modes_n; i++)
		print_run(stage, &stage->sides[i], &summaries[i]);
	return fflush(stdout) ? -EIO : 0;
}
