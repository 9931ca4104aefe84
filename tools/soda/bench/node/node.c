/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench node`: options, and the rounds of each pattern. */
#include "soda/bench/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/worker/pattern.h"
#include "soda/stage/guard.h"
#include "soda/stage/patience.h"

#define WHO "soda bench node"

enum { PATTERNS_MAX = 32 };

struct options {
	uint32_t touch, threads, processes, laps, rounds, seed;
	uint64_t size, chunk;
	char *patterns, *buffer;
	bool cold, json;
};

static const struct soda_option option_table[] = {
	OPTION("pattern", 'p', LIST, patterns, .arg = "LIST", .def = "seq,rand,zipf",
	       .help = "Orders of the accesses, one after the other: of seq, rand, zipf, hot, "
		       "alternate and trace:FILE; also the first argument."),
	OPTION("processes", 0, UINT, processes, .arg = "N", .def = "4", .min = 1,
	       .max = SODA_BENCH_PROCESSES_MAX, .help = "Processes that read the file."),
	OPTION("threads", 't', UINT, threads, .arg = "N", .def = "1", .min = 1, .max = 256,
	       .help = "Threads of each process."),
	OPTION("size", 's', SIZE, size, .arg = "SIZE", .def = "1G", .min = 65536, .max = 1ull << 40,
	       .help = "Size of the file, whole chunks; a trace brings its own."),
	OPTION("chunk", 'c', SIZE, chunk, .arg = "SIZE", .def = "64K", .min = 4096, .max = 2u << 20,
	       .help = "Chunk size, a power of two; a trace brings its own."),
	OPTION("buffer", 'b', STRING, buffer, .arg = "SIZE", .def = "1/3",
	       .help = "Memory of either mode: the store's, and that of all page buffers "
		       "together; a size, or a fraction of the file's. At least 8M, and 64 "
		       "chunks."),
	OPTION("touch", 0, CHOICE, touch, .arg = "WHAT", .def = "word",
	       .choices = soda_bench_touch_names,
	       .help = "What an access touches of its chunk: one word, one word of each 4 KiB "
		       "page, or all words."),
	OPTION("laps", 0, UINT, laps, .arg = "N", .def = "1", .min = 1, .max = 1000,
	       .help = "Passes over the file a round."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "3", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX,
	       .help = "Rounds of each pattern, own and store in turns."),
	OPTION("cold", 0, BOOL, cold,
	       .help = "No pass before the first round: it begins with empty memory."),
	OPTION("seed", 0, UINT, seed, .arg = "N", .def = "1", .max = 1u << 31,
	       .help = "Of the accesses and of the values."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "measure what a store for the node saves",
	.args = "[PATTERN,...]",
	.description =
		"Several processes read one file of a memory server through a DPU agent on their "
		"machine: once with page buffers of their own (own), once with the agent's store, "
		"which they share (store, see --store of soda-dpu-agent(1)). Both modes have the "
		"same memory: the store is as large as all page buffers together. Every value is "
		"verified; one that is wrong ends the benchmark. It starts and ends all that it "
		"needs: the memory server, an agent for each mode, the processes.\n\n"
		"Patterns are those of soda-bench-fault(1) that do not store. Each process reads "
		"the whole file: with seq all in the same order, with rand each as its own dice "
		"say, with zipf and hot likewise, over the same popular chunks. A trace is read by "
		"each; what it stored is read, too.\n\n"
		"A round is --laps passes of one mode; modes take turns, and each begins with a "
		"pass that is not measured, unless --cold. In mode store processes have the same "
		"page buffers, where only what is under way lies. The agents' static and dynamic "
		"caches are off, as they would be memory beside; other settings come from the "
		"environment (SODA_DPU_WORKERS and the like, see soda-dpu-agent(1)).\n\n"
		"Time is that from the first process's begin to the last one's end. Bytes from "
		"the server are those that the server counts. Memory is what the kernel says at "
		"the end of the round: blocks of the store's memory files, and the processes' "
		"anonymous proportional set (Pss_Anon). CPU time is that of the processes, the "
		"agent and the server. A fault's time is that of an access that faulted, as the "
		"program sees it: the middle one of the processes' medians, and the largest of "
		"their 99 % values. The table has medians over the rounds, and of the rounds' own "
		"ratios; JSON has every round. MB are 1e6 bytes.",
	.epilogue = SODA_PATIENCE_MAN
	".SH SEE ALSO\n.BR soda\\-bench\\-dpu (1),\n.BR soda\\-bench\\-fault (1),\n"
	".BR soda\\-dpu\\-agent (1),\n.BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int complain(const char *text)
{
	fprintf(stderr, WHO ": %s\n", text);
	return -EINVAL;
}

static int check_store(const struct soda_bench_node_plan *plan)
{
	uint64_t least = (uint64_t)SODA_NODE_CHUNKS_MIN * plan->worker.chunk_bytes;
	char has[16], needs[16];

	if (least < SODA_NODE_MIN)
		least = SODA_NODE_MIN;
	if (plan->memory_bytes >= least)
		return 0;
	fprintf(stderr,
		WHO ": --buffer: a store of %s is too small for chunks of this size: at least %s\n",
		soda_format_size(plan->memory_bytes, has), soda_format_size(least, needs));
	return -EINVAL;
}

static int make_plan(const struct options *opt, const char *pattern,
		     struct soda_bench_node_plan *plan)
{
	struct soda_bench_plan *worker = &plan->worker;

	*plan = (struct soda_bench_node_plan){
		.worker = { .touch = opt->touch,
			    .threads = opt->threads,
			    .chunk_bytes = (uint32_t)opt->chunk,
			    .passes = opt->laps,
			    .bytes = opt->size,
			    .seed = opt->seed },
		.processes = opt->processes,
		.rounds = opt->rounds,
		.cold = opt->cold,
	};
	if (soda_bench_plan_fill(WHO, pattern, false, opt->buffer, NULL, worker))
		return -EINVAL;
	if (worker->stores && worker->pattern != SODA_BENCH_TRACE)
		return complain("the processes only read the file: a pattern that stores has no "
				"place here");
	if (worker->bytes % worker->chunk_bytes)
		return complain("--size must be a multiple of --chunk");
	worker->stores = 0;
	plan->memory_bytes = worker->buffer_bytes;
	worker->buffer_bytes /= plan->processes;
	return check_store(plan);
}

struct work {
	struct soda_bench_node_plan plans[PATTERNS_MAX];
	uint32_t plans_n;
	bool json;
};

static int make_plans(const struct options *opt, struct work *work)
{
	char *copy = strdup(opt->patterns), *rest = copy, *name;
	int err = copy ? 0 : -ENOMEM;

	while (!err && (name = strsep(&rest, ", "))) {
		if (!*name)
			continue;
		if (work->plans_n == PATTERNS_MAX)
			err = complain("--pattern names too many");
		else
			err = make_plan(opt, name, &work->plans[work->plans_n++]);
	}
	free(copy);
	if (!err && !work->plans_n)
		err = complain("--pattern names none");
	return err;
}

/* Each round runs both modes, and begins with the other one than the round before. */
static int run_rounds(struct soda_bench_node_stage *stage)
{
	int err = 0;

	for (uint32_t r = 0; r < stage->plan->rounds; r++) {
		for (uint32_t i = 0; i < SODA_BENCH_NODE_MODES && !err; i++) {
			struct soda_bench_node_side *side =
				&stage->sides[(i + r) % SODA_BENCH_NODE_MODES];

			err = soda_bench_node_round(stage, side, &side->samples[r]);
		}
	}
	return err;
}

/* runs: where results go to; NULL: to standard output. */
static int run_pattern(const struct soda_bench_node_plan *plan,
		       const struct soda_bench_guarded *guarded, json_t *runs)
{
	struct soda_bench_node_stage stage = { .plan = plan,
					       .dir = guarded->dir,
					       .owner = guarded->owner };
	int err = soda_bench_node_stage_open(&stage);

	if (!err)
		err = run_rounds(&stage);
	if (!err && runs)
		soda_bench_node_describe(&stage, runs);
	else if (!err)
		err = soda_bench_node_print(&stage);
	soda_bench_node_stage_close(&stage);
	return err;
}

/* The benchmark's work, in the child of soda_bench_guard_run(). */
static int run(void *arg, const struct soda_bench_guarded *guarded)
{
	const struct work *work = arg;
	json_t *runs = work->json ? json_array() : NULL, *all;
	int err = 0;

	for (uint32_t i = 0; i < work->plans_n && !err; i++)
		err = run_pattern(&work->plans[i], guarded, runs);
	if (!err && runs) {
		all = json_object();
		soda_json_set_text(all, "format", "soda-bench-node");
		soda_json_set_count(all, "version", 1);
		json_object_set(all, "runs", runs);
		err = soda_json_print(all);
	}
	json_decref(runs);
	return err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_node(int argc, char **argv)
{
	struct work *work = calloc(1, sizeof(*work));
	struct options opt = { 0 };
	struct soda_conf_error err;
	const char *pattern;
	int code = SODA_EXIT_USAGE, n = -1;

	if (work)
		n = soda_tool_options(&conf, argc, argv, &opt, &pattern, 1);
	if (n == 1 && soda_conf_set(&conf, "pattern", pattern, &opt, "command line", &err)) {
		complain(err.text);
		n = -1;
	}
	if (n >= 0 && !make_plans(&opt, work)) {
		work->json = opt.json;
		code = soda_bench_guard_run(&(const struct soda_bench_work){ .run = run }, work);
	}
	soda_conf_free(&conf, &opt);
	free(work);
	return code;
}
