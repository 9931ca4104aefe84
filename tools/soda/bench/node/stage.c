/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench node`: the server, the agents, the processes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/bench/node/node.h"

#define WHO "soda bench node"
#define FILE_NAME "shared"
#define ROOM_BYTES (64u << 20) /* of the server's memory, beside the file */

const char *const soda_bench_node_mode_names[] = {
	[SODA_BENCH_NODE_OWN] = "own",
	[SODA_BENCH_NODE_STORE] = "store",
};

struct agent_start {
	uint64_t store_bytes; /* 0: none */
};

/* By environment: the user's own variables decide the rest (workers, completers, ...). */
static int before_agent(void *arg)
{
	const struct agent_start *start = arg;
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%" PRIu64, start->store_bytes);
	setenv("SODA_DPU_STORE", bytes, 1);
	setenv("SODA_DPU_DYNAMIC", "no", 1);
	setenv("SODA_DPU_STATIC", "no", 1);
	return 0;
}

static int start_agent(const struct soda_bench_node_stage *stage, struct soda_bench_node_side *side)
{
	bool stores = side->mode == SODA_BENCH_NODE_STORE;
	struct agent_start start = { stores ? stage->plan->memory_bytes : 0 };
	char listen[64];

	snprintf(listen, sizeof(listen), "shm://@soda-bench-%ld-%s", (long)stage->owner,
		 soda_bench_node_mode_names[side->mode]);
	return soda_bench_agent_start(&side->agent, listen, stage->server.address,
				      &(const struct soda_bench_start){ before_agent, &start });
}

static int start_worker(const struct soda_bench_node_stage *stage,
			struct soda_bench_node_side *side, uint32_t number)
{
	struct soda_bench_plan plan = stage->plan->worker;
	struct soda_bench_ready ready;

	snprintf(plan.server, sizeof(plan.server), "%s", side->agent.address);
	snprintf(plan.file, sizeof(plan.file), FILE_NAME);
	plan.agent = 1;
	plan.reader = number;
	side->workers[number].name = soda_bench_node_mode_names[side->mode];
	return soda_bench_driver_start(&side->workers[number], &plan, &ready);
}

/* A process that cannot share the store has a copy of its own, and says so only in its log. */
static int check_shared(const struct soda_bench_node_stage *stage,
			const struct soda_bench_node_side *side)
{
	json_t *stats = soda_stat_ask(WHO, side->agent.address);
	uint64_t members = stats ? soda_json_count(stats, "store_members") : 0;

	json_decref(stats);
	if (!stats)
		return -EIO;
	if (members == stage->plan->processes)
		return 0;
	fprintf(stderr,
		WHO ": %" PRIu64 " of %u processes share the agent's store: that takes minor "
		    "faults of shared memory (Linux 5.14), and neither SODA_TRACE nor "
		    "SODA_MECHANISMS=copy in the environment; with SODA_LOG=info the processes "
		    "say what they lack\n",
		members, stage->plan->processes);
	return -ENOTSUP;
}

static int open_side(struct soda_bench_node_stage *stage, struct soda_bench_node_side *side)
{
	const struct soda_bench_node_plan *plan = stage->plan;
	int err;

	side->workers = calloc(plan->processes, sizeof(*side->workers));
	side->samples = calloc(plan->rounds, sizeof(*side->samples));
	if (!side->workers || !side->samples) {
		fprintf(stderr, WHO ": out of memory\n");
		return -ENOMEM;
	}
	err = start_agent(stage, side);
	for (uint32_t i = 0; i < plan->processes && !err; i++)
		err = start_worker(stage, side, i);
	if (!err && side->mode == SODA_BENCH_NODE_STORE)
		err = check_shared(stage, side);
	return err;
}

int soda_bench_node_stage_open(struct soda_bench_node_stage *stage)
{
	const struct soda_bench_node_plan *plan = stage->plan;
	const struct soda_bench_start nothing = { 0 };
	char path[128];
	int err;

	snprintf(path, sizeof(path), "%s/" FILE_NAME, stage->dir);
	err = soda_bench_file_write(WHO, path, plan->worker.bytes, plan->worker.seed);
	if (!err)
		err = soda_bench_server_start(&stage->server, "tcp://127.0.0.1:0",
					      plan->worker.bytes + ROOM_BYTES, stage->dir,
					      &nothing);
	for (int m = 0; m < SODA_BENCH_NODE_MODES && !err; m++) {
		stage->sides[m].mode = (enum soda_bench_node_mode)m;
		err = open_side(stage, &stage->sides[m]);
	}
	unlink(path); /* the server has it in memory */
	for (int m = 0; m < SODA_BENCH_NODE_MODES && !err && !plan->cold; m++)
		err = soda_bench_node_warm(stage, &stage->sides[m]);
	return err;
}

void soda_bench_node_stage_close(struct soda_bench_node_stage *stage)
{
	for (int m = 0; m < SODA_BENCH_NODE_MODES; m++) {
		struct soda_bench_node_side *side = &stage->sides[m];

		for (uint32_t i = 0; side->workers && i < stage->plan->processes; i++)
			soda_bench_driver_stop(&side->workers[i]);
		soda_bench_daemon_stop(&side->agent);
		free(side->workers);
		free(side->samples);
	}
	soda_bench_daemon_stop(&stage->server);
}
