/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench move`: results for programs and for people. */
#include <math.h>
#include <stdio.h>

#include "soda/base/json.h"
#include "soda/bench/move/move.h"

static const char *way_of(const struct soda_bench_move_stage *stage)
{
	if (stage->plan->shared && stage->transport == SODA_BENCH_MOVE_SHM)
		return "shared";
	return soda_move_way(stage->mover) == SODA_MOVE_READS ? "reads" : "stream";
}

static const char *name_of(const struct soda_bench_move_stage *stage)
{
	return soda_bench_move_transports[stage->transport];
}

json_t *soda_bench_move_report_new(const struct soda_bench_move_plan *plan)
{
	json_t *out = json_object();

	soda_json_set_text(out, "format", "soda-bench-move");
	soda_json_set_count(out, "version", 1);
	soda_json_set_count(out, "calls", plan->calls);
	soda_json_set_count(out, "rounds", plan->rounds);
	soda_json_set_count(out, "pieces", plan->pieces);
	json_object_set_new(out, "host", json_array());
	json_object_set_new(out, "host_correlation", json_null());
	json_object_set_new(out, "host_correlations", json_object());
	json_object_set_new(out, "throughput", json_array());
	json_object_set_new(out, "arrow", json_array());
	return out;
}

/* The one that is farthest from none is the result of all. */
static void set_correlation(json_t *out, const char *transport,
			    const struct soda_bench_move_correlation *c)
{
	const json_t *sofar = json_object_get(out, "host_correlation");
	json_t *both = json_object();

	soda_json_set_real(both, "size", c->size);
	soda_json_set_real(both, "log2_size", c->log_size);
	json_object_set_new(json_object_get(out, "host_correlations"), transport, both);
	if (!isnan(c->size) &&
	    (!json_is_real(sofar) || fabs(c->size) > fabs(json_real_value(sofar))))
		soda_json_set_real(out, "host_correlation", c->size);
}

static json_t *row_of(const struct soda_bench_move_stage *stage, uint64_t bytes)
{
	json_t *row = json_object();

	soda_json_set_text(row, "transport", name_of(stage));
	soda_json_set_text(row, "way", way_of(stage));
	soda_json_set_count(row, "bytes", bytes);
	return row;
}

static void print_host(const struct soda_bench_move_stage *stage,
		       const struct soda_bench_move_host *rows,
		       const struct soda_bench_move_correlation *c)
{
	char size[16];

	printf("soda_move() by %s (%s), %u calls of each size, %u piece%s\n", name_of(stage),
	       way_of(stage), stage->plan->calls, stage->plan->pieces,
	       stage->plan->pieces == 1 ? "" : "s");
	printf("%10s %12s %12s %16s\n", "size", "median us", "max us", "CPU us to end");
	for (unsigned i = 0; i < stage->plan->host_n; i++)
		printf("%10s %12.1f %12.1f %16.1f\n", soda_format_size(rows[i].bytes, size),
		       rows[i].median_us, rows[i].max_us, rows[i].cpu_us);
	printf("correlation of the time with the size %.3f, with its logarithm %.3f\n\n", c->size,
	       c->log_size);
	fflush(stdout);
}

void soda_bench_move_report_host(const struct soda_bench_move_stage *stage,
				 const struct soda_bench_move_host *rows,
				 const struct soda_bench_move_correlation *correlation, json_t *out)
{
	if (!out) {
		print_host(stage, rows, correlation);
		return;
	}
	for (unsigned i = 0; i < stage->plan->host_n; i++) {
		json_t *row = row_of(stage, rows[i].bytes);

		soda_json_set_real(row, "median_us", rows[i].median_us);
		soda_json_set_real(row, "max_us", rows[i].max_us);
		soda_json_set_real(row, "cpu_us", rows[i].cpu_us);
		json_array_append_new(json_object_get(out, "host"), row);
	}
	set_correlation(out, name_of(stage), correlation);
}

void soda_bench_move_report_rate(const struct soda_bench_move_stage *stage,
				 const struct soda_bench_move_rate *rate, bool first, json_t *out)
{
	char size[16];
	json_t *row;

	if (!out) {
		if (first)
			printf("%-9s %-7s %10s %6s %9s %12s %7s  %s\n", "transport", "way", "size",
			       "depth", "GB/s", "plain GB/s", "ratio", "plain");
		printf("%-9s %-7s %10s %6u %9.3f %12.3f %7.3f  %s\n", name_of(stage), way_of(stage),
		       soda_format_size(rate->bytes, size), rate->depth, rate->gb, rate->plain_gb,
		       rate->ratio, rate->plain);
		fflush(stdout);
		return;
	}
	row = row_of(stage, rate->bytes);
	soda_json_set_count(row, "depth", rate->depth);
	soda_json_set_real(row, "gb_per_s", rate->gb);
	soda_json_set_real(row, "plain_gb_per_s", rate->plain_gb);
	soda_json_set_text(row, "plain", rate->plain);
	soda_json_set_real(row, "ratio", rate->ratio);
	json_array_append_new(json_object_get(out, "throughput"), row);
}

static void print_arrow(const struct soda_bench_move_stage *stage,
			const struct soda_bench_move_arrow *row, bool first)
{
	char size[16];

	if (first)
		printf("%-9s %-7s %7s %10s %-8s %12s %9s %12s %7s %15s\n", "transport", "way",
		       "columns", "size", "strategy", "host CPU us", "GB/s", "plain GB/s", "ratio",
		       "agent CPU s/GB");
	printf("%-9s %-7s %7u %10s %-8s %12.1f %9.3f %12.3f %7.3f %15.3f\n", name_of(stage),
	       way_of(stage), row->columns, soda_format_size(row->bytes, size),
	       soda_bench_move_strategy(row->strategy), row->host_us, row->gb, row->plain_gb,
	       row->ratio, row->agent_cpu_s);
	fflush(stdout);
}

void soda_bench_move_report_arrow(const struct soda_bench_move_stage *stage,
				  const struct soda_bench_move_arrow *rows, bool first, json_t *out)
{
	for (unsigned i = 0; i < SODA_BENCH_MOVE_STRATEGIES; i++) {
		const struct soda_bench_move_arrow *from = &rows[i];
		json_t *row;

		if (!out) {
			print_arrow(stage, from, first && i == 0);
			continue;
		}
		row = row_of(stage, from->bytes);
		soda_json_set_count(row, "columns", from->columns);
		soda_json_set_text(row, "strategy", soda_bench_move_strategy(from->strategy));
		soda_json_set_real(row, "host_us", from->host_us);
		soda_json_set_real(row, "gb_per_s", from->gb);
		soda_json_set_real(row, "plain_gb_per_s", from->plain_gb);
		soda_json_set_real(row, "ratio", from->ratio);
		soda_json_set_real(row, "agent_cpu_s_per_gb", from->agent_cpu_s);
		json_array_append_new(json_object_get(out, "arrow"), row);
	}
}
