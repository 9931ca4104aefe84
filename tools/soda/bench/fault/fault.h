/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench fault` and `soda bench start`:
 *
 *   fault.c   options; starts the server and the workers (bench/worker/), runs the rounds
 *   report.c  JSON and table; its medians and ratios are bench/summary.h's
 *   start.c   time to the first fault
 */
#ifndef SODA_BENCH_FAULT_H
#define SODA_BENCH_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "soda/bench/worker/worker.h"

struct soda_bench_run {
	const struct soda_bench_plan *plan; /* SODA's; buffer_bytes and mode as in force */
	const char *transport, *server;
	uint32_t rounds;
	const struct soda_bench_sample *ours;  /* rounds of them */
	const struct soda_bench_sample *floor; /* the same, or NULL */
};

/* Prints to standard output; 0, or -EIO. */
int soda_bench_report(const struct soda_bench_run *run, bool json);

/* The hidden command `soda bench .start`: the program that `soda bench start` times. */
int soda_bench_start_program(int fd, uint64_t bytes);

#endif
