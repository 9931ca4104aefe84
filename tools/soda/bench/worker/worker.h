/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that touches memory under test when it is told to, and how its parent talks to it:
 *
 *   drive.c         the parent's side
 *   worker.c        the process: one memory under test, told when to run a pass
 *   pass.c          threads, accesses, clocks: the same code for every memory
 *   access.c        which chunks, in which order; trace.c: from a file; pattern.c: their names
 *   file.c          a file that several workers read
 *   memory_soda.c   memory under test: FAM
 *   memory_floor.c  memory under test: the bare mechanism (bench/floor/floor.h)
 *
 * A worker is a process of its own, because the library starts once a process.
 * Parent and worker are the same binary, so structures travel as they are.
 */
#ifndef SODA_BENCH_WORKER_H
#define SODA_BENCH_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "soda/bench/worker/counters.h"

#define SODA_BENCH_UNKNOWN UINT64_MAX /* a time that cannot be measured */
#define SODA_BENCH_ROUNDS_MAX 1000u
#define SODA_BENCH_PROCESSES_MAX 64u /* as many as may share one file of a node's store */

enum soda_bench_pattern {
	SODA_BENCH_SEQ,
	SODA_BENCH_RAND,
	SODA_BENCH_RMW,
	SODA_BENCH_ZIPF,
	SODA_BENCH_HOT,
	SODA_BENCH_ALTERNATE,
	SODA_BENCH_SHARED,
	SODA_BENCH_TRACE,
};

enum soda_bench_touch { SODA_BENCH_WORD, SODA_BENCH_PAGE, SODA_BENCH_ALL };

/* What a worker is to do. Times and sizes as in struct soda_config. */
struct soda_bench_plan {
	uint32_t floor; /* 1: the bare mechanism, 0: SODA */
	uint32_t pattern, touch;
	uint32_t threads, chunk_bytes;
	uint32_t passes; /* measured ones a round */
	uint32_t shm;	 /* floor: over shared memory */
	uint32_t mode, prefetch_chunks, poll_us;
	uint64_t bytes, buffer_bytes, seed;
	int32_t server_pid; /* SODA: for its CPU time; 0: not ours */
	uint32_t agent;	    /* 1: `server` is a DPU agent */
	char server[128], evict[32], mechanisms[32];
	uint32_t stores;       /* 1: a pass stores; 0: what a trace stored is read */
	char trace[512];       /* SODA_BENCH_TRACE: the file */
	char record[512];      /* SODA: write a page trace there; "": none */
	char file[64];	       /* SODA: a file of the server's instead of an anonymous object */
	uint64_t static_bytes; /* SODA: of the region, from its beginning, to the static cache */
	uint64_t reader;       /* workers of one file: their number, so that their draws differ */
};

/* What a worker is asked for: a round. */
enum soda_bench_round {
	SODA_BENCH_ROUND_WARM = 1,     /* a pass that is not measured, first */
	SODA_BENCH_ROUND_MEASURED = 2, /* plan.passes of them */
};

/* A worker's first answer. */
struct soda_bench_ready {
	int32_t err; /* 0 or negative errno */
	char why[256];
	uint64_t buffer_bytes; /* the limit in force */
	uint32_t mode;	       /* in force: enum soda_mode */
	uint32_t pad;
};

/* A worker's answer to a round: its measured passes. */
struct soda_bench_sample {
	int32_t err;
	uint32_t pad;
	char why[256];
	uint64_t began_ns, ended_ns; /* of the measured passes, CLOCK_MONOTONIC */
	uint64_t wall_ns, client_cpu_ns, server_cpu_ns /* or SODA_BENCH_UNKNOWN */;
	uint64_t accesses;
	uint64_t p50_ns, p99_ns; /* of accesses that fetched */
	struct soda_bench_counters counters;
};

/* A memory under test.  One a process; 0 or negative errno, then why is filled. */
struct soda_bench_memory {
	bool filled; /* open returns it filled with soda_bench_value() */
	int (*open)(const struct soda_bench_plan *plan, uint64_t **words_p,
		    struct soda_bench_ready *ready);
	void (*attach)(unsigned thread);
	/* Once, when the memory is filled; NULL: nothing to do. */
	int (*prepare)(const struct soda_bench_plan *plan, struct soda_bench_ready *ready);
	/* All threads call it, none touches the memory meanwhile: every store is at the server. */
	int (*sync)(unsigned thread);
	void (*counters)(struct soda_bench_counters *out);
	pid_t (*server)(const struct soda_bench_plan *plan);
	void (*close)(void);
};

extern const struct soda_bench_memory soda_bench_soda, soda_bench_soda_file, soda_bench_floor;

/* The hidden command `soda bench .worker`.  Talks over descriptor fd until end of file. */
int soda_bench_worker_run(int fd);

/* The parent's side. */
struct soda_bench_driver {
	pid_t pid;
	int fd;
	const char *name; /* for messages; NULL: set by start */
};

int soda_bench_driver_start(struct soda_bench_driver *driver, const struct soda_bench_plan *plan,
			    struct soda_bench_ready *ready_p);
/* A round in two halves, so that several workers run at once. flags: enum soda_bench_round. */
int soda_bench_driver_ask(struct soda_bench_driver *driver, uint32_t flags);
int soda_bench_driver_answer(struct soda_bench_driver *driver, struct soda_bench_sample *sample_p);
int soda_bench_driver_round(struct soda_bench_driver *driver, uint32_t flags,
			    struct soda_bench_sample *sample_p);
void soda_bench_driver_stop(struct soda_bench_driver *driver);
/* The same round of n workers at once, each with its sample. */
int soda_bench_drivers_round(struct soda_bench_driver *drivers, uint32_t n, uint32_t flags,
			     struct soda_bench_sample *samples_p);
/* From the first worker's begin to the last one's end; 0: they measured nothing. */
uint64_t soda_bench_samples_wall_ns(const struct soda_bench_sample *samples, uint32_t n);

/*
 * file.c.  Write the file that workers read instead of an object of their own (plan.file): `bytes`
 * of soda_bench_value() with this seed.  0, or negative errno after a message that begins with
 * `who`.
 */
int soda_bench_file_write(const char *who, const char *path, uint64_t bytes, uint64_t seed);

/*
 * pass.c.  A team of threads that runs passes over a memory under test.  Accesses are drawn
 * before the clocks start; a round's clocks run over its measured passes only, from
 * the moment when every thread is ready to the moment when the last one is done, for
 * rmw the final sync included.
 */
struct soda_bench_team;

/*
 * The memory must be open; fills it first if it is not filled.  0, -EINVAL, -ENOMEM,
 * -EAGAIN (threads), -ESTALE (the trace has changed), errors of reading a trace, and
 * errors of sync.
 */
int soda_bench_team_create(const struct soda_bench_plan *plan,
			   const struct soda_bench_memory *memory, uint64_t *words,
			   struct soda_bench_team **team_p);
void soda_bench_team_destroy(struct soda_bench_team *team);

/* flags: enum soda_bench_round. */
void soda_bench_team_round(struct soda_bench_team *team, uint32_t flags,
			   struct soda_bench_sample *sample);

#endif
