/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench dpu`: options, and the rounds. */
#include "soda/bench/dpu/dpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda/base/tool.h"
#include "soda/bench/worker/pattern.h"
#include "soda/stage/guard.h"
#include "soda/stage/patience.h"

#define WHO "soda bench dpu"

static const char *const transport_names[] = { "shm", "tcp", NULL };

enum { SHM, TCP };

struct options {
	uint32_t touch, transport, threads, processes, laps, rounds, seed, dpu_cpu;
	uint64_t size, chunk, cache;
	char *pattern, *buffer, *modes, *link, *evict;
	bool cold, json;
};

static const struct soda_option option_table[] = {
	OPTION("pattern", 'p', STRING, pattern, .arg = "PATTERN", .def = "rand",
	       .help = "Order of the accesses: seq, rand, rmw, zipf, hot, alternate, shared or "
		       "trace:FILE; also the first argument."),
	OPTION("modes", 'm', LIST, modes, .arg = "LIST",
	       .help = "Of memserver, base, agg, async, static, dynamic, all, agg+async; default: "
		       "every one that the pattern can have, but for the last."),
	OPTION("threads", 't', UINT, threads, .arg = "N", .def = "2", .min = 1, .max = 256,
	       .help = "Threads of each process that touch its region."),
	OPTION("processes", 0, UINT, processes, .arg = "N", .def = "1", .min = 1,
	       .max = SODA_BENCH_PROCESSES_MAX,
	       .help = "Processes, each with a region of its own; with shared, all read one file."),
	OPTION("size", 's', SIZE, size, .arg = "SIZE", .def = "1G", .min = 65536, .max = 1ull << 40,
	       .help = "Size of a region; a trace brings its own."),
	OPTION("chunk", 'c', SIZE, chunk, .arg = "SIZE", .def = "64K", .min = 4096, .max = 2u << 20,
	       .help = "Chunk size, a power of two; a trace brings its own."),
	OPTION("buffer", 'b', STRING, buffer, .arg = "SIZE", .def = "1/3",
	       .help = "Page buffer of each process: a size, or a fraction of its region's."),
	OPTION("touch", 0, CHOICE, touch, .arg = "WHAT", .def = "word",
	       .choices = soda_bench_touch_names,
	       .help = "What an access touches of its chunk: one word, one word of each 4 KiB "
		       "page, or all words. rmw: at least one word of each page."),
	OPTION("agent-cache", 0, SIZE, cache, .arg = "SIZE", .def = "64M", .min = 1u << 20,
	       .max = 1ull << 40, .help = "Of the agent's dynamic cache, and of its static one."),
	OPTION("host-transport", 0, CHOICE, transport, .arg = "NAME", .def = "shm",
	       .choices = transport_names,
	       .help = "Between processes and agent: shm or tcp. To the memory server it is tcp."),
	OPTION("link", 0, STRING, link, .arg = "RATE",
	       .help = "Put the memory server behind an emulated link of this rate, such as 2gbit. "
		       "Needs root."),
	OPTION("dpu-cpu", 0, UINT, dpu_cpu, .arg = "PCT", .min = 10, .max = 100000,
	       .help = "Cap the agent at this share of a processor. Needs root."),
	OPTION("evict", 0, STRING, evict, .arg = "POLICY",
	       .help = "Replacement policy of the page buffer, as SODA_EVICT: ghost or fifo."),
	OPTION("laps", 0, UINT, laps, .arg = "N", .def = "1", .min = 1, .max = 1000,
	       .help = "Passes over the region a round."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "3", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX, .help = "Rounds; times and rates are their medians."),
	OPTION("cold", 0, BOOL, cold,
	       .help = "No pass before the first round: it begins with empty caches, and a page "
		       "buffer as filling the region left it."),
	OPTION("seed", 0, UINT, seed, .arg = "N", .def = "1", .max = 1u << 31,
	       .help = "Of the accesses and of the values."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "measure what a DPU agent changes",
	.args = "[PATTERN]",
	.description =
		"Runs one workload straight on a memory server and through DPU agents, in turns, "
		"and verifies every value. It starts and ends all that it needs: the memory "
		"server, an agent for each mode, the processes.\n\n"
		"Modes: memserver, no agent; base, the agent as a plain proxy; agg, async, static, "
		"dynamic, the proxy with that one part: aggregation, asynchronous forwarding, "
		"static cache, dynamic cache; agg+async, with those two; all, with all of them. "
		"Other settings of the agents come from the environment (SODA_DPU_POLICY and the "
		"like, see soda-dpu-agent(1)).\n\n"
		"Patterns are those of soda-bench-fault(1), and shared: all processes read one "
		"file of the memory server in order, each thread its own share. In the static "
		"cache lies, with hot, the hot tenth, in modes static and all; with other "
		"patterns, in mode static alone, as much as fits from the region's beginning. A "
		"pattern that stores cannot have mode static.\n\n"
		"A round is --laps passes of one mode; rounds go through all modes, and each mode "
		"begins with a pass that is not measured, unless --cold. GB are 1e9 bytes, MB 1e6. "
		"Times, rates and CPU seconds a GB fetched by the processes are medians over the "
		"rounds, 'spread' is the distance of the fastest and the slowest round over the "
		"median. Bytes over the network are sums as agents and processes count them, by "
		"kind; what the static cache loaded before the first round is in them, once. The "
		"hit rate is the share of the bytes fetched that the agent did not ask of the "
		"server on demand; late hits waited for a fetch that was under way. Ratios of time "
		"are medians of the rounds' own.\n\n"
		"--link runs the memory server in a network namespace, behind a veth pair whose "
		"server's end lets RATE out (tc-tbf(8), burst 64kb, latency 50ms); requests and "
		"write-backs go unlimited. Results then have the bytes that the interface carried. "
		"--dpu-cpu puts the agents into a cgroup. Both are labelled as emulated, and "
		"removed again however the benchmark ends; what one that was killed left is "
		"removed by the next.",
	.epilogue = SODA_PATIENCE_MAN
	".SH SEE ALSO\n.BR soda\\-bench\\-fault (1),\n.BR soda\\-dpu\\-agent (1),\n"
	".BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int complain(const char *text)
{
	fprintf(stderr, WHO ": %s\n", text);
	return -EINVAL;
}

static void default_modes(struct soda_bench_dpu_plan *plan)
{
	for (int m = 0; m <= SODA_BENCH_ALL_PARTS; m++)
		if (m != SODA_BENCH_STATIC || !plan->worker.stores)
			plan->modes[plan->modes_n++] = (enum soda_bench_dpu_mode)m;
}

static int add_mode(struct soda_bench_dpu_plan *plan, const char *name)
{
	int m = 0;

	while (m < SODA_BENCH_DPU_MODES && strcmp(name, soda_bench_dpu_mode_names[m]) != 0)
		m++;
	if (m == SODA_BENCH_DPU_MODES) {
		fprintf(stderr,
			WHO ": no mode '%.40s'; expected memserver, base, agg, async, static, "
			    "dynamic, all or agg+async\n",
			name);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < plan->modes_n; i++)
		if (plan->modes[i] == (enum soda_bench_dpu_mode)m)
			return complain("--modes names a mode twice");
	if (m == SODA_BENCH_STATIC && plan->worker.stores)
		return complain("what the static cache holds cannot be stored to: the pattern does "
				"not go with mode static");
	plan->modes[plan->modes_n++] = (enum soda_bench_dpu_mode)m;
	return 0;
}

static int parse_modes(const char *list, struct soda_bench_dpu_plan *plan)
{
	char *copy = list ? strdup(list) : NULL, *rest = copy, *name;
	int err = list && !copy ? -ENOMEM : 0;

	if (!list)
		default_modes(plan);
	while (!err && (name = strsep(&rest, ", ")))
		err = *name ? add_mode(plan, name) : 0;
	free(copy);
	if (!err && !plan->modes_n)
		err = complain("--modes names none");
	return err;
}

static int make_worker(const struct options *opt, struct soda_bench_plan *plan)
{
	*plan = (struct soda_bench_plan){
		.touch = opt->touch,
		.threads = opt->threads,
		.chunk_bytes = (uint32_t)opt->chunk,
		.passes = opt->laps,
		.bytes = opt->size & ~(uint64_t)7,
		.seed = opt->seed,
	};
	return soda_bench_plan_fill(WHO, opt->pattern, true, opt->buffer, opt->evict, plan);
}

static int make_plan(const struct options *opt, struct soda_bench_dpu_plan *plan)
{
	int err;

	*plan = (struct soda_bench_dpu_plan){
		.processes = opt->processes,
		.rounds = opt->rounds,
		.shm = opt->transport == SHM,
		.cold = opt->cold,
		.cache_bytes = opt->cache,
		.cpu_pct = opt->dpu_cpu,
	};
	err = make_worker(opt, &plan->worker);
	return err ? err : parse_modes(opt->modes, plan);
}

static int measure_link(struct soda_bench_dpu_stage *stage)
{
	uint64_t bits = 0;
	int err = 0;

	if (stage->plan->link.rate[0])
		err = soda_bench_link_carries(&stage->plan->link, stage->server.pid, &bits);
	stage->link_bits += bits;
	return err;
}

/* Each round runs every mode, and begins with another one than the round before. */
static int run_rounds(struct soda_bench_dpu_stage *stage)
{
	uint32_t modes = stage->plan->modes_n;
	int err = 0;

	for (uint32_t r = 0; r < stage->plan->rounds && !err; r++) {
		err = measure_link(stage);
		for (uint32_t i = 0; i < modes && !err; i++) {
			struct soda_bench_dpu_side *side = &stage->sides[(i + r) % modes];

			err = soda_bench_dpu_round(stage, side, &side->samples[r]);
		}
	}
	return err;
}

struct work {
	struct soda_bench_dpu_plan plan;
	bool json;
};

/* The benchmark's work, in the child of soda_bench_guard_run(). */
static int run(void *arg, const struct soda_bench_guarded *guarded)
{
	const struct work *work = arg;
	struct soda_bench_dpu_stage stage = { .plan = &work->plan,
					      .dir = guarded->dir,
					      .owner = guarded->owner };
	int err = soda_bench_dpu_stage_open(&stage);

	if (!err)
		err = run_rounds(&stage);
	if (!err)
		err = soda_bench_dpu_report(&stage, work->json);
	soda_bench_dpu_stage_close(&stage);
	return err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

static int run_guarded(const struct options *opt)
{
	struct work work = { .json = opt->json };
	int err = make_plan(opt, &work.plan);

	if (!err && opt->link)
		err = soda_bench_link_plan(opt->link, getpid(), &work.plan.link);
	if (err)
		return err == -EPERM ? SODA_EXIT_FAILED : SODA_EXIT_USAGE;
	return soda_bench_guard_run(&(const struct soda_bench_work){ .run = run }, &work);
}

int soda_command_bench_dpu(int argc, char **argv)
{
	struct options opt = { 0 };
	struct soda_conf_error err;
	const char *pattern;
	int code = SODA_EXIT_USAGE, n = soda_tool_options(&conf, argc, argv, &opt, &pattern, 1);

	if (n == 1 && soda_conf_set(&conf, "pattern", pattern, &opt, "command line", &err)) {
		complain(err.text);
		n = -1;
	}
	if (n >= 0)
		code = run_guarded(&opt);
	soda_conf_free(&conf, &opt);
	return code;
}
