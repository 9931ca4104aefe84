/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the rounds of a mode to its numbers.  NAN: not known, or a rate of nothing.
 */
#ifndef SODA_BENCH_DPU_SUMMARY_H
#define SODA_BENCH_DPU_SUMMARY_H

#include "soda/bench/dpu/dpu.h"

struct soda_bench_dpu_summary {
	/* medians over the rounds */
	double seconds, gb_per_s, touched_gb_per_s;
	double cpu_host, cpu_agent, cpu_server; /* seconds a GB fetched */
	/* of gb_per_s; spread: (max - min) / median */
	double gb_min, gb_max, spread;
	/* sums over the rounds, preload over all that went before, too */
	uint64_t fetched_bytes;
	uint64_t counters[SODA_BENCH_DPU_COUNTERS];
	uint64_t traffic_bytes; /* all four kinds */
	struct soda_bench_link_bytes link;
	double hit_rate; /* share of the bytes fetched that the agent did not ask the server for */
};

/* rounds > 0. */
void soda_bench_dpu_summarise(const struct soda_bench_dpu_sample *samples, uint32_t rounds,
			      uint32_t chunk_bytes, uint64_t preloaded_bytes,
			      struct soda_bench_dpu_summary *out);
/* The median over the rounds of the ratio of time, a / b. */
double soda_bench_dpu_slower(const struct soda_bench_dpu_sample *a,
			     const struct soda_bench_dpu_sample *b, uint32_t rounds);

#endif
