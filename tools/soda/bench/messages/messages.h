/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench messages`, the parts and how they meet:
 *
 *   messages.c   options, and what is measured in which order
 *   load.h       the messages: the same ones for all that carry them
 *   rank.c       a rank over SODA (`soda bench .rank`)
 *   mpi.c        a program of its own for each MPI: the same messages over MPI, in three ways
 *   run.c        an agent, and jobs of ranks as processes; what they say
 *   report.c     tables and JSON
 */
#ifndef SODA_BENCH_MESSAGES_H
#define SODA_BENCH_MESSAGES_H

#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "soda/bench/worker/summary.h"
#include "soda/stage/daemon.h"

enum { SODA_BENCH_MSG_LIST_MAX = 16, SODA_BENCH_MSG_RANKS_MAX = 64, SODA_BENCH_MSG_AGENTS_MAX = 8 };

/* How ranks reach the agent. */
enum { SODA_BENCH_MSG_SHM, SODA_BENCH_MSG_TCP, SODA_BENCH_MSG_TRANSPORTS };
extern const char *const soda_bench_msg_transports[SODA_BENCH_MSG_TRANSPORTS];

/* MPIs, and how their program carries the messages. */
enum { SODA_BENCH_MSG_OPENMPI, SODA_BENCH_MSG_MPICH, SODA_BENCH_MSG_MPIS };
extern const char *const soda_bench_msg_mpis[SODA_BENCH_MSG_MPIS];
enum { SODA_BENCH_MSG_ISEND, SODA_BENCH_MSG_GATHER, SODA_BENCH_MSG_ALLTOALLV, SODA_BENCH_MSG_WAYS };
extern const char *const soda_bench_msg_ways[SODA_BENCH_MSG_WAYS];

/* Where an application's messages are routed: in its ranks' processes, or where the agent runs. */
enum {
	SODA_BENCH_MSG_FREE,
	SODA_BENCH_MSG_PROCESS,
	SODA_BENCH_MSG_SHARED,
	SODA_BENCH_MSG_OWN,
	SODA_BENCH_MSG_MODES
};
extern const char *const soda_bench_msg_modes[SODA_BENCH_MSG_MODES];

/* What is swept, besides what is measured anyway. */
enum {
	SODA_BENCH_MSG_FLUSHES,
	SODA_BENCH_MSG_INBOXES,
	SODA_BENCH_MSG_PACKETS,
	SODA_BENCH_MSG_SLOTS,
	SODA_BENCH_MSG_TRANSFERS,
	SODA_BENCH_MSG_THREADS,
	SODA_BENCH_MSG_WEAK,
	SODA_BENCH_MSG_SWEEPS
};

struct soda_bench_msg_plan {
	uint32_t sizes[SODA_BENCH_MSG_LIST_MAX], ranks[SODA_BENCH_MSG_LIST_MAX];
	uint32_t agents[SODA_BENCH_MSG_LIST_MAX];
	uint64_t sweeps[SODA_BENCH_MSG_SWEEPS][SODA_BENCH_MSG_LIST_MAX];
	unsigned sweeps_n[SODA_BENCH_MSG_SWEEPS];
	const char *apps[SODA_BENCH_MSG_LIST_MAX];
	unsigned sizes_n, ranks_n, agents_n, apps_n;
	uint64_t messages; /* of a rank in a run, at most */
	uint32_t slow;	   /* messages of a slow sender; 0: none */
	uint32_t rounds;
	bool transports[SODA_BENCH_MSG_TRANSPORTS];
	char mpi[SODA_BENCH_MSG_MPIS][256]; /* the programs; "": it is not there */
};

/* A job, and the agents that it uses. */
struct soda_bench_msg_job {
	int transport;
	uint32_t ranks, agents, bytes;
	uint64_t messages; /* of each rank */
	uint32_t flush_us;
	uint64_t inbox_bytes;
	const char *variable; /* set to `value` for ranks and agents; NULL: none */
	uint64_t value;
	pid_t owner; /* agents' addresses contain this number */
	int mode;
	struct soda_bench_daemon at[SODA_BENCH_MSG_AGENTS_MAX];
	uint32_t started; /* of them; none where soda msg run starts them, or ranks route */
};

/* What a run has said. */
struct soda_bench_msg_result {
	double seconds;
	uint64_t messages, bytes;
	bool verified;
	double agent_seconds; /* of processors; NAN: there was no agent, or not known */
	double ranks_seconds; /* likewise, of an application's ranks */
};

/* Microseconds from a slow sender's push to the pull. */
struct soda_bench_msg_slow {
	double p50, p99, most;
};

/* run.c. Errors after a message. */
int soda_bench_msg_agents_start(struct soda_bench_msg_job *job);
void soda_bench_msg_agents_stop(struct soda_bench_msg_job *job);
int soda_bench_msg_run_soda(struct soda_bench_msg_job *job, bool many,
			    struct soda_bench_msg_result *r);
/* A slow sender's job->messages. */
int soda_bench_msg_run_slow(struct soda_bench_msg_job *job, struct soda_bench_msg_slow *slow);
/* The program at that path, an application (examples/messages). */
int soda_bench_msg_run_app(struct soda_bench_msg_job *job, const char *path,
			   struct soda_bench_msg_result *r);
int soda_bench_msg_run_mpi(const struct soda_bench_msg_job *job, int mpi, const char *program,
			   int way, struct soda_bench_msg_result *r);
/* Find the programs that this build has. */
void soda_bench_msg_find_mpis(struct soda_bench_msg_plan *plan);
bool soda_bench_msg_find_app(const char *name, char path[PATH_MAX]);

/* report.c */

/* Messages a second: medians over rounds; NAN: not measured. */
struct soda_bench_msg_rate {
	int transport;
	uint32_t ranks, agents, bytes;
	double soda, agent_ns;		 /* CPU time of the agent, of a message */
	double many, many_ratio;	 /* gathered by the program; by the same over MPI */
	double mpi[SODA_BENCH_MSG_WAYS]; /* of the better MPI for each */
	int which[SODA_BENCH_MSG_WAYS];	 /* that one; -1: none */
	double ratio[SODA_BENCH_MSG_WAYS];
};

struct soda_bench_msg_app {
	const char *name;
	int mode;
	uint32_t ranks;
	struct soda_bench_msg_result result;
	double mc_ratio;
};

struct soda_bench_msg_point {
	const char *what;
	uint64_t value;
	double rate;
	double cpu_ns; /* of all processes, of a message; their starts and ends are among it */
};

json_t *soda_bench_msg_report_new(const struct soda_bench_msg_plan *plan);
/* out NULL: as lines of a table, the first one with its head. */
void soda_bench_msg_report_rate(const struct soda_bench_msg_rate *rate, bool first, json_t *out);
void soda_bench_msg_report_app(const struct soda_bench_msg_app *app, bool first, json_t *out);
void soda_bench_msg_report_slow(const struct soda_bench_msg_job *job,
				const struct soda_bench_msg_slow *slow, bool first, json_t *out);
void soda_bench_msg_report_point(const struct soda_bench_msg_point *p, bool first, json_t *out);

/* rank.c */
int soda_bench_messages_rank(int argc, char **argv);

#endif
