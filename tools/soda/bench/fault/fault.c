/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench fault`: options, and the rounds. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda.h"
#include "soda/base/tool.h"
#include "soda/bench/fault/fault.h"
#include "soda/bench/worker/pattern.h"
#include "soda/stage/daemon.h"
#include "soda/stage/patience.h"

static const char *const transport_names[] = { "tcp", "shm", NULL };

enum { TCP, SHM };

struct options {
	uint32_t touch, transport, mode;
	uint32_t threads, passes, rounds, seed, prefetch, poll_us;
	uint64_t size, chunk;
	char *pattern, *buffer, *server, *evict, *mechanisms, *record;
	bool floor, json;
};

static const struct soda_option option_table[] = {
	OPTION("pattern", 'p', STRING, pattern, .arg = "PATTERN", .def = "rand",
	       .help = "Order of the accesses: seq, rand, rmw, zipf, hot, alternate or trace:FILE; "
		       "also the first argument."),
	OPTION("touch", 0, CHOICE, touch, .arg = "WHAT", .def = "word",
	       .choices = soda_bench_touch_names,
	       .help = "What an access touches of its chunk: one word, one word of each 4 KiB "
		       "page, or all words. rmw: at least one word of each page."),
	OPTION("threads", 't', UINT, threads, .arg = "N", .def = "1", .min = 1, .max = 256,
	       .help = "Threads that touch the region."),
	OPTION("size", 's', SIZE, size, .arg = "SIZE", .def = "1G", .min = 65536, .max = 1ull << 40,
	       .help = "Size of the region; a trace brings its own."),
	OPTION("chunk", 'c', SIZE, chunk, .arg = "SIZE", .def = "64K", .min = 4096, .max = 2u << 20,
	       .help = "Chunk size, a power of two; a trace brings its own."),
	OPTION("buffer", 'b', STRING, buffer, .arg = "SIZE", .def = "1/3",
	       .help = "Page buffer: a size, or a fraction of the region's."),
	OPTION("transport", 0, CHOICE, transport, .arg = "NAME", .def = "tcp",
	       .choices = transport_names,
	       .help = "Transport to the memory server that the benchmark starts."),
	OPTION("server", 0, STRING, server, .arg = "ADDRESS",
	       .help = "Use this memory server instead, or these, with commas between; its CPU "
		       "time is then not known."),
	OPTION("mode", 0, CHOICE, mode, .arg = "MODE", .def = "auto",
	       .choices = soda_bench_mode_names, .help = "Fault mode."),
	OPTION("evict", 0, STRING, evict, .arg = "POLICY",
	       .help = "Replacement policy, as SODA_EVICT: ghost or fifo."),
	OPTION("mechanisms", 0, STRING, mechanisms, .arg = "SET",
	       .help = "Kernel mechanisms, as SODA_MECHANISMS: auto, own or copy."),
	OPTION("prefetch", 0, UINT, prefetch, .arg = "CHUNKS", .min = 1, .max = 256, .allow_off = 1,
	       .help = "Furthest that a stream runs ahead, or off, as SODA_PREFETCH."),
	OPTION("poll", 0, UINT, poll_us, .arg = "US", .min = 1, .max = 10000, .allow_off = 1,
	       .help = "Longest busy wait in microseconds, or off, as SODA_POLL."),
	OPTION("passes", 0, UINT, passes, .arg = "N", .def = "1", .min = 1, .max = 1000,
	       .help = "Measured passes a round, after its warm one."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "5", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX, .help = "Rounds; the results are their medians."),
	OPTION("seed", 0, UINT, seed, .arg = "N", .def = "1", .max = UINT32_MAX - 1,
	       .help = "Of the accesses and of the values."),
	OPTION("floor", 'f', BOOL, floor,
	       .help = "Round by round, measure the bare mechanism too and compare."),
	OPTION("record", 0, STRING, record, .arg = "FILE",
	       .help = "Write a page trace of SODA's side there, filling and warm passes included, "
		       "as SODA_TRACE."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = "soda bench fault",
	.summary = "measure page faults on fabric memory",
	.args = "[PATTERN]",
	.description =
		"Fills a region of fabric memory with values that can be checked, then touches its "
		"chunks through a smaller page buffer, verifies every value, and reports rates, "
		"latencies and CPU time. Each round is one warm pass and the measured ones.\n\n"
		"Patterns: seq, each thread its own contiguous share in order; rand, uniform with "
		"replacement, as many accesses a pass as the region has chunks; rmw, likewise "
		"within each thread's share, reading, checking and storing one word of every 4 KiB "
		"page, a pass ending with soda_sync() inside the measured time; zipf, exponent "
		"0.99 over the chunks in shuffled order; hot, as rand, but the first tenth of the "
		"chunks takes 60 % of the accesses; alternate, passes of seq and of rand in turn; "
		"trace:FILE, a page trace that a program wrote (SODA_TRACE, see soda(7)) or "
		"--record: thread n of the trace is thread n modulo --threads, chunks that came "
		"are loads, first stores are stores, and a pass with stores ends with "
		"soda_sync().\n\n"
		"With --floor the same accesses are replayed on the bare mechanism, in turns: "
		"blocking calls in the faulting thread over the same transport between two bare "
		"processes, UFFDIO_COPY, first-in-first-out eviction of 16 chunks at a time under "
		"the same limit, no write-protection where it only reads, no prefetch. Over shm it "
		"copies straight from the other process's mapped memory.\n\n"
		"GB are 1e9 bytes. A fault's time is that of an access that had to fetch, as the "
		"program sees it. Rates and times are medians over the rounds, counters sums over "
		"the measured passes, ratios medians of the rounds' own ratios.\n\n"
		"One machine gives three answers, and each hides a different mistake, so measure "
		"all: pinned to one core (taskset -c 0 soda bench fault ...); quiet and not "
		"pinned; and with one core kept busy by an unpinned loop (sh -c 'while :; do :; "
		"done').",
	.epilogue = SODA_PATIENCE_MAN,
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int complain(const char *text)
{
	fprintf(stderr, "soda bench fault: %s\n", text);
	return -EINVAL;
}

static int copy_text(char *out, size_t bytes, const char *text, const char *too_long)
{
	if (text && strlen(text) >= bytes)
		return complain(too_long);
	snprintf(out, bytes, "%s", text ? text : "");
	return 0;
}

static int make_plan(const struct options *opt, struct soda_bench_plan *plan)
{
	*plan = (struct soda_bench_plan){
		.touch = opt->touch,
		.threads = opt->threads,
		.chunk_bytes = (uint32_t)opt->chunk,
		.passes = opt->passes,
		.mode = opt->mode,
		.prefetch_chunks = opt->prefetch,
		.poll_us = opt->poll_us,
		.bytes = opt->size & ~(uint64_t)7,
		.seed = opt->seed,
		.shm = opt->server ? strncmp(opt->server, "shm:", 4) == 0 : opt->transport == SHM,
	};
	if (soda_bench_plan_fill("soda bench fault", opt->pattern, false, opt->buffer, opt->evict,
				 plan))
		return -EINVAL;
	if (plan->pattern == SODA_BENCH_TRACE && plan->stores && opt->floor)
		return complain("--floor replays no trace with stores: it would write every chunk "
				"back");
	int err = copy_text(plan->server, sizeof(plan->server), opt->server, "--server: too long");
	if (!err)
		err = copy_text(plan->mechanisms, sizeof(plan->mechanisms), opt->mechanisms,
				"--mechanisms: too long");
	if (!err)
		err = copy_text(plan->record, sizeof(plan->record), opt->record,
				"--record: too long");
	return err;
}

/* The processes of a benchmark. */
struct stage {
	struct soda_bench_plan plan;
	struct soda_bench_daemon server;
	struct soda_bench_driver ours, floor;
	struct soda_bench_sample *samples, *floor_samples;
	uint32_t rounds;
};

static void clear_stage(struct stage *stage)
{
	soda_bench_driver_stop(&stage->ours);
	soda_bench_driver_stop(&stage->floor);
	soda_bench_daemon_stop(&stage->server);
	free(stage->samples);
	free(stage->floor_samples);
}

static int start_floor(struct stage *stage)
{
	struct soda_bench_plan plan = stage->plan;
	struct soda_bench_ready ready;

	plan.floor = 1;
	return soda_bench_driver_start(&stage->floor, &plan, &ready);
}

static int start_server(struct stage *stage)
{
	char listen[64] = "tcp://127.0.0.1:0", bytes[32];
	const char *const args[] = { "--listen",    listen,    "--capacity", bytes,
				     "--log-level", "warning", NULL };

	if (stage->plan.shm)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-%ld", (long)getpid());
	/* some room: regions are rounded up */
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)stage->plan.bytes + (64u << 20));
	return soda_bench_daemon_start(&stage->server, &soda_bench_mem_server, args, NULL, NULL);
}

static int set_stage(struct stage *stage, bool own_server, bool floor)
{
	struct soda_bench_plan *plan = &stage->plan;
	struct soda_bench_ready ready;
	int err = 0;

	stage->samples = calloc(stage->rounds, sizeof(*stage->samples));
	stage->floor_samples = calloc(stage->rounds, sizeof(*stage->floor_samples));
	if (!stage->samples || !stage->floor_samples)
		return complain("out of memory");
	if (own_server) {
		err = start_server(stage);
		if (err)
			return err;
		plan->server_pid = stage->server.pid;
		snprintf(plan->server, sizeof(plan->server), "%s", stage->server.address);
	}
	err = soda_bench_driver_start(&stage->ours, plan, &ready);
	if (err)
		return err;
	plan->buffer_bytes = ready.buffer_bytes; /* the floor's limit too */
	plan->mode = ready.mode;
	return floor ? start_floor(stage) : 0;
}

static int run_rounds(struct stage *stage, bool floor)
{
	const uint32_t flags = SODA_BENCH_ROUND_WARM | SODA_BENCH_ROUND_MEASURED;
	int err = 0;

	for (uint32_t i = 0; i < stage->rounds && !err; i++) {
		if (floor)
			err = soda_bench_driver_round(&stage->floor, flags,
						      &stage->floor_samples[i]);
		if (!err)
			err = soda_bench_driver_round(&stage->ours, flags, &stage->samples[i]);
	}
	return err;
}

static int run(const struct options *opt)
{
	struct stage stage = { .rounds = opt->rounds };
	int err = make_plan(opt, &stage.plan);

	if (err)
		return SODA_EXIT_USAGE;
	err = set_stage(&stage, !opt->server, opt->floor);
	if (!err)
		err = run_rounds(&stage, opt->floor);
	if (!err) {
		struct soda_bench_run result = {
			.plan = &stage.plan,
			.transport = transport_names[stage.plan.shm],
			.server = stage.plan.server,
			.rounds = opt->rounds,
			.ours = stage.samples,
			.floor = opt->floor ? stage.floor_samples : NULL,
		};

		err = soda_bench_report(&result, opt->json);
	}
	clear_stage(&stage);
	return err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_fault(int argc, char **argv)
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
		code = run(&opt);
	soda_conf_free(&conf, &opt);
	return code;
}
