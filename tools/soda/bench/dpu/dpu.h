/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench dpu`: one workload through several ways to the same memory server, round by
 * round in turns.
 *
 *   worker(s) ------------------------------> memory server      memserver
 *   worker(s) --- agent --base ------------->       "            base
 *   worker(s) --- agent, one part on ------->       "            agg async static dynamic
 *   worker(s) --- agent, two parts on ------>       "            agg+async
 *   worker(s) --- agent, all parts on ------>       "            all
 *
 *   dpu.c      options; soda/stage/guard.h runs the rest in a child, and cleans up after it
 *   stage.c    starts and ends everything: --link by soda/stage/link.h, --dpu-cpu by cgroup.h
 *   round.c    one round of one mode: what is read before and after
 *   summary.c  what the rounds come to
 *   report.c   JSON and table
 *
 * Every mode has an agent and workers of its own, which stay for all rounds; all modes share the
 * memory server.
 */
#ifndef SODA_BENCH_DPU_H
#define SODA_BENCH_DPU_H

#include "soda/bench/worker/worker.h"
#include "soda/stage/cgroup.h"
#include "soda/stage/daemon.h"
#include "soda/stage/link.h"

enum soda_bench_dpu_mode {
	SODA_BENCH_MEMSERVER,
	SODA_BENCH_BASE,
	SODA_BENCH_AGG,
	SODA_BENCH_ASYNC,
	SODA_BENCH_STATIC,
	SODA_BENCH_DYNAMIC,
	SODA_BENCH_ALL_PARTS,
	SODA_BENCH_AGG_ASYNC, /* only if the command line names it */
	SODA_BENCH_DPU_MODES,
};

extern const char *const soda_bench_dpu_mode_names[SODA_BENCH_DPU_MODES];

struct soda_bench_dpu_plan {
	struct soda_bench_plan worker; /* passes: the laps of a round */
	uint32_t processes, rounds;
	uint32_t modes_n;
	enum soda_bench_dpu_mode modes[SODA_BENCH_DPU_MODES];
	bool shm;		     /* between workers and agent */
	bool cold;		     /* no pass before the first round */
	uint64_t cache_bytes;	     /* of the static and of the dynamic cache */
	uint32_t cpu_pct;	     /* of the agents; 0: no cap */
	struct soda_bench_link link; /* rate "": none */
};

/* Counters of an agent that travel into the results, by their names there. */
enum soda_bench_dpu_counter {
	SODA_BENCH_NET_DEMAND, /* bytes between agent and server */
	SODA_BENCH_NET_PREFETCH,
	SODA_BENCH_NET_WRITEBACK,
	SODA_BENCH_NET_PRELOAD,
	SODA_BENCH_HITS, /* requests of the dynamic cache */
	SODA_BENCH_LATE_HITS,
	SODA_BENCH_USELESS, /* bytes that it fetched and nobody asked for */
	SODA_BENCH_SWITCHED_ON,
	SODA_BENCH_SWITCHED_OFF,
	SODA_BENCH_BATCHES,
	SODA_BENCH_BATCHED,
	SODA_BENCH_COPIED, /* bytes */
	SODA_BENCH_DPU_COUNTERS,
};

/* What one round of one mode took. */
struct soda_bench_dpu_sample {
	uint64_t wall_ns; /* from the first worker's begin to the last one's end */
	uint64_t host_cpu_ns, agent_cpu_ns, server_cpu_ns;
	uint64_t fetched_bytes, accesses; /* of all workers */
	uint64_t counters[SODA_BENCH_DPU_COUNTERS];
	struct soda_bench_link_bytes link;
};

/* One mode's processes. */
struct soda_bench_dpu_side {
	enum soda_bench_dpu_mode mode;
	struct soda_bench_daemon agent; /* none: memserver */
	struct soda_bench_driver *workers;
	struct soda_bench_dpu_sample *samples; /* a round each */
	uint64_t buffer_bytes;		       /* in force */
	uint64_t preloaded_bytes;	       /* before the first round */
};

struct soda_bench_dpu_stage {
	const struct soda_bench_dpu_plan *plan;
	const char *dir; /* for files */
	pid_t owner;	 /* the names of links and cgroups contain this number */
	struct soda_cgroup cgroup;
	struct soda_bench_daemon server;
	uint64_t link_bits; /* a second, that a plain stream got before each round, summed up */
	struct soda_bench_dpu_side sides[SODA_BENCH_DPU_MODES]; /* plan->modes_n */
};

/* stage.c.  0, or negative errno after a message; close in either case. */
int soda_bench_dpu_stage_open(struct soda_bench_dpu_stage *stage);
void soda_bench_dpu_stage_close(struct soda_bench_dpu_stage *stage);

/* round.c.  A pass of every worker that is not measured. */
int soda_bench_dpu_warm(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side);
int soda_bench_dpu_round(struct soda_bench_dpu_stage *stage, struct soda_bench_dpu_side *side,
			 struct soda_bench_dpu_sample *sample_p);
/* The agent's counters so far; all zero where there is none. */
int soda_bench_dpu_counters(const struct soda_bench_dpu_side *side,
			    uint64_t out[SODA_BENCH_DPU_COUNTERS]);

/* report.c.  Prints to standard output; 0, or -EIO. */
int soda_bench_dpu_report(const struct soda_bench_dpu_stage *stage, bool json);

#endif
