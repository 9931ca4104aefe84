/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench pool`: one program on a pool of memory servers, beside the same program on one server
 * without redundancy, in turns.
 *
 *   pool.c    options, servers, who is killed or stopped when, the results
 *   load.c    the program: a process of its own, whose threads touch and verify an object
 *
 * Both sides of what a driver and a program share lie in memory that both have mapped.
 */
#ifndef SODA_BENCH_POOL_H
#define SODA_BENCH_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"

enum { SODA_BENCH_POOL_SERVERS = 16 };

struct soda_bench_pool_plan {
	char servers[SODA_BENCH_POOL_SERVERS * 160]; /* SODA_SERVER */
	const char *redundancy;			     /* SODA_REDUNDANCY */
	uint64_t bytes, buffer_bytes, chunk_bytes, seed;
	uint32_t threads;
	bool stores;	 /* rmw */
	bool sequential; /* page by page, each thread in a part of its own */
};

/* What the load came to, from `go` to `stop`. */
struct soda_bench_pool_load {
	uint64_t ns, ops;
	uint64_t fetched, written, cleaned; /* bytes */
	uint64_t cpu_ns;
	uint64_t stall_ns;    /* longest access */
	uint64_t wrong, lost; /* bytes, also of the look at all of the object behind `stop` */
	uint64_t rebuild_ns, rebuilt; /* while copies were missing; bytes */
	uint64_t expelled;	      /* copies given up */
};

/* Steps of both, in this order. */
enum soda_bench_pool_step {
	SODA_BENCH_POOL_STARTS,
	SODA_BENCH_POOL_READY, /* the program: the object is filled, and on the servers */
	SODA_BENCH_POOL_GO,    /* the driver */
	SODA_BENCH_POOL_STOP,  /* the driver */
	SODA_BENCH_POOL_DONE,  /* the program: `load` is set */
};

struct soda_bench_pool_shared {
	_Atomic uint32_t step;	  /* enum soda_bench_pool_step */
	_Atomic uint64_t missing; /* slabs that have fewer copies than they should */
	struct soda_bench_pool_load load;
	struct soda_histogram accesses; /* nanoseconds */
};

/* The program, in a child process. Its exit status: 0, or 1 after a message. */
int soda_bench_pool_program(const struct soda_bench_pool_plan *plan,
			    struct soda_bench_pool_shared *shared);

#endif
