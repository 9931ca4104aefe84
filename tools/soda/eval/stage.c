/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: the memory server for all runs, and an agent for one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "soda/eval/eval.h"

/* The paper's node has 16 GiB and its agent's cache 1 GiB. */
enum { NODE_PER_CACHE = 16, ENTRIES = 64 };

#define CACHE_MIN (8ull << 20)
#define ENTRY_MIN (64ull << 10)
#define ENTRY_MAX (1ull << 20) /* the size in the paper */
#define STATIC_ROOM (1ull << 20)

static int start_server(struct soda_eval_stage *stage)
{
	const struct soda_eval_plan *plan = stage->plan;
	bool linked = plan->link.rate[0];
	char listen[64];
	const char *const args[] = { "--listen", listen,	"--export", plan->work, "--drain",
				     "2s",	 "--log-level", "warning",  NULL };
	int err;

	snprintf(listen, sizeof(listen), "tcp://%s:0", linked ? plan->link.server_ip : "127.0.0.1");
	err = soda_bench_daemon_start(&stage->server, &soda_bench_mem_server, args,
				      linked ? soda_bench_link_enter : NULL,
				      (void *)(uintptr_t)&plan->link);
	return !err && linked ? soda_bench_link_join(&plan->link) : err;
}

int soda_eval_stage_open(struct soda_eval_stage *stage)
{
	int err = 0;

	if (stage->plan->cpu_pct)
		err = soda_bench_daemon_cap(stage->plan->cpu_pct, stage->owner, &stage->cpu_cap);
	return err ? err : start_server(stage);
}

void soda_eval_stage_close(struct soda_eval_stage *stage)
{
	soda_bench_daemon_stop(&stage->agent);
	soda_bench_daemon_stop(&stage->server);
	soda_cgroup_close(&stage->cap);
}

void soda_eval_agent_caches(const struct soda_eval_plan *plan, const struct soda_eval_graph *graph,
			    const struct soda_eval_needs *needs, uint64_t *dynamic_p,
			    uint64_t *static_p, uint64_t *entry_p)
{
	uint64_t dynamic = plan->cache_bytes, entry = ENTRY_MAX;

	if (!dynamic)
		dynamic = needs->limit_bytes / NODE_PER_CACHE;
	if (!plan->cache_bytes && dynamic < CACHE_MIN)
		dynamic = CACHE_MIN;
	while (entry > ENTRY_MIN && entry > plan->chunk_bytes && entry * ENTRIES > dynamic)
		entry /= 2;
	*dynamic_p = dynamic;
	*entry_p = entry;
	*static_p = graph->vertex_bytes + STATIC_ROOM > dynamic ? graph->vertex_bytes + STATIC_ROOM
								: dynamic;
}

static int enter_cpu_cap(void *arg)
{
	struct soda_eval_stage *stage = arg;

	return stage->plan->cpu_pct ? soda_bench_daemon_enter_cap(&stage->cpu_cap) : 0;
}

static const char *yes(enum soda_eval_mode mode, enum soda_eval_trait trait, const char *on,
		       const char *off)
{
	return soda_eval_mode_has(mode, trait) ? on : off;
}

int soda_eval_agent_start(struct soda_eval_stage *stage, const struct soda_eval_run *run,
			  const struct soda_eval_needs *needs)
{
	char listen[64] = "tcp://127.0.0.1:0", dynamic[48], fixed[48], entry[48], store[48];
	uint64_t dynamic_bytes, static_bytes, entry_bytes;
	enum soda_eval_mode mode = run->mode;

	soda_eval_agent_caches(stage->plan, &stage->plan->graphs[run->graph], needs, &dynamic_bytes,
			       &static_bytes, &entry_bytes);
	snprintf(store, sizeof(store), "--store=%llu",
		 (unsigned long long)soda_eval_store_bytes(run, needs));
	snprintf(dynamic, sizeof(dynamic), "--cache-bytes=%llu", (unsigned long long)dynamic_bytes);
	snprintf(fixed, sizeof(fixed), "--static-bytes=%llu", (unsigned long long)static_bytes);
	snprintf(entry, sizeof(entry), "--entry-bytes=%llu", (unsigned long long)entry_bytes);
	if (stage->plan->shm)
		snprintf(listen, sizeof(listen), "shm://@soda-eval-%ld", (long)stage->owner);

	const char *const args[] = {
		"--listen",
		listen,
		"--server",
		stage->server.address,
		"--drain",
		"2s",
		"--log-level",
		"warning",
		dynamic,
		fixed,
		entry,
		store,
		yes(mode, SODA_EVAL_PLAIN, "--base=yes", "--base=no"),
		yes(mode, SODA_EVAL_AGGREGATES, "--aggregate=yes", "--aggregate=no"),
		yes(mode, SODA_EVAL_FORWARDS, "--async=yes", "--async=no"),
		yes(mode, SODA_EVAL_DYNAMICS, "--dynamic=yes", "--dynamic=no"),
		yes(mode, SODA_EVAL_STATICS, "--static=yes", "--static=no"),
		yes(mode, SODA_EVAL_AS_PAPER, "--policy=random", "--policy=stream"),
		yes(mode, SODA_EVAL_AS_PAPER, "--prefetch-limit=model", "--prefetch-limit=both"),
		/* vertex data: PATH.idx and PATH.in.idx */
		yes(mode, SODA_EVAL_STATICS, "--static-rule=*.idx", NULL),
		NULL,
	};

	return soda_bench_daemon_start(&stage->agent, &soda_bench_dpu_agent, args, enter_cpu_cap,
				       stage);
}
