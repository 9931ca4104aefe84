/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench move`: what a call costs the program that makes it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "soda/bench/move/move.h"
#include "soda/bench/worker/summary.h"

/* All calls: call after call, each size in its turn, so that what drifts meets all sizes. */
struct calls {
	struct soda_bench_move_load loads[SODA_BENCH_MOVE_LIST_MAX];
	char names[SODA_BENCH_MOVE_LIST_MAX][16];
	double *us, *cpu_us; /* [call * sizes + size] */
};

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Column `of`, sorted into list. */
static void column(const double *values, unsigned of, unsigned sizes, uint32_t calls, double *list)
{
	for (uint32_t i = 0; i < calls; i++)
		list[i] = values[i * sizes + of];
	qsort(list, calls, sizeof(*list), compare);
}

static int one_call(const struct soda_bench_move_load *load, double *us_p, double *cpu_us_p,
		    uint64_t *step_p)
{
	double cpu = soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID),
	       began = soda_transport_seconds(CLOCK_MONOTONIC);
	struct soda_move_ticket *ticket;
	int err = soda_bench_move_post(load, &ticket);

	*us_p = (soda_transport_seconds(CLOCK_MONOTONIC) - began) * 1e6;
	if (!err)
		err = soda_bench_move_await(ticket, step_p);
	*cpu_us_p = (soda_transport_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e6;
	return err;
}

/* The first of each is not counted; the last one is read back. */
static int all_calls(struct soda_bench_move_stage *stage, struct calls *c)
{
	const struct soda_bench_move_plan *plan = stage->plan;
	int err = 0;

	for (uint32_t i = 0; i <= plan->calls && !err; i++) {
		soda_bench_move_stamp(stage);
		for (unsigned s = 0; s < plan->host_n && !err; s++) {
			size_t at = (size_t)(i ? i - 1 : 0) * plan->host_n + s;
			uint64_t step;

			err = one_call(&c->loads[s], &c->us[at], &c->cpu_us[at], &step);
			if (!err && i == plan->calls)
				err = soda_bench_move_verify(stage, &c->loads[s], step);
		}
	}
	return err;
}

static int correlate(const struct soda_bench_move_plan *plan, const struct calls *c,
		     struct soda_bench_move_correlation *out)
{
	uint32_t n = plan->calls * plan->host_n;
	double *sizes = calloc(n, sizeof(*sizes)), *logs = calloc(n, sizeof(*logs));
	int err = sizes && logs ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && !err; i++) {
		sizes[i] = (double)plan->host_sizes[i % plan->host_n];
		logs[i] = log2(sizes[i]);
	}
	if (!err)
		*out = (struct soda_bench_move_correlation){ soda_bench_correlate(sizes, c->us, n),
							     soda_bench_correlate(logs, c->us, n) };
	free(logs);
	free(sizes);
	return err;
}

static int summarise(const struct soda_bench_move_plan *plan, const struct calls *c,
		     struct soda_bench_move_host *rows)
{
	double *list = calloc(plan->calls, sizeof(*list));

	for (unsigned s = 0; s < plan->host_n && list; s++) {
		rows[s] = (struct soda_bench_move_host){ .bytes = plan->host_sizes[s] };
		column(c->us, s, plan->host_n, plan->calls, list);
		rows[s].median_us = list[plan->calls / 2];
		rows[s].max_us = list[plan->calls - 1];
		column(c->cpu_us, s, plan->host_n, plan->calls, list);
		rows[s].cpu_us = list[plan->calls / 2];
	}
	free(list);
	return list ? 0 : -ENOMEM;
}

static int open_loads(const struct soda_bench_move_stage *stage, struct calls *c)
{
	int err = 0;

	for (unsigned s = 0; s < stage->plan->host_n && !err; s++) {
		snprintf(c->names[s], sizeof(c->names[s]), "host-%u", s);
		err = soda_bench_move_load_open(stage, c->names[s], stage->plan->host_sizes[s], 1,
						&c->loads[s]);
	}
	return err;
}

int soda_bench_move_host(struct soda_bench_move_stage *stage, struct soda_bench_move_host *rows,
			 struct soda_bench_move_correlation *correlation_p)
{
	const struct soda_bench_move_plan *plan = stage->plan;
	size_t n = (size_t)plan->calls * plan->host_n;
	struct calls *c = calloc(1, sizeof(*c));
	int err = -ENOMEM;

	if (c) {
		c->us = calloc(n, sizeof(*c->us));
		c->cpu_us = calloc(n, sizeof(*c->cpu_us));
		err = c->us && c->cpu_us ? open_loads(stage, c) : -ENOMEM;
	}
	if (!err)
		err = all_calls(stage, c);
	if (!err)
		err = summarise(plan, c, rows);
	if (!err)
		err = correlate(plan, c, correlation_p);
	for (unsigned s = 0; c && s < plan->host_n; s++)
		soda_bench_move_load_close(&c->loads[s]);
	if (c) {
		free(c->us);
		free(c->cpu_us);
	}
	free(c);
	return err;
}
