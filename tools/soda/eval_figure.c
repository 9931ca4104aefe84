/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: what the figures show. */
#include "eval_figure.h"

#include <math.h>

#define ONE(mode) (1u << SODA_EVAL_##mode)

/* They differ for everybody, and mostly in grey. */
const char *const soda_eval_mode_colours[SODA_EVAL_MODES] = {
	[SODA_EVAL_DRAM] = "#888888",	   [SODA_EVAL_SSD] = "#ddcc77",
	[SODA_EVAL_MEMSERVER] = "#4477aa", [SODA_EVAL_BASE] = "#88ccee",
	[SODA_EVAL_AGG] = "#117733",	   [SODA_EVAL_ASYNC] = "#44aa99",
	[SODA_EVAL_STATIC] = "#aa4499",	   [SODA_EVAL_DYNAMIC] = "#ee9955",
	[SODA_EVAL_AGG_ASYNC] = "#999933", [SODA_EVAL_ALL] = "#cc3355",
};

const struct soda_eval_figure soda_eval_figures[SODA_EVAL_FIGURES] = {
	{ .id = "slow-down",
	  .title = "Slow-down against local memory",
	  .axis = "time / time in local memory",
	  .text = "What it costs that two thirds of the data are not on this node. No figure of "
		  "the "
		  "paper.",
	  .quantity = SODA_EVAL_TIME,
	  .reference = SODA_EVAL_DRAM,
	  .series = ONE(SSD) | ONE(MEMSERVER) | ONE(BASE) | ONE(ALL),
	  .processes = 1 },
	{ .id = "figure-6",
	  .title = "Figure 6: speed-up over the local disk",
	  .axis = "time on the disk / time",
	  .text = "The same limit of memory; graphs on files of the local disk, mapped, their "
		  "pages "
		  "not in memory when a run begins, or in a memory server, directly or through an "
		  "agent.",
	  .quantity = SODA_EVAL_SPEEDUP,
	  .reference = SODA_EVAL_SSD,
	  .series = ONE(MEMSERVER) | ONE(BASE) | ONE(ALL),
	  .processes = 1,
	  .paper = { { SODA_EVAL_ALL, "up to 7.9" } } },
	{ .id = "figure-7",
	  .title = "Figure 7: what the agent costs, and what aggregation and asynchrony give",
	  .axis = "time / time of base",
	  .text = "Below 1 is faster than the plain proxy, base.",
	  .quantity = SODA_EVAL_TIME,
	  .reference = SODA_EVAL_BASE,
	  .series = ONE(MEMSERVER) | ONE(AGG) | ONE(ASYNC) | ONE(AGG_ASYNC) | ONE(ALL),
	  .processes = 1,
	  .paper = { { SODA_EVAL_MEMSERVER, "0.88 to 0.99: base is 1 to 14 % slower" },
		     { SODA_EVAL_AGG_ASYNC, "below 1: 2 to 15 % faster than base" } } },
	{ .id = "figure-8",
	  .title = "Figure 8: beside a background BFS",
	  .axis = "time / time of MemServer",
	  .text = "Each application beside a second process that searches the same graph "
		  "breadth-first, over and over; both under the cap, which is that of two.",
	  .quantity = SODA_EVAL_TIME,
	  .reference = SODA_EVAL_MEMSERVER,
	  .series = ONE(SSD) | ONE(BASE) | ONE(STATIC) | ONE(ALL),
	  .processes = 2 },
	{ .id = "figure-9",
	  .title = "Figure 9: network traffic of two processes that share an agent",
	  .axis = "bytes on the network / bytes that programs fetched",
	  .text = "The same runs. Both processes read the same files, so that what one had fetched "
		  "into the agent serves the other. 1: what no agent would save.",
	  .quantity = SODA_EVAL_TRAFFIC_A_BYTE,
	  .reference = SODA_EVAL_MEMSERVER,
	  .series = ONE(MEMSERVER) | ONE(BASE) | ONE(STATIC) | ONE(ALL),
	  .processes = 2,
	  .paper = { { SODA_EVAL_ALL, "0.75 to 0.91: 9 to 25 % less traffic" } } },
	{ .id = "figure-10",
	  .title = "Figure 10: hits of the dynamic cache",
	  .axis = "% of requests",
	  .text = "Of the requests that arrived while the cache was asked; late hits, which wait "
		  "for "
		  "a fetch that is under way, are counted as hits. The switch may turn the cache "
		  "off "
		  "where it does not pay; then there are few requests, or none.",
	  .quantity = SODA_EVAL_HIT_RATE,
	  .reference = SODA_EVAL_BASE,
	  .series = ONE(DYNAMIC) | ONE(ALL),
	  .processes = 1,
	  .paper = { { SODA_EVAL_DYNAMIC, "PageRank 93" } } },
	{ .id = "figure-11",
	  .title = "Figure 11: network traffic with each optimisation",
	  .axis = "bytes on the network / bytes of base",
	  .text = "Between node or agent and memory server, by kind. Preload is the static "
		  "cache's, "
		  "counted although it is loaded before the application begins.",
	  .quantity = SODA_EVAL_TRAFFIC,
	  .reference = SODA_EVAL_BASE,
	  .series = ONE(MEMSERVER) | ONE(BASE) | ONE(AGG) | ONE(ASYNC) | ONE(STATIC) |
		    ONE(DYNAMIC) | ONE(ALL),
	  .processes = 1,
	  .by_kind = true,
	  .paper = { { SODA_EVAL_STATIC, "down to 0.58: up to 42 % less" },
		     { SODA_EVAL_DYNAMIC, "up to 2.17: up to 117 % more; PageRank 1.05" } } },
};

static struct soda_eval_cell cell_of(const struct soda_eval_report *report,
				     const struct soda_eval_run *kind, enum soda_eval_mode mode,
				     uint32_t processes)
{
	struct soda_eval_run run = *kind;
	struct soda_eval_cell cell;

	run.mode = mode;
	run.processes = processes;
	soda_eval_cell_make(report->results, report->plan, &run, &cell);
	return cell;
}

struct soda_eval_bar soda_eval_figure_bar(const struct soda_eval_report *report,
					  const struct soda_eval_figure *figure,
					  const struct soda_eval_run *kind)
{
	struct soda_eval_cell cell = cell_of(report, kind, kind->mode, figure->processes);
	struct soda_eval_cell ref = cell_of(report, kind, figure->reference, figure->processes);
	double value = NAN;

	switch (figure->quantity) {
	case SODA_EVAL_SPEEDUP:
		return (struct soda_eval_bar){ ref.seconds / cell.seconds,
					       ref.seconds / cell.seconds_max,
					       ref.seconds / cell.seconds_min };
	case SODA_EVAL_TIME:
		return (struct soda_eval_bar){ cell.seconds / ref.seconds,
					       cell.seconds_min / ref.seconds,
					       cell.seconds_max / ref.seconds };
	case SODA_EVAL_TRAFFIC:
		value = cell.traffic_bytes / ref.traffic_bytes;
		break;
	case SODA_EVAL_TRAFFIC_A_BYTE:
		value = cell.n ? cell.traffic_bytes / cell.programs_bytes : NAN;
		break;
	case SODA_EVAL_HIT_RATE:
		value = cell.hit_rate * 100;
		break;
	}
	if (!isfinite(value))
		value = NAN;
	return (struct soda_eval_bar){ value, value, value };
}

void soda_eval_figure_kinds(const struct soda_eval_report *report,
			    const struct soda_eval_figure *figure, const struct soda_eval_run *kind,
			    double parts[4])
{
	struct soda_eval_cell cell = cell_of(report, kind, kind->mode, figure->processes);
	struct soda_eval_cell ref = cell_of(report, kind, figure->reference, figure->processes);

	for (int i = 0; i < 4; i++) {
		parts[i] = cell.n ? cell.kinds[i] / ref.traffic_bytes : NAN;
		if (!isfinite(parts[i]))
			parts[i] = NAN;
	}
}

void soda_eval_figure_range(const struct soda_eval_report *report,
			    const struct soda_eval_figure *figure, enum soda_eval_mode mode,
			    double *least_p, double *most_p)
{
	struct soda_eval_run kind = { .mode = mode };

	*least_p = *most_p = NAN;
	for (kind.graph = 0; kind.graph < report->plan->graphs_n; kind.graph++)
		for (uint32_t a = 0; a < report->plan->apps_n; a++) {
			struct soda_eval_bar bar;

			kind.app = report->plan->apps[a];
			bar = soda_eval_figure_bar(report, figure, &kind);
			*least_p = fmin(*least_p, bar.value);
			*most_p = fmax(*most_p, bar.value);
		}
}

uint32_t soda_eval_figure_series(const struct soda_eval_report *report,
				 const struct soda_eval_figure *figure,
				 enum soda_eval_mode modes[SODA_EVAL_MODES])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < report->plan->modes_n; i++)
		if (soda_eval_in(report->plan->modes[i], figure->series))
			modes[n++] = report->plan->modes[i];
	return n;
}

bool soda_eval_figure_has_bars(const struct soda_eval_report *report,
			       const struct soda_eval_figure *figure)
{
	const struct soda_eval_plan *plan = report->plan;
	enum soda_eval_mode modes[SODA_EVAL_MODES];
	uint32_t n = soda_eval_figure_series(report, figure, modes);
	struct soda_eval_run kind = { 0 };

	for (kind.graph = 0; kind.graph < plan->graphs_n; kind.graph++)
		for (uint32_t a = 0; a < plan->apps_n; a++)
			for (uint32_t m = 0; m < n; m++) {
				kind.app = plan->apps[a];
				kind.mode = modes[m];
				if (!isnan(soda_eval_figure_bar(report, figure, &kind).value))
					return true;
			}
	return false;
}
