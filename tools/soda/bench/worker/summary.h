/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From samples to numbers.  Rates and times are medians over the rounds, counters
 * sums over all measured passes, ratios medians of the rounds' own ratios.  NAN: not
 * known (the CPU time of somebody else's server, a rate a GB of nothing).
 */
#ifndef SODA_BENCH_SUMMARY_H
#define SODA_BENCH_SUMMARY_H

#include "soda/bench/worker/worker.h"

enum soda_bench_rate {
	SODA_BENCH_GB,	    /* GB fetched a second, 1 GB = 1e9 bytes */
	SODA_BENCH_TOUCHED, /* chunks touched x chunk bytes, GB a second */
	SODA_BENCH_P50,	    /* us of an access that fetched */
	SODA_BENCH_P99,
	SODA_BENCH_CLIENT, /* CPU seconds a GB fetched */
	SODA_BENCH_SERVER,
	SODA_BENCH_BOTH,
	SODA_BENCH_RATES,
};

/* One memory under test. */
struct soda_bench_summary {
	double middle[SODA_BENCH_RATES];
	double gb_min, gb_max, seconds;
	struct soda_bench_counters sum;
};

/* rounds of samples. */
void soda_bench_summarise(const struct soda_bench_sample *samples, uint32_t rounds,
			  uint32_t chunk_bytes, struct soda_bench_summary *out);

/* out[r]: median of ours / floor. */
void soda_bench_compare(const struct soda_bench_sample *ours, const struct soda_bench_sample *floor,
			uint32_t rounds, uint32_t chunk_bytes, double out[SODA_BENCH_RATES]);

/* Of those that are not NAN; NAN if there is none.  n <= SODA_BENCH_ROUNDS_MAX. */
double soda_bench_median(const double *values, uint32_t n);

/* Pearson's correlation of n pairs; NAN where one of both does not vary. */
double soda_bench_correlate(const double *x, const double *y, uint32_t n);

#endif
