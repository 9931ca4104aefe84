/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench seal`: options, rounds, and the report. */
#include "soda/bench/seal/seal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/worker/pattern.h"
#include "soda/bench/worker/summary.h"
#include "soda/bench/worker/worker.h"
#include "soda/stage/daemon.h"
#include "soda/stage/patience.h"

#define WHO "soda bench seal"

static const char *const transport_names[] = { "tcp", "shm", NULL };
static const char *const where_names[] = { "none", "host", "agent", "dpu" };

enum { TCP, SHM };
/* AGENT: through a DPU agent, not sealed; DPU: through one that seals. */
enum { NONE, HOST, AGENT, DPU, WHERES };

/* What one is compared with. */
static int base_of(int where)
{
	return where == DPU ? AGENT : where == HOST ? NONE : where;
}

struct options {
	uint32_t transport, threads, rounds, tampered;
	uint64_t size, chunk;
	char *patterns, *buffer;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("pattern", 'p', LIST, patterns, .arg = "LIST", .def = "rand,rmw",
	       .help = "Orders of the accesses, one after the other: of seq, rand, rmw, zipf, hot "
		       "and alternate."),
	OPTION("threads", 't', UINT, threads, .arg = "N", .def = "2", .min = 1, .max = 256,
	       .help = "Threads that touch the object."),
	OPTION("size", 's', SIZE, size, .arg = "SIZE", .def = "512M", .min = 1u << 20,
	       .max = 1ull << 40, .help = "Size of the object."),
	OPTION("chunk", 'c', SIZE, chunk, .arg = "SIZE", .def = "64K", .min = 4096, .max = 2u << 20,
	       .help = "Chunk size, a power of two."),
	OPTION("buffer", 'b', STRING, buffer, .arg = "SIZE", .def = "1/3",
	       .help = "Page buffer: a size, or a fraction of the object's."),
	OPTION("transport", 0, CHOICE, transport, .arg = "NAME", .def = "tcp",
	       .choices = transport_names,
	       .help = "Transport to the memory servers, which the "
		       "benchmark starts."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "5", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX, .help = "Rounds; the results are their medians."),
	OPTION("tampered", 0, UINT, tampered, .arg = "N", .def = "10000", .min = 5, .max = 1000000,
	       .help = "Blocks that are changed in the server's memory."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "measure what sealed objects cost, and attack them",
	.args = "",
	.description =
		"Processes touch an object on a memory server each, in turns: one without sealing "
		"(none), one that seals (host, SODA_SEAL of soda(7)), one through a DPU agent "
		"(agent), and one through an agent that seals (dpu, --seal of soda-dpu-agent(1)), "
		"which is compared with the one before. To agents it is shm, and tcp from there, "
		"with --transport shm. Every value is "
		"verified. Patterns are those of soda-bench-fault(1). Ratios are medians of the "
		"rounds' own ratios; CPU seconds a GB are the client's, for each GB fetched; what "
		"sealing adds is given for each GB that was encrypted or decrypted.\n\n"
		"Then the server is broken into, by /proc/PID/mem, which needs the right to trace "
		"it. A process fills an object with a text, first without sealing, and the text is "
		"looked for in all that the server has mapped: not sealed it must be found, or the "
		"search is worth nothing; sealed it must not. Then blocks of 4 KiB are changed "
		"there: a bit, another block in its place, the one of an earlier version, one that "
		"is cut, one of zeros, in turns; the process touches each and counts SIGBUS, and "
		"whatever it could read.\n\n"
		"Exits with 1 if a text was found, a changed block was served, or an unchanged one "
		"was not.",
	.epilogue = SODA_PATIENCE_MAN,
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* One pattern. */
struct test {
	struct soda_bench_plan plan;
	struct soda_bench_daemon server[WHERES], agent[WHERES];
	struct soda_bench_driver driver[WHERES];
	struct soda_bench_sample *samples[WHERES];
};

/* The agent, which the process takes for its server. */
static int start_agent(struct test *t, int where, struct soda_bench_plan *plan)
{
	char listen[64] = "tcp://127.0.0.1:0";
	int err;

	if (plan->shm)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-seal-%ld-%s", (long)getpid(),
			 where_names[where]);
	setenv("SODA_DPU_SEAL", where == DPU ? "yes" : "no", 1);
	err = soda_bench_agent_start(&t->agent[where], listen, t->server[where].address,
				     &(struct soda_bench_start){ 0 });
	unsetenv("SODA_DPU_SEAL");
	snprintf(plan->server, sizeof(plan->server), "%s", t->agent[where].address);
	plan->agent = 1;
	return err;
}

static int start(struct test *t, int where)
{
	struct soda_bench_plan plan = t->plan;
	struct soda_bench_ready ready;
	char listen[64] = "tcp://127.0.0.1:0";
	int err;

	if (plan.shm && where < AGENT)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-seal-%ld-%s", (long)getpid(),
			 where_names[where]);
	err = soda_bench_server_start(&t->server[where], listen, plan.bytes + (64u << 20), NULL,
				      &(struct soda_bench_start){ 0 });
	if (err)
		return err;
	plan.server_pid = t->server[where].pid;
	snprintf(plan.server, sizeof(plan.server), "%s", t->server[where].address);
	if (where >= AGENT)
		err = start_agent(t, where, &plan);
	if (err)
		return err;
	setenv("SODA_SEAL", where == HOST ? "1" : "0", 1);
	t->driver[where].name = where_names[where];
	return soda_bench_driver_start(&t->driver[where], &plan, &ready);
}

static int measure(struct test *t, uint32_t rounds)
{
	const uint32_t flags = SODA_BENCH_ROUND_WARM | SODA_BENCH_ROUND_MEASURED;
	int err = 0;

	for (int w = 0; w < WHERES && !err; w++) {
		t->samples[w] = calloc(rounds, sizeof(*t->samples[w]));
		err = t->samples[w] ? start(t, w) : -ENOMEM;
	}
	for (uint32_t i = 0; i < rounds && !err; i++)
		for (int w = 0; w < WHERES && !err; w++)
			err = soda_bench_driver_round(&t->driver[w], flags, &t->samples[w][i]);
	for (int w = 0; w < WHERES; w++) {
		soda_bench_driver_stop(&t->driver[w]);
		soda_bench_daemon_stop(&t->agent[w]);
		soda_bench_daemon_stop(&t->server[w]);
	}
	return err;
}

/* CPU seconds of the client that sealing adds, for each GB that went either way. */
static double added(const struct test *t, int where, uint32_t rounds)
{
	double each[SODA_BENCH_ROUNDS_MAX];

	for (uint32_t i = 0; i < rounds; i++) {
		const struct soda_bench_sample *plain = &t->samples[base_of(where)][i];
		const struct soda_bench_sample *sealed = &t->samples[where][i];
		double bytes = (double)sealed->counters.bytes_fetched +
			       (double)sealed->counters.bytes_written_back;

		each[i] = bytes > 0
				  ? ((double)sealed->client_cpu_ns - (double)plain->client_cpu_ns) /
					    bytes
				  : NAN;
	}
	return soda_bench_median(each, rounds);
}

/* Of sealing alone: what the tables have more. */
static uint64_t metadata(const struct soda_bench_summary sums[WHERES], int where)
{
	uint64_t more = sums[where].sum.metadata_bytes, plain = sums[NONE].sum.metadata_bytes;

	return more > plain ? more - plain : 0;
}

static void add_runs(const struct test *t, const struct options *opt, json_t *runs)
{
	struct soda_bench_summary sums[WHERES];
	double ratios[SODA_BENCH_RATES];
	char name[64];

	for (int w = 0; w < WHERES; w++)
		soda_bench_summarise(t->samples[w], opt->rounds, (uint32_t)opt->chunk, &sums[w]);
	for (int w = 0; w < WHERES; w++) {
		json_t *run = json_object();
		int base = base_of(w);

		if (base != w)
			soda_bench_compare(t->samples[w], t->samples[base], opt->rounds,
					   (uint32_t)opt->chunk, ratios);
		soda_json_set_text(run, "where", where_names[w]);
		soda_json_set_text(run, "transport", transport_names[opt->transport]);
		soda_json_set_text(run, "pattern",
				   soda_bench_pattern_name(&t->plan, name, sizeof(name)));
		soda_json_set_real(run, "gb_per_s", sums[w].middle[SODA_BENCH_GB]);
		soda_json_set_real(run, "ratio_gb_per_s", base != w ? ratios[SODA_BENCH_GB] : 1.0);
		soda_json_set_real(run, "cpu_s_per_gb_client", sums[w].middle[SODA_BENCH_CLIENT]);
		soda_json_set_real(run, "ratio_cpu_s_per_gb_client",
				   base != w ? ratios[SODA_BENCH_CLIENT] : 1.0);
		soda_json_set_real(run, "cpu_s_added_per_gb_sealed",
				   base != w ? added(t, w, opt->rounds) : 0.0);
		soda_json_set_count(run, "metadata_bytes", metadata(sums, w));
		json_array_append_new(runs, run);
	}
}

static int run_pattern(const struct options *opt, const char *pattern, json_t *runs)
{
	struct test t = { .plan = { .threads = opt->threads,
				    .chunk_bytes = (uint32_t)opt->chunk,
				    .passes = 1,
				    .bytes = opt->size & ~(uint64_t)7,
				    .seed = 1,
				    .shm = opt->transport == SHM } };
	int err = 0;

	if (!strncmp(pattern, "trace", strlen("trace"))) {
		fprintf(stderr, WHO ": --pattern: a trace is for soda bench fault\n");
		err = -EINVAL;
	}
	if (!err)
		err = soda_bench_plan_fill(WHO, pattern, false, opt->buffer, NULL, &t.plan);
	if (!err && !(err = measure(&t, opt->rounds)))
		add_runs(&t, opt, runs);
	for (int w = 0; w < WHERES; w++)
		free(t.samples[w]);
	return err;
}

static int run_patterns(const struct options *opt, json_t *runs)
{
	char *list = strdup(opt->patterns), *rest = list, *pattern;
	int err = list ? 0 : -ENOMEM;

	while (!err && (pattern = strsep(&rest, ",")))
		err = run_pattern(opt, pattern, runs);
	free(list);
	return err;
}

static bool holds(const struct soda_seal_attack *a)
{
	return a->found_plain && !a->found_sealed && a->detected == a->tampered && !a->spoilt;
}

static int print(const struct options *opt, json_t *runs, const struct soda_seal_attack *a)
{
	json_t *out, *run;
	size_t i;

	if (opt->json) {
		out = json_pack("{s:s, s:i, s:O}", "format", "soda-bench-seal", "version", 1,
				"runs", runs);
		soda_json_set_count(out, "plaintext_found", a->found_sealed);
		soda_json_set_count(out, "plaintext_found_unsealed", a->found_plain);
		soda_json_set_count(out, "tampered", a->tampered);
		soda_json_set_count(out, "detected", a->detected);
		soda_json_set_count(out, "served", a->served);
		soda_json_set_count(out, "logged", a->lines);
		return soda_json_print(out);
	}
	printf("%-8s %-6s %8s %6s %14s %16s %12s\n", "pattern", "seals", "GB/s", "ratio",
	       "CPU s/GB client", "s added/GB sealed", "metadata");
	json_array_foreach(runs, i, run)
	{
		printf("%-8s %-6s %8.3f %6.2f %15.3f %17.3f %12llu\n",
		       soda_json_text(run, "pattern"), soda_json_text(run, "where"),
		       json_number_value(json_object_get(run, "gb_per_s")),
		       json_number_value(json_object_get(run, "ratio_gb_per_s")),
		       json_number_value(json_object_get(run, "cpu_s_per_gb_client")),
		       json_number_value(json_object_get(run, "cpu_s_added_per_gb_sealed")),
		       (unsigned long long)soda_json_count(run, "metadata_bytes"));
	}
	printf("text found on the server: %llu times not sealed, %llu times sealed\n"
	       "blocks changed there: %u; detected: %u; served: %u; logged: %u\n",
	       (unsigned long long)a->found_plain, (unsigned long long)a->found_sealed, a->tampered,
	       a->detected, a->served, a->lines);
	return fflush(stdout);
}

static int run(const struct options *opt)
{
	json_t *runs = json_array();
	struct soda_seal_attack attack;
	int err = run_patterns(opt, runs);

	if (!err)
		err = soda_seal_attack_run(opt->transport == SHM, opt->tampered, &attack);
	if (!err)
		err = print(opt, runs, &attack);
	json_decref(runs);
	if (!err && !holds(&attack)) {
		fprintf(stderr,
			WHO ": sealing does not hold, or the attack was none: see the numbers\n");
		err = -EBADMSG;
	}
	return err == -EINVAL ? SODA_EXIT_USAGE : err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_seal(int argc, char **argv)
{
	struct options opt = { 0 };
	int code = SODA_EXIT_USAGE;

	if (soda_tool_options(&conf, argc, argv, &opt, NULL, 0) >= 0)
		code = run(&opt);
	soda_conf_free(&conf, &opt);
	return code;
}
