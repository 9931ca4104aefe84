/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench node`: processes of one node read one file of a memory server, once with page buffers
 * of their own, once with a store that they have in common.  B is the memory of either way.
 *
 *   P processes, page buffers of B/P --- agent ------------> memory server      own
 *   P processes ------------------------ agent --store B -->       "            store
 *
 *   node.c    options, patterns; soda/stage/guard.h runs the rest in a child
 *   stage.c   starts and ends everything that one pattern needs
 *   round.c   one round of one mode: what is read before and after
 *   report.c  JSON and table
 *
 * Each mode has an agent and processes of its own, which stay for all rounds of a pattern; both
 * modes share the memory server.  The agents' own caches are off: they would be memory beside B.
 */
#ifndef SODA_BENCH_NODE_H
#define SODA_BENCH_NODE_H

#include <jansson.h>

#include "soda/bench/worker/worker.h"
#include "soda/stage/daemon.h"

enum soda_bench_node_mode {
	SODA_BENCH_NODE_OWN,
	SODA_BENCH_NODE_STORE,
	SODA_BENCH_NODE_MODES,
};

extern const char *const soda_bench_node_mode_names[SODA_BENCH_NODE_MODES];

/* One pattern. */
struct soda_bench_node_plan {
	struct soda_bench_plan worker; /* of each process; passes: the laps of a round */
	uint32_t processes, rounds;
	uint64_t memory_bytes; /* B */
	bool cold;	       /* no pass before the first round */
};

/* What one round of one mode took. NAN: not known, or of nothing. */
struct soda_bench_node_sample {
	double seconds;	     /* from the first process's begin to the last one's end */
	double net_bytes;    /* that the memory server has sent */
	double memory_bytes; /* at the round's end: the store's blocks, the processes' own pages */
	double cpu_s;	     /* of the processes, the agent, the memory server */
	double p50_us; /* of accesses that faulted: the middle one of the processes' medians */
	double p99_us; /* the worst of the processes' */
};

/* One mode's processes. */
struct soda_bench_node_side {
	enum soda_bench_node_mode mode;
	struct soda_bench_daemon agent;
	struct soda_bench_driver *workers;	/* plan->processes */
	struct soda_bench_node_sample *samples; /* plan->rounds */
};

struct soda_bench_node_stage {
	const struct soda_bench_node_plan *plan;
	const char *dir; /* for the file */
	pid_t owner;	 /* the agents' addresses contain this number */
	struct soda_bench_daemon server;
	struct soda_bench_node_side sides[SODA_BENCH_NODE_MODES];
};

/*
 * stage.c.  0, or negative errno after a message, -ENOTSUP where the processes cannot share a
 * store; close in either case.
 */
int soda_bench_node_stage_open(struct soda_bench_node_stage *stage);
void soda_bench_node_stage_close(struct soda_bench_node_stage *stage);

/* round.c.  0, or negative errno after a message. warm: a pass that is not measured. */
int soda_bench_node_warm(const struct soda_bench_node_stage *stage,
			 struct soda_bench_node_side *side);
int soda_bench_node_round(const struct soda_bench_node_stage *stage,
			  struct soda_bench_node_side *side,
			  struct soda_bench_node_sample *sample_p);

/* report.c.  One JSON object for each round of each mode, appended to runs. */
void soda_bench_node_describe(const struct soda_bench_node_stage *stage, json_t *runs);
/* The medians as a table on standard output. 0, or -EIO. */
int soda_bench_node_print(const struct soda_bench_node_stage *stage);

#endif
