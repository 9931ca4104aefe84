/* SPDX-License-Identifier: BSD-3-Clause */
/* Medians and ratios over rounds. */
#include "soda/bench/worker/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double divide(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

static void rates_of(const struct soda_bench_sample *s, uint32_t chunk_bytes,
		     double out[SODA_BENCH_RATES])
{
	double fetched = (double)s->counters.bytes_fetched, wall = (double)s->wall_ns;
	bool known = s->server_cpu_ns != SODA_BENCH_UNKNOWN;

	out[SODA_BENCH_GB] = divide(fetched, wall); /* bytes a nanosecond: GB a second */
	out[SODA_BENCH_TOUCHED] = divide((double)s->accesses * chunk_bytes, wall);
	out[SODA_BENCH_P50] = s->p50_ns ? (double)s->p50_ns / 1e3 : NAN;
	out[SODA_BENCH_P99] = s->p99_ns ? (double)s->p99_ns / 1e3 : NAN;
	out[SODA_BENCH_CLIENT] = divide((double)s->client_cpu_ns, fetched);
	out[SODA_BENCH_SERVER] = known ? divide((double)s->server_cpu_ns, fetched) : NAN;
	out[SODA_BENCH_BOTH] = out[SODA_BENCH_CLIENT] + out[SODA_BENCH_SERVER];
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double soda_bench_median(const double *values, uint32_t n)
{
	double known[SODA_BENCH_ROUNDS_MAX];
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		if (!isnan(values[i]))
			known[k++] = values[i];
	if (k == 0)
		return NAN;
	qsort(known, k, sizeof(known[0]), compare);
	return k % 2 ? known[k / 2] : (known[k / 2 - 1] + known[k / 2]) / 2;
}

double soda_bench_correlate(const double *x, const double *y, uint32_t n)
{
	double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;

	for (uint32_t i = 0; i < n; i++) {
		mean_x += x[i] / n;
		mean_y += y[i] / n;
	}
	for (uint32_t i = 0; i < n; i++) {
		double dx = x[i] - mean_x, dy = y[i] - mean_y;

		xx += dx * dx;
		yy += dy * dy;
		xy += dx * dy;
	}
	return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

void soda_bench_summarise(const struct soda_bench_sample *samples, uint32_t rounds,
			  uint32_t chunk_bytes, struct soda_bench_summary *out)
{
	double column[SODA_BENCH_RATES][SODA_BENCH_ROUNDS_MAX], rates[SODA_BENCH_RATES];

	memset(out, 0, sizeof(*out));
	out->gb_min = out->gb_max = NAN;
	for (uint32_t i = 0; i < rounds; i++) {
		rates_of(&samples[i], chunk_bytes, rates);
		for (int r = 0; r < SODA_BENCH_RATES; r++)
			column[r][i] = rates[r];
		out->gb_min = fmin(out->gb_min, rates[SODA_BENCH_GB]);
		out->gb_max = fmax(out->gb_max, rates[SODA_BENCH_GB]);
		out->seconds += (double)samples[i].wall_ns / 1e9;
		soda_bench_counters_add(&out->sum, NULL, &samples[i].counters);
	}
	for (int r = 0; r < SODA_BENCH_RATES; r++)
		out->middle[r] = soda_bench_median(column[r], rounds);
}

void soda_bench_compare(const struct soda_bench_sample *ours, const struct soda_bench_sample *floor,
			uint32_t rounds, uint32_t chunk_bytes, double out[SODA_BENCH_RATES])
{
	double column[SODA_BENCH_RATES][SODA_BENCH_ROUNDS_MAX];
	double a[SODA_BENCH_RATES], b[SODA_BENCH_RATES];

	for (uint32_t i = 0; i < rounds; i++) {
		rates_of(&ours[i], chunk_bytes, a);
		rates_of(&floor[i], chunk_bytes, b);
		for (int r = 0; r < SODA_BENCH_RATES; r++)
			column[r][i] = divide(a[r], b[r]);
	}
	for (int r = 0; r < SODA_BENCH_RATES; r++)
		out[r] = soda_bench_median(column[r], rounds);
}
