/* SPDX-License-Identifier: BSD-3-Clause */
/* Results for programs (JSON; null: not known) and for people (a table; "-"). */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/conf/conf.h"
#include "soda/base/json.h"
#include "soda/bench/fault/fault.h"
#include "soda/bench/worker/pattern.h"
#include "soda/bench/worker/summary.h"

static const char *const rate_keys[SODA_BENCH_RATES] = {
	[SODA_BENCH_GB] = "gb_per_s",
	[SODA_BENCH_TOUCHED] = "touched_gb_per_s",
	[SODA_BENCH_P50] = "us_per_fault_p50",
	[SODA_BENCH_P99] = "us_per_fault_p99",
	[SODA_BENCH_CLIENT] = "cpu_s_per_gb_client",
	[SODA_BENCH_SERVER] = "cpu_s_per_gb_server",
	[SODA_BENCH_BOTH] = "cpu_s_per_gb",
};

static void set_summary(json_t *out, const struct soda_bench_summary *side)
{
	const struct soda_bench_counter *c = soda_bench_counter_table;

	for (int r = 0; r < SODA_BENCH_RATES; r++)
		soda_json_set_real(out, rate_keys[r], side->middle[r]);
	soda_json_set_real(out, "gb_per_s_min", side->gb_min);
	soda_json_set_real(out, "gb_per_s_max", side->gb_max);
	soda_json_set_real(out, "seconds", side->seconds);
	for (; c->name; c++)
		soda_json_set_count(out, c->name, *soda_bench_counter_at(&side->sum, c));
}

static const char *name_or(const char *name, const char *otherwise)
{
	return *name ? name : otherwise;
}

/* Write 0 and "off" as the configuration writes them. */
static void set_level(json_t *out, const char *key, uint32_t value)
{
	if (value == 0)
		soda_json_set_text(out, key, "default");
	else if (value == UINT32_MAX)
		soda_json_set_text(out, key, "off");
	else
		soda_json_set_count(out, key, value);
}

static json_t *describe(const struct soda_bench_run *run)
{
	const struct soda_bench_plan *plan = run->plan;
	json_t *out = json_object();
	char pattern[600];

	soda_json_set_text(out, "format", "soda-bench-fault");
	soda_json_set_count(out, "version", 1);
	soda_json_set_text(out, "bench", "fault");
	soda_json_set_text(out, "pattern", soda_bench_pattern_name(plan, pattern, sizeof(pattern)));
	soda_json_set_text(out, "touch", soda_bench_touch_names[plan->touch]);
	soda_json_set_count(out, "threads", plan->threads);
	soda_json_set_count(out, "chunk", plan->chunk_bytes);
	soda_json_set_count(out, "size", plan->bytes);
	soda_json_set_count(out, "buffer", plan->buffer_bytes);
	soda_json_set_text(out, "transport", run->transport);
	soda_json_set_text(out, "server", run->server);
	soda_json_set_text(out, "mode", soda_bench_mode_names[plan->mode]);
	soda_json_set_text(out, "evict", name_or(plan->evict, "default"));
	soda_json_set_text(out, "mechanisms", name_or(plan->mechanisms, "default"));
	set_level(out, "prefetch", plan->prefetch_chunks);
	set_level(out, "poll_us", plan->poll_us);
	soda_json_set_count(out, "seed", plan->seed);
	soda_json_set_count(out, "passes", plan->passes);
	soda_json_set_count(out, "rounds", run->rounds);
	return out;
}

static void set_floor(json_t *out, const struct soda_bench_summary *floor,
		      const double ratio[SODA_BENCH_RATES])
{
	json_t *inner = json_object();

	set_summary(inner, floor);
	json_object_set_new(out, "floor", inner);
	soda_json_set_real(out, "ratio_gb_per_s", ratio[SODA_BENCH_GB]);
	soda_json_set_real(out, "ratio_touched_gb_per_s", ratio[SODA_BENCH_TOUCHED]);
	soda_json_set_real(out, "ratio_cpu", ratio[SODA_BENCH_BOTH]);
}

/* A cell that is NAN shows "-"; floor NULL: no such columns. */
static void print_row(const char *what, int decimals, double ours, const double *floor,
		      double ratio)
{
	char cell[3][32];
	const double values[3] = { ours, floor ? *floor : NAN, ratio };

	for (int i = 0; i < 3; i++)
		snprintf(cell[i], sizeof(cell[i]), isnan(values[i]) ? "-" : "%.*f",
			 i == 2 ? 2 : decimals, values[i]);
	printf("  %-24s %12s", what, cell[0]);
	if (floor)
		printf(" %12s %8s", cell[1], isnan(ratio) ? "" : cell[2]);
	putchar('\n');
}

static void print_rates(const struct soda_bench_summary *ours,
			const struct soda_bench_summary *floor, const double *ratio)
{
	static const struct {
		const char *what;
		enum soda_bench_rate rate;
		int decimals;
		bool compared;
	} rows[] = {
		{ "GB/s fetched", SODA_BENCH_GB, 3, true },
		{ "GB/s touched", SODA_BENCH_TOUCHED, 3, true },
		{ "us a fault, median", SODA_BENCH_P50, 1, false },
		{ "us a fault, 99 %", SODA_BENCH_P99, 1, false },
		{ "CPU s/GB, client", SODA_BENCH_CLIENT, 3, false },
		{ "CPU s/GB, server", SODA_BENCH_SERVER, 3, false },
		{ "CPU s/GB, both", SODA_BENCH_BOTH, 3, true },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		print_row(rows[i].what, rows[i].decimals, ours->middle[rows[i].rate],
			  floor ? &floor->middle[rows[i].rate] : NULL,
			  floor && rows[i].compared ? ratio[rows[i].rate] : NAN);
}

static void print_counters(const struct soda_bench_summary *ours,
			   const struct soda_bench_summary *floor)
{
	for (const struct soda_bench_counter *c = soda_bench_counter_table; c->name; c++) {
		uint64_t a = *soda_bench_counter_at(&ours->sum, c);
		uint64_t b = floor ? *soda_bench_counter_at(&floor->sum, c) : 0;

		printf("  %-24s %12llu", c->name, (unsigned long long)a);
		if (floor)
			printf(" %12llu", (unsigned long long)b);
		putchar('\n');
	}
}

static void print_head(const struct soda_bench_run *run, const struct soda_bench_summary *ours)
{
	const struct soda_bench_plan *plan = run->plan;
	char size[16], chunk[16], buffer[16], pattern[600];

	printf("%s, touch %s, %u thread%s, %s in chunks of %s, buffer %s, %s, mode %s, evict %s\n",
	       soda_bench_pattern_name(plan, pattern, sizeof(pattern)),
	       soda_bench_touch_names[plan->touch], plan->threads, plan->threads == 1 ? "" : "s",
	       soda_format_size(plan->bytes, size), soda_format_size(plan->chunk_bytes, chunk),
	       soda_format_size(plan->buffer_bytes, buffer), run->transport,
	       soda_bench_mode_names[plan->mode], name_or(plan->evict, "default"));
	printf("medians of %u round%s of %u measured pass%s, %.1f s; every value verified\n\n",
	       run->rounds, run->rounds == 1 ? "" : "s", plan->passes,
	       plan->passes == 1 ? "" : "es", ours->seconds);
	printf("  %-24s %12s", "", "SODA");
	printf(run->floor ? " %12s %8s\n" : "\n", "floor", "ratio");
}

int soda_bench_report(const struct soda_bench_run *run, bool json)
{
	uint32_t chunk_bytes = run->plan->chunk_bytes;
	struct soda_bench_summary ours, floor, *beside = run->floor ? &floor : NULL;
	double ratio[SODA_BENCH_RATES];

	soda_bench_summarise(run->ours, run->rounds, chunk_bytes, &ours);
	if (beside) {
		soda_bench_summarise(run->floor, run->rounds, chunk_bytes, &floor);
		soda_bench_compare(run->ours, run->floor, run->rounds, chunk_bytes, ratio);
	}
	if (json) {
		json_t *out = describe(run);

		set_summary(out, &ours);
		if (beside)
			set_floor(out, beside, ratio);
		return soda_json_print(out);
	}
	print_head(run, &ours);
	print_rates(&ours, beside, ratio);
	print_counters(&ours, beside);
	printf("\n  GB/s fetched, all rounds: %.3f to %.3f\n", ours.gb_min, ours.gb_max);
	return fflush(stdout) ? -EIO : 0;
}
