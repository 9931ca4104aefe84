/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: medians over the repetitions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_results.h"

static const char *const kind_names[] = { "on_demand", "prefetch", "write_back", "preload" };

static double number(const json_t *from, const char *key)
{
	return json_number_value(json_object_get(from, key));
}

static int by_seconds(const void *a, const void *b)
{
	double x = number(*(json_t *const *)a, "seconds"),
	       y = number(*(json_t *const *)b, "seconds");

	return (x > y) - (x < y);
}

static void describe(const json_t *run, struct soda_eval_cell *cell)
{
	const json_t *traffic = json_object_get(run, "traffic");
	double hits = number(run, "hits") + number(run, "late_hits");
	double asked = hits + number(run, "misses");

	cell->seconds = number(run, "seconds");
	cell->traffic_bytes = number(traffic, "total");
	for (int i = 0; i < 4; i++)
		cell->kinds[i] = number(traffic, kind_names[i]);
	cell->programs_bytes = number(run, "programs_bytes");
	cell->hit_rate = asked > 0 ? hits / asked : NAN;
	cell->host_cpu_s = number(run, "host_cpu_ns") / 1e9;
	cell->agent_cpu_s = number(run, "agent_cpu_ns") / 1e9;
	cell->server_cpu_s = number(run, "server_cpu_ns") / 1e9;
}

void soda_eval_cell_make(const struct soda_eval_results *results, const struct soda_eval_plan *plan,
			 const struct soda_eval_run *kind, struct soda_eval_cell *cell_p)
{
	struct soda_eval_run run = *kind;
	struct soda_eval_cell cell = { .seconds = NAN, .seconds_min = NAN, .seconds_max = NAN };
	json_t *found[SODA_EVAL_REPEAT_MAX];

	cell.hit_rate = cell.traffic_bytes = NAN;
	for (run.repetition = 0; run.repetition < plan->repeat; run.repetition++) {
		found[cell.n] = soda_eval_results_find(results, plan, &run);
		if (found[cell.n])
			cell.n++;
		else
			cell.invalid += soda_eval_results_failed(results, plan, &run);
	}
	if (cell.n) {
		qsort(found, cell.n, sizeof(found[0]), by_seconds);
		describe(found[(cell.n - 1) / 2], &cell);
		cell.seconds = (cell.seconds + number(found[cell.n / 2], "seconds")) / 2;
		cell.seconds_min = number(found[0], "seconds");
		cell.seconds_max = number(found[cell.n - 1], "seconds");
	}
	*cell_p = cell;
}
