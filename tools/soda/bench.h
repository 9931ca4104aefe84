/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench fault`, the parts and how they meet:
 *
 *   bench_fault.c    options; starts the server and the workers, runs the rounds
 *   bench_daemon.c   the memory server process under test
 *   bench_drive.c    the parent's side of a worker
 *   bench_worker.c   a worker process: one memory under test, told when to run a pass
 *   bench_pass.c     threads, accesses, clocks: the same code for every memory
 *   bench_access.c   which chunks, in which order; bench_trace.c: from a file;
 *                    bench_pattern.c: their names
 *   bench_soda.c     memory under test: FAM
 *   bench_floor.c    memory under test: the bare mechanism (floor.h)
 *   bench_summary.c  medians and ratios
 *   bench_report.c   JSON and table
 *
 * A worker is a process of its own, because the library starts once a process.
 * Parent and worker are the same binary, so structures travel as they are.
 */
#ifndef SODA_BENCH_H
#define SODA_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench_counters.h"

#define SODA_BENCH_UNKNOWN UINT64_MAX /* a time that cannot be measured */
#define SODA_BENCH_ROUNDS_MAX 1000u

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
	uint32_t stores;       /* 1: a pass stores */
	char trace[512];       /* SODA_BENCH_TRACE: the file */
	char record[512];      /* SODA: write a page trace there; "": none */
	char file[64];	       /* SODA: a file of the server's instead of an anonymous object */
	uint64_t static_bytes; /* SODA: of the region, from its beginning, to the static cache */
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

/* bench_worker.c: the hidden command.  Talks over descriptor fd until end of file. */
int soda_bench_worker_run(int fd);

/* bench_start.c: the hidden program under test. */
int soda_bench_start_program(int fd, uint64_t bytes);

/* bench_drive.c: the parent's side. */
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

/* bench_report.c */
struct soda_bench_run {
	const struct soda_bench_plan *plan; /* SODA's; buffer_bytes and mode as in force */
	const char *transport, *server;
	uint32_t rounds;
	const struct soda_bench_sample *ours;  /* rounds of them */
	const struct soda_bench_sample *floor; /* the same, or NULL */
};

/* Prints to standard output; 0, or -EIO. */
int soda_bench_report(const struct soda_bench_run *run, bool json);

extern const char *const soda_bench_touch_names[];
extern const char *const soda_bench_mode_names[]; /* enum soda_mode */

#endif
