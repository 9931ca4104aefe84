/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench node`: results for programs and for people. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/conf/conf.h"
#include "soda/base/json.h"
#include "soda/bench/node/node.h"
#include "soda/bench/worker/pattern.h"
#include "soda/bench/worker/summary.h"

enum { PATTERN_BYTES = 600 };

static void set_bytes(json_t *into, const char *key, double bytes)
{
	if (isnan(bytes))
		soda_json_set_text(into, key, NULL);
	else
		soda_json_set_count(into, key, (uint64_t)bytes);
}

static json_t *run_of(const struct soda_bench_node_plan *plan, enum soda_bench_node_mode mode,
		      uint32_t round, const struct soda_bench_node_sample *s)
{
	json_t *out = json_object();
	char pattern[PATTERN_BYTES];

	soda_json_set_text(out, "bench", "node");
	soda_json_set_text(out, "mode", soda_bench_node_mode_names[mode]);
	soda_json_set_count(out, "processes", plan->processes);
	soda_json_set_text(out, "pattern",
			   soda_bench_pattern_name(&plan->worker, pattern, sizeof(pattern)));
	soda_json_set_count(out, "round", round + 1);
	soda_json_set_count(out, "threads", plan->worker.threads);
	soda_json_set_count(out, "size", plan->worker.bytes);
	soda_json_set_count(out, "chunk", plan->worker.chunk_bytes);
	soda_json_set_count(out, "buffer", plan->memory_bytes);
	soda_json_set_count(out, "laps", plan->worker.passes);
	soda_json_set_real(out, "seconds", s->seconds);
	set_bytes(out, "net_bytes", s->net_bytes);
	set_bytes(out, "memory_bytes", s->memory_bytes);
	soda_json_set_real(out, "cpu_s", s->cpu_s);
	soda_json_set_real(out, "fault_us_p50", s->p50_us);
	soda_json_set_real(out, "fault_us_p99", s->p99_us);
	json_object_set_new(out, "verified", json_true()); /* else there is no round */
	return out;
}

void soda_bench_node_describe(const struct soda_bench_node_stage *stage, json_t *runs)
{
	for (uint32_t r = 0; r < stage->plan->rounds; r++)
		for (int m = 0; m < SODA_BENCH_NODE_MODES; m++)
			json_array_append_new(runs,
					      run_of(stage->plan, (enum soda_bench_node_mode)m, r,
						     &stage->sides[m].samples[r]));
}

/* For people */

static const struct column {
	const char *head[2];
	size_t offset;
	int width, decimals;
	double unit;
} columns[] = {
#define COLUMN(first, second, member, width, decimals, unit)                                       \
	{                                                                                          \
		{ first, second }, offsetof(struct soda_bench_node_sample, member), width,         \
			decimals, unit                                                             \
	}
	COLUMN("", "seconds", seconds, 9, 3, 1),
	COLUMN("MB from", "the server", net_bytes, 11, 1, 1e6),
	COLUMN("MB of", "memory", memory_bytes, 9, 1, 1e6),
	COLUMN("", "CPU s", cpu_s, 9, 3, 1),
	COLUMN("us a fault,", "median", p50_us, 12, 1, 1),
	COLUMN("", "99 %", p99_us, 10, 1, 1),
#undef COLUMN
};

#define COLUMNS_N (sizeof(columns) / sizeof(columns[0]))

static double value_of(const struct soda_bench_node_sample *sample, const struct column *c)
{
	return *(const double *)(const void *)((const char *)sample + c->offset);
}

/* The median of a mode's rounds, or of the rounds' own ratios to another mode's. */
static double middle(const struct soda_bench_node_sample *of,
		     const struct soda_bench_node_sample *to, uint32_t rounds,
		     const struct column *c)
{
	double values[SODA_BENCH_ROUNDS_MAX];

	for (uint32_t r = 0; r < rounds; r++) {
		double base = to ? value_of(&to[r], c) : c->unit;

		values[r] = base > 0 ? value_of(&of[r], c) / base : NAN;
	}
	return soda_bench_median(values, rounds);
}

static void print_row(const char *name, const struct soda_bench_node_sample *of,
		      const struct soda_bench_node_sample *to, uint32_t rounds)
{
	printf("%-12s", name);
	for (size_t i = 0; i < COLUMNS_N; i++) {
		const struct column *c = &columns[i];
		double value = middle(of, to, rounds, c);

		if (isnan(value))
			printf(" %*s", c->width, "-");
		else
			printf(" %*.*f", c->width, to ? 3 : c->decimals, value);
	}
	putchar('\n');
}

static void print_head(const struct soda_bench_node_plan *plan)
{
	const struct soda_bench_plan *worker = &plan->worker;
	char pattern[PATTERN_BYTES], size[16], chunk[16], store[16], buffer[16];

	printf("%s, %u process%s of %u thread%s, one file of %s in chunks of %s; own: page buffers "
	       "of %s each, store: one of %s\n",
	       soda_bench_pattern_name(worker, pattern, sizeof(pattern)), plan->processes,
	       plan->processes == 1 ? "" : "es", worker->threads, worker->threads == 1 ? "" : "s",
	       soda_format_size(worker->bytes, size), soda_format_size(worker->chunk_bytes, chunk),
	       soda_format_size(worker->buffer_bytes, buffer),
	       soda_format_size(plan->memory_bytes, store));
	printf("medians of %u round%s of %u lap%s; every value verified\n\n", plan->rounds,
	       plan->rounds == 1 ? "" : "s", worker->passes, worker->passes == 1 ? "" : "s");
	for (int line = 0; line < 2; line++) {
		printf("%-12s", line ? "mode" : "");
		for (size_t i = 0; i < COLUMNS_N; i++)
			printf(" %*s", columns[i].width, columns[i].head[line]);
		putchar('\n');
	}
}

int soda_bench_node_print(const struct soda_bench_node_stage *stage)
{
	const struct soda_bench_node_sample *own = stage->sides[SODA_BENCH_NODE_OWN].samples,
					    *store = stage->sides[SODA_BENCH_NODE_STORE].samples;
	uint32_t rounds = stage->plan->rounds;

	print_head(stage->plan);
	print_row("own", own, NULL, rounds);
	print_row("store", store, NULL, rounds);
	print_row("store / own", store, own, rounds);
	putchar('\n');
	return fflush(stdout) ? -EIO : 0;
}
