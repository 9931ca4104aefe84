/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench move`: options, and what is measured. */
#include "soda/bench/move/move.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf/conf.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/worker/worker.h"
#include "soda/stage/guard.h"
#include "soda/stage/patience.h"

#define WHO "soda bench move"

/* a KiB is a number for each of 128 columns */
enum { PAGE = 4096, KIB = 1024, DEPTH_MAX = SODA_MOVE_TICKETS_MAX };

static const uint64_t bytes_max = 1ull << 36;

struct options {
	char *transports, *device, *host_sizes, *sizes, *depths, *arrow_sizes, *columns;
	uint32_t calls, rounds, pieces, memory;
	uint64_t ms;
	bool json;
};

enum { MEMORY_SHARED, MEMORY_OWN };
static const char *const memories[] = { [MEMORY_SHARED] = "shared", [MEMORY_OWN] = "own", NULL };

static const struct soda_option option_table[] = {
	OPTION("transports", 't', LIST, transports, .arg = "LIST", .def = "shm,tcp",
	       .help = "How the program reaches the agent, one after the other: shm, tcp, verbs."),
	OPTION("device", 'D', STRING, device, .arg = "ADDRESS",
	       .help = "With --transports verbs: an IP address of this machine's RDMA device."),
	OPTION("memory", 'm', CHOICE, memory, .arg = "WHOSE", .def = "shared", .choices = memories,
	       .help = "Where the program has its data: shared: of soda_move_alloc(), which on one "
		       "machine the agent maps, too; own: its own memory, which the agent reads."),
	OPTION("host-sizes", 0, LIST, host_sizes, .arg = "SIZE,...",
	       .def = "128,4K,64K,1M,16M,256M,1G",
	       .help = "Bytes of a step, for the time of a call; none: not measured. The agent has "
		       "memory for all of them at once, the program for the largest."),
	OPTION("calls", 'c', UINT, calls, .arg = "N", .def = "20", .min = 1,
	       .max = SODA_BENCH_MOVE_CALLS_MAX, .help = "Calls of each of these sizes."),
	OPTION("sizes", 's', LIST, sizes, .arg = "SIZE,...", .def = "16K,128K,1M,16M,64M",
	       .help = "Bytes of a step, whole pages of 4096, for throughput; none: not "
		       "measured."),
	OPTION("depths", 'd', LIST, depths, .arg = "N,...", .def = "1,4",
	       .help = "Tickets that are under way at a time, at most 64."),
	OPTION("pieces", 'p', UINT, pieces, .arg = "N", .def = "1", .min = 1,
	       .max = SODA_MOVE_PIECES_MAX,
	       .help = "Pieces that a step is handed over in, of equal size; what is too small "
		       "for as many is one."),
	OPTION("arrow-sizes", 'a', LIST, arrow_sizes, .arg = "SIZE,...", .def = "128K,1M,64M",
	       .help = "Bytes of all columns of a table of Arrow, whole KiB; none: not measured."),
	OPTION("columns", 0, LIST, columns, .arg = "N,...", .def = "1,4,16",
	       .help = "Columns of such a table, at most 128."),
	OPTION("time", 0, TIME_MS, ms, .arg = "TIME", .def = "300ms", .min = 1, .max = 600000,
	       .help = "How long either side runs in a round."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "3", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX,
	       .help = "Rounds of each point of throughput, both sides in turns."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "measure how a DPU agent fetches data out of a program",
	.args = "",
	.description =
		"A program hands data to an agent with soda_move(3): what a call costs it, and how "
		"fast the data come, beside the plain transport. The benchmark is the program; it "
		"starts and ends an agent and a memory server, and reads steps back as a consumer: "
		"one that is not what was handed over ends the benchmark.\n"
		"\n"
		"Time of a call: that of soda_move() by itself, which returns before the data are "
		"fetched; one ticket at a time, the sizes in turns. The first call of each size is "
		"not counted. CPU us to end is the CPU time of the whole process, the library's "
		"thread included, from the call until the ticket has ended. The correlation is "
		"Pearson's over all calls, with the size in bytes and with its logarithm.\n"
		"\n"
		"Throughput: --depths tickets are kept under way; then as long the plain "
		"transport. By shm that is process_vm_readv(2) of the same pieces, by the "
		"benchmark itself, out of its own memory into a memory file's; by tcp WRITEs to "
		"the memory server, of the same size, at most 1 MiB, as many bytes of them under "
		"way, at most 32 requests; by verbs RDMA READs of the same size by ib_read_bw of "
		"the "
		"package perftest, as many at a time and at least two, or where that is not "
		"installed "
		"READs from the memory server; the column plain says which. GB/s are medians over "
		"the rounds, and the ratio is the "
		"median of the rounds' ratios. GB are 1e9 bytes. The first round is not counted.\n"
		"\n"
		"Tables of Arrow: columns of 64-bit integers, in five ways. stream, file, structs: "
		"placed on their way, as an IPC stream, an IPC file, structures of the C data "
		"interface; host: serialised by the program, then moved; agent: moved, then "
		"serialised by the agent. Plain are the same bytes as one piece; all six in turns, "
		"two tables under way. Host CPU us is the CPU time of the whole process for a "
		"table, agent CPU s/GB that of the agent for a GB.\n"
		"\n"
		"The column way says whether the agent has copied memory that it shares with the "
		"program (shared), has read the program's (reads), or the library has sent it "
		"(stream): always by tcp, and by verbs, where the agent's adapter reads; by shm "
		"with --memory own where the kernel does not let "
		"the agent read (Yama's ptrace_scope, say).\n"
		"\n"
		"JSON: format soda-bench-move, version 1. host_correlation is the correlation with "
		"the size of that transport where it is farthest from 0, host_correlations has "
		"all. A value that is not known, as the correlation of one size, is null.",
	.epilogue = SODA_PATIENCE_MAN
	".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage.\n"
	".SH EXAMPLES\n.nf\nsoda bench move \\-\\-transports shm \\-\\-sizes 1M \\-\\-depths 1,8\n"
	"soda bench move \\-\\-sizes none \\-\\-arrow\\-sizes none \\-\\-calls 200 "
	"\\-\\-json\n.fi\n"
	".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-bench\\-transport (1),\n"
	".BR soda\\-dpu\\-agent (1),\n.BR soda_move (3)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int complain(const char *text)
{
	fprintf(stderr, WHO ": %s\n", text);
	return -EINVAL;
}

/* The parts of a list one after the other; NULL: the end. */
static const char *next_part(char **rest)
{
	const char *part = "";

	while (part && !*part)
		part = strsep(rest, ", ");
	return part;
}

static int parse_sizes(char *text, uint64_t unit, uint64_t *list, unsigned *n_p)
{
	const char *part;

	if (strcmp(text, "none") == 0)
		return 0;
	while ((part = next_part(&text))) {
		uint64_t *bytes = &list[*n_p];

		if (*n_p == SODA_BENCH_MOVE_LIST_MAX || soda_parse_size(part, bytes) || !*bytes ||
		    *bytes > bytes_max || *bytes % unit)
			return -EINVAL;
		(*n_p)++;
	}
	return *n_p ? 0 : -EINVAL;
}

static int parse_counts(char *text, unsigned long max, uint32_t *list, unsigned *n_p)
{
	const char *part;

	while ((part = next_part(&text))) {
		char *end;
		unsigned long value = strtoul(part, &end, 10);

		if (*n_p == SODA_BENCH_MOVE_LIST_MAX || *end || !value || value > max)
			return -EINVAL;
		list[(*n_p)++] = (uint32_t)value;
	}
	return *n_p ? 0 : -EINVAL;
}

static int parse_transports(char *text, bool *list)
{
	const char *part;
	bool any = false;

	while ((part = next_part(&text))) {
		int t = 0;

		while (t < SODA_BENCH_MOVE_TRANSPORTS &&
		       strcmp(part, soda_bench_move_transports[t]) != 0)
			t++;
		if (t == SODA_BENCH_MOVE_TRANSPORTS)
			return -EINVAL;
		list[t] = any = true;
	}
	return any ? 0 : -EINVAL;
}

/* The lists of opt are cut into their parts. */
static int make_plan(const struct options *opt, struct soda_bench_move_plan *plan)
{
	*plan = (struct soda_bench_move_plan){ .calls = opt->calls,
					       .rounds = opt->rounds,
					       .pieces = opt->pieces,
					       .shared = opt->memory == MEMORY_SHARED,
					       .device = opt->device,
					       .seconds = (double)opt->ms / 1e3 };
	if (parse_transports(opt->transports, plan->transports))
		return complain("--transports: of shm, tcp and verbs");
	if (plan->transports[SODA_BENCH_MOVE_VERBS] && (!opt->device || !*opt->device))
		return complain(
			"--transports verbs: --device has to say the RDMA device's address");
	if (parse_sizes(opt->host_sizes, 1, plan->host_sizes, &plan->host_n))
		return complain("--host-sizes: sizes up to 64G, at most 16 of them, or none");
	if (parse_sizes(opt->sizes, PAGE, plan->sizes, &plan->sizes_n))
		return complain("--sizes: whole pages of 4096, up to 64G, at most 16 of them, or "
				"none");
	if (parse_counts(opt->depths, DEPTH_MAX, plan->depths, &plan->depths_n))
		return complain("--depths: numbers from 1 to 64, at most 16 of them");
	if (parse_sizes(opt->arrow_sizes, KIB, plan->arrow_sizes, &plan->arrow_n))
		return complain("--arrow-sizes: whole KiB, up to 64G, at most 16 of them, or none");
	if (parse_counts(opt->columns, SODA_BENCH_MOVE_COLUMNS_MAX, plan->columns,
			 &plan->columns_n))
		return complain("--columns: numbers from 1 to 128, at most 16 of them");
	if (!plan->host_n && !plan->sizes_n && !plan->arrow_n)
		return complain("--host-sizes none, --sizes none and --arrow-sizes none: nothing "
				"to measure");
	return 0;
}

struct work {
	struct soda_bench_move_plan plan;
	bool json;
};

static int measure_host(struct soda_bench_move_stage *stage, json_t *out)
{
	struct soda_bench_move_host rows[SODA_BENCH_MOVE_LIST_MAX];
	struct soda_bench_move_correlation correlation;
	int err = soda_bench_move_host(stage, rows, &correlation);

	if (!err)
		soda_bench_move_report_host(stage, rows, &correlation, out);
	return err;
}

static int measure_throughput(struct soda_bench_move_stage *stage, json_t *out)
{
	const struct soda_bench_move_plan *plan = stage->plan;
	struct soda_bench_move_rate rate;
	bool first = true;
	int err = 0;

	for (unsigned s = 0; s < plan->sizes_n; s++)
		for (unsigned d = 0; d < plan->depths_n && !err; d++) {
			err = soda_bench_move_throughput(stage, plan->sizes[s], plan->depths[d],
							 &rate);
			if (!err)
				soda_bench_move_report_rate(stage, &rate, first, out);
			first = false;
		}
	if (!err && !out && plan->sizes_n)
		putchar('\n');
	return err;
}

static int measure_arrow(struct soda_bench_move_stage *stage, json_t *out)
{
	const struct soda_bench_move_plan *plan = stage->plan;
	struct soda_bench_move_arrow rows[SODA_BENCH_MOVE_STRATEGIES];
	bool first = true;
	int err = 0;

	for (unsigned s = 0; s < plan->arrow_n; s++)
		for (unsigned c = 0; c < plan->columns_n && !err; c++) {
			err = soda_bench_move_arrow(stage, plan->columns[c], plan->arrow_sizes[s],
						    rows);
			if (!err)
				soda_bench_move_report_arrow(stage, rows, first, out);
			first = false;
		}
	if (!err && !out && plan->arrow_n)
		putchar('\n');
	return err;
}

static int measure(struct soda_bench_move_stage *stage, json_t *out)
{
	int err = soda_bench_move_stage_open(stage);

	if (!err && stage->plan->host_n)
		err = measure_host(stage, out);
	if (!err)
		err = measure_throughput(stage, out);
	if (!err)
		err = measure_arrow(stage, out);
	soda_bench_move_stage_close(stage);
	return err;
}

/* The benchmark's work, in the child of soda_bench_guard_run(). */
static int run(void *arg, const struct soda_bench_guarded *guarded)
{
	const struct work *work = arg;
	json_t *out = work->json ? soda_bench_move_report_new(&work->plan) : NULL;
	int err = 0;

	for (int t = 0; t < SODA_BENCH_MOVE_TRANSPORTS && !err; t++) {
		struct soda_bench_move_stage stage = { .plan = &work->plan,
						       .owner = guarded->owner,
						       .transport = t };

		if (work->plan.transports[t])
			err = measure(&stage, out);
	}
	if (out && !err)
		err = soda_json_print(out);
	else
		json_decref(out);
	return err || fflush(stdout) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_move(int argc, char **argv)
{
	struct options opt = { 0 };
	struct work work;
	int code = SODA_EXIT_USAGE;

	if (soda_tool_options(&conf, argc, argv, &opt, NULL, 0) >= 0 &&
	    !make_plan(&opt, &work.plan)) {
		work.json = opt.json;
		code = soda_bench_guard_run(&(const struct soda_bench_work){ .run = run }, &work);
	}
	soda_conf_free(&conf, &opt);
	return code;
}
