/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench dpu`: the server, the agents, the workers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda/bench/dpu/dpu.h"
#include "soda/bench/worker/access.h"

#define FILE_NAME "shared"

const char *const soda_bench_dpu_mode_names[] = {
	[SODA_BENCH_MEMSERVER] = "memserver",
	[SODA_BENCH_BASE] = "base",
	[SODA_BENCH_AGG] = "agg",
	[SODA_BENCH_ASYNC] = "async",
	[SODA_BENCH_STATIC] = "static",
	[SODA_BENCH_DYNAMIC] = "dynamic",
	[SODA_BENCH_ALL_PARTS] = "all",
	[SODA_BENCH_AGG_ASYNC] = "agg+async",
};

/* The file that all processes read. */
static int make_file(const struct soda_bench_dpu_stage *stage)
{
	const struct soda_bench_plan *plan = &stage->plan->worker;
	char path[128];

	snprintf(path, sizeof(path), "%s/" FILE_NAME, stage->dir);
	return soda_bench_file_write("soda bench dpu", path, plan->bytes, plan->seed);
}

static void remove_file(const struct soda_bench_dpu_stage *stage)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/" FILE_NAME, stage->dir);
	unlink(path);
}

static bool linked(const struct soda_bench_dpu_plan *plan)
{
	return plan->link.rate[0];
}

static int start_server(struct soda_bench_dpu_stage *stage)
{
	const struct soda_bench_dpu_plan *plan = stage->plan;
	bool shared = plan->worker.pattern == SODA_BENCH_SHARED;
	uint64_t regions = shared ? 1 : (uint64_t)plan->modes_n * plan->processes;
	struct soda_bench_start before = { 0 };
	char listen[64];
	int err;

	snprintf(listen, sizeof(listen), "tcp://%s:0",
		 linked(plan) ? plan->link.server_ip : "127.0.0.1");
	if (linked(plan))
		before = (struct soda_bench_start){ soda_bench_link_enter,
						    (void *)(uintptr_t)&plan->link };
	/* some room: regions are rounded up */
	err = soda_bench_server_start(&stage->server, listen,
				      regions * (plan->worker.bytes + (4u << 20)) + (64u << 20),
				      shared ? stage->dir : NULL, &before);
	return !err && linked(plan) ? soda_bench_link_join(&plan->link) : err;
}

/* By environment: the user's own variables decide the rest (policy, channels, ...). */
static void choose_parts(enum soda_bench_dpu_mode mode, uint64_t cache_bytes)
{
	enum {
		ALL = 1 << SODA_BENCH_ALL_PARTS,
		AGG = ALL | 1 << SODA_BENCH_AGG | 1 << SODA_BENCH_AGG_ASYNC,
		ASYNC = ALL | 1 << SODA_BENCH_ASYNC | 1 << SODA_BENCH_AGG_ASYNC,
		STATIC = ALL | 1 << SODA_BENCH_STATIC,
		DYNAMIC = ALL | 1 << SODA_BENCH_DYNAMIC,
	};
	static const struct {
		const char *variable;
		unsigned modes; /* that have this part */
	} parts[] = { { "SODA_DPU_AGGREGATE", AGG },
		      { "SODA_DPU_ASYNC", ASYNC },
		      { "SODA_DPU_STATIC", STATIC },
		      { "SODA_DPU_DYNAMIC", DYNAMIC } };
	char bytes[32];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		setenv(parts[i].variable, parts[i].modes >> mode & 1 ? "yes" : "no", 1);
	setenv("SODA_DPU_BASE", mode == SODA_BENCH_BASE ? "yes" : "no", 1);
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)cache_bytes);
	setenv("SODA_DPU_CACHE_BYTES", bytes, 1);
	setenv("SODA_DPU_STATIC_BYTES", bytes, 1);
}

struct agent_start {
	struct soda_bench_dpu_stage *stage;
	enum soda_bench_dpu_mode mode;
};

static int before_agent(void *arg)
{
	const struct agent_start *start = arg;
	struct soda_bench_dpu_stage *stage = start->stage;

	choose_parts(start->mode, stage->plan->cache_bytes);
	return stage->plan->cpu_pct ? soda_bench_daemon_enter_cap(&stage->cgroup) : 0;
}

static int start_agent(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side)
{
	char listen[64] = "tcp://127.0.0.1:0";
	struct agent_start start = { stage, side->mode };

	if (stage->plan->shm)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-%ld-%s", (long)stage->owner,
			 soda_bench_dpu_mode_names[side->mode]);
	return soda_bench_agent_start(&side->agent, listen, stage->server.address,
				      &(const struct soda_bench_start){ before_agent, &start });
}

/* How much of the file's beginning goes into the static cache: the hot part, or all that fits. */
static uint64_t static_bytes(const struct soda_bench_dpu_plan *plan, enum soda_bench_dpu_mode mode)
{
	const struct soda_bench_plan *worker = &plan->worker;
	uint64_t chunks = worker->bytes / worker->chunk_bytes, all = chunks * worker->chunk_bytes;

	if (mode != SODA_BENCH_STATIC && mode != SODA_BENCH_ALL_PARTS)
		return 0;
	if (worker->pattern == SODA_BENCH_HOT)
		return (uint64_t)soda_bench_access_hot((uint32_t)chunks) * worker->chunk_bytes;
	if (mode == SODA_BENCH_ALL_PARTS)
		return 0;
	if (worker->pattern != SODA_BENCH_SHARED)
		all /= plan->processes;
	return (all < plan->cache_bytes ? all : plan->cache_bytes) & ~(uint64_t)4095;
}

static int start_worker(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side,
			uint32_t number)
{
	struct soda_bench_plan plan = stage->plan->worker;
	struct soda_bench_ready ready;
	int err;

	snprintf(plan.server, sizeof(plan.server), "%s",
		 side->agent.pid ? side->agent.address : stage->server.address);
	plan.agent = side->agent.pid != 0;
	plan.static_bytes = static_bytes(stage->plan, side->mode);
	if (plan.pattern == SODA_BENCH_SHARED)
		snprintf(plan.file, sizeof(plan.file), FILE_NAME);
	else
		plan.seed += number; /* processes do not go the same way */
	side->workers[number].name = soda_bench_dpu_mode_names[side->mode];
	err = soda_bench_driver_start(&side->workers[number], &plan, &ready);
	side->buffer_bytes = ready.buffer_bytes;
	return err;
}

static int open_side(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side)
{
	const struct soda_bench_dpu_plan *plan = stage->plan;
	int err = 0;

	side->workers = calloc(plan->processes, sizeof(*side->workers));
	side->samples = calloc(plan->rounds, sizeof(*side->samples));
	if (!side->workers || !side->samples) {
		fprintf(stderr, "soda bench dpu: out of memory\n");
		return -ENOMEM;
	}
	if (side->mode != SODA_BENCH_MEMSERVER)
		err = start_agent(stage, side);
	for (uint32_t i = 0; i < plan->processes && !err; i++)
		err = start_worker(stage, side, i);
	return err;
}

static int warm_side(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side)
{
	uint64_t counters[SODA_BENCH_DPU_COUNTERS];
	int err = stage->plan->cold ? 0 : soda_bench_dpu_warm(stage, side);

	if (!err)
		err = soda_bench_dpu_counters(side, counters);
	if (!err)
		side->preloaded_bytes = counters[SODA_BENCH_NET_PRELOAD];
	return err;
}

int soda_bench_dpu_stage_open(struct soda_bench_dpu_stage *stage)
{
	const struct soda_bench_dpu_plan *plan = stage->plan;
	int err = 0;

	if (plan->worker.pattern == SODA_BENCH_SHARED)
		err = make_file(stage);
	if (!err && plan->cpu_pct)
		err = soda_bench_daemon_cap(plan->cpu_pct, stage->owner, &stage->cgroup);
	if (!err)
		err = start_server(stage);
	for (uint32_t i = 0; i < plan->modes_n && !err; i++) {
		stage->sides[i].mode = plan->modes[i];
		err = open_side(stage, &stage->sides[i]);
	}
	/* Everybody has it open, so that it goes with the server, however that ends. */
	remove_file(stage);
	for (uint32_t i = 0; i < plan->modes_n && !err; i++)
		err = warm_side(stage, &stage->sides[i]);
	return err;
}

void soda_bench_dpu_stage_close(struct soda_bench_dpu_stage *stage)
{
	for (uint32_t i = 0; i < stage->plan->modes_n; i++) {
		struct soda_bench_dpu_side *side = &stage->sides[i];

		for (uint32_t w = 0; side->workers && w < stage->plan->processes; w++)
			soda_bench_driver_stop(&side->workers[w]);
		soda_bench_daemon_stop(&side->agent);
		free(side->workers);
		free(side->samples);
	}
	soda_bench_daemon_stop(&stage->server);
}
