/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: options, and the whole from plan to report. */
#include "soda/eval/eval.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "graph/format/triple.h"
#include "soda/base/tool.h"
#include "soda/eval/results.h"
#include "soda/stage/guard.h"

#define WHO "soda eval"

static const char *const transport_names[] = { "shm", "tcp", NULL };

enum { SHM, TCP };

struct options {
	uint32_t threads, repeat, iterations, transport, dpu_cpu, timeout_ms;
	uint64_t chunk, cache, limit;
	char *out, *graph, *apps, *modes, *link;
	bool quick, paper, alone, fresh, keep, report;
};

static const struct soda_option option_table[] = {
	OPTION("quick", 0, BOOL, quick,
	       .help = "One medium-sized graph, and the runs beside a background process only "
		       "once: under five minutes on two processors that do nothing else."),
	OPTION("paper", 0, BOOL, paper,
	       .help = "The paper's values: 24 threads, a node of 16 GiB, 1 GiB of cache in the "
		       "agent, chunks of 64 KiB, a page buffer of a third, its five applications; "
		       "on graphs given with --graph. Refused, saying what is missing, where the "
		       "machine has not what that takes."),
	OPTION("out", 'o', STRING, out, .arg = "DIR", .def = "soda-eval",
	       .help = "Folder for results, figures and report; made if it is not there. An "
		       "evaluation that was interrupted goes on from what it has. It may be made "
		       "in parts: commands that differ only in --graph, --apps, --modes, --repeat, "
		       "--quick and --alone add to the same folder, and the report has all of "
		       "them."),
	OPTION("graph", 'g', LIST, graph, .arg = "GRAPH",
	       .help = "A file of any format that soda graph convert reads, or PATH of what soda "
		       "graph gen PATH wrote, taken as symmetric; or rmat:SCALE:EDGES, "
		       "uniform:SCALE:EDGES: generated, 2^SCALE vertices, so many edges drawn. "
		       "Several, separated by commas, or the option again. Default: "
		       "rmat:24:290000000, with --quick rmat:18:4000000."),
	OPTION("apps", 'a', LIST, apps, .arg = "LIST", .def = "bfs,pagerank,radii,bc,components",
	       .choices = soda_eval_app_names,
	       .help = "Applications of soda-ligra: these, kcore, mis, triangle, bellman-ford."),
	OPTION("modes", 'm', LIST, modes, .arg = "LIST",
	       .def = "ssd,ssd+readahead,ssd+advice,memserver,base,agg,async,static,dynamic,"
		      "dynamic-paper,static+dynamic,agg+async,store,all",
	       .choices = soda_eval_mode_names,
	       .help = "What is compared; dram, which says what the others may have, is always "
		       "there."),
	OPTION("repeat", 'r', UINT, repeat, .arg = "N", .def = "3", .min = 1, .max = 1000,
	       .help = "Runs of each kind, interleaved; the median is shown."),
	OPTION("threads", 't', UINT, threads, .arg = "N", .min = 1, .max = 1024,
	       .help = "Threads of an application. Default: the processors."),
	OPTION("iterations", 0, UINT, iterations, .arg = "N", .def = "3", .min = 1, .max = 100000,
	       .help = "PageRank's."),
	OPTION("alone", 0, BOOL, alone,
	       .help = "No runs beside a background process: without Figures 8 and 9."),
	OPTION("chunk", 'c', SIZE, chunk, .arg = "SIZE", .def = "64K", .min = 4096, .max = 2u << 20,
	       .help = "Chunk size, a power of two."),
	OPTION("memory", 0, SIZE, limit, .arg = "SIZE", .min = 64 << 10,
	       .help = "Limit of the capped node, for each process. Default: a third of what the "
		       "application computes on, and 8 MiB and 1 MiB a thread for what is not "
		       "data; 12 MiB more where the kernel gives huge pages unasked "
		       "(transparent_hugepage: always)."),
	OPTION("agent-cache", 0, SIZE, cache, .arg = "SIZE", .min = 128u << 10,
	       .help = "Of the agent's dynamic cache. Default: a sixteenth of the limit, as in the "
		       "paper, at least 8 MiB. The static one has at least the room for vertex "
		       "data."),
	OPTION("host-transport", 0, CHOICE, transport, .arg = "NAME", .def = "shm",
	       .choices = transport_names,
	       .help = "Between application and agent: shm or tcp. To the memory server it is "
		       "tcp."),
	OPTION("link", 0, STRING, link, .arg = "RATE",
	       .help = "Put the memory server behind an emulated link of this rate, such as 2gbit, "
		       "and compare its byte counters with the agents'. Needs root."),
	OPTION("dpu-cpu", 0, UINT, dpu_cpu, .arg = "PCT", .min = 10, .max = 100000,
	       .help = "Cap the agent at this share of a processor. Needs root."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "60m", .min = 1000,
	       .help = "Of one process; a run that takes longer is invalid."),
	OPTION("fresh", 0, BOOL, fresh, .help = "Forget results that are in the folder."),
	OPTION("report", 0, BOOL, report,
	       .help = "Run nothing: write results, figures and report of what is in the folder, "
		       "whatever the other options say; status 1 where they cannot be drawn."),
	OPTION("keep", 0, BOOL, keep, .help = "Keep the graphs, DIR/work, when all is done."),
};

static const char description[] =
	"Runs graph applications (soda-ligra) on a compute node whose memory is capped by a "
	"cgroup, in every mode: in local memory (dram, not capped), on files of the local disk "
	"(ssd: mmap; ssd+readahead: with the disk\'s own readahead; ssd+advice: advised as fabric "
	"memory is), on a memory server over tcp (memserver), and through a DPU agent: plain "
	"(base), with each of its optimisations alone (agg, async, static: vertex data in the "
	"static cache, dynamic: edge data in the dynamic cache, dynamic-paper: the same with the "
	"paper's policy, random, and its model), with both caches (static+dynamic), with the first "
	"two (agg+async), "
	"with these two and a store for the graph that the node's processes share (store: as large "
	"as what their page buffers then leave of what they have in the other modes; needs "
	"--host-transport shm), with all but the store (all). "
	"Every result is verified by an independent serial check, or is byte for byte what that "
	"has found right before. Writes runs.jsonl, as they end; results.json, results.csv, "
	"figures as SVG, and all of it in one file, report.html. Where what draws is not installed "
	"(soda report), there are the numbers, and the page is made of results.json later or "
	"elsewhere. At the end a table in the terminal has, for each application, its time in "
	"local memory (DRAM), on a memory server and in the fastest of the agent's modes, how many "
	"times as long that took, and how many runs were verified.\n\n"
	"Server and agent run outside of the cap, as on other machines, but on the same "
	"processors. A run is invalid after a kill by the limit, or if the anonymous and shared "
	"memory of its capped processes exceeds it. Without the right to make a memory cgroup the "
	"runs are not capped, which the report says.";

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "the paper's evaluation on this machine",
	.args = "",
	.description = description,
	.epilogue = ".SH EXIT STATUS\n0 all runs valid and verified, 1 not, 2 wrong usage or a "
		    "machine that has not what was asked for.\n"
		    ".SH SEE ALSO\n"
		    ".BR soda (1),\n.BR soda\\-bench\\-dpu (1),\n.BR soda\\-graph\\-gen (1),\n"
		    ".BR soda\\-report (1),\n"
		    ".BR soda\\-dpu\\-agent (1),\n.BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* Set the plan's applications; changes the text. */
static int choose_apps(char *text, struct soda_eval_plan *plan)
{
	char *word;

	while ((word = strsep(&text, ","))) {
		int app = soda_eval_name_find(soda_eval_app_names, word);

		if (app < 0) {
			fprintf(stderr, WHO ": --apps: no application '%s'; see --help\n", word);
			return -EINVAL;
		}
		for (uint32_t i = 0; i < plan->apps_n; i++)
			if (plan->apps[i] == (uint32_t)app)
				app = -1;
		if (app >= 0)
			plan->apps[plan->apps_n++] = (uint32_t)app;
	}
	return 0;
}

static int choose_modes(char *text, struct soda_eval_plan *plan)
{
	unsigned set = 1u << SODA_EVAL_DRAM;
	char *word;

	while ((word = strsep(&text, ","))) {
		int mode = soda_eval_name_find(soda_eval_mode_names, word);

		if (mode < 0) {
			fprintf(stderr, WHO ": --modes: no mode '%s'; see --help\n", word);
			return -EINVAL;
		}
		set |= 1u << mode;
	}
	for (int mode = 0; mode < SODA_EVAL_MODES; mode++)
		if (set >> mode & 1)
			plan->modes[plan->modes_n++] = (enum soda_eval_mode)mode;
	return 0;
}

static int choose_graphs(char *text, struct soda_eval_plan *plan)
{
	char *word;
	int err = 0;

	while (!err && (word = strsep(&text, ","))) {
		if (plan->graphs_n == SODA_EVAL_GRAPHS_MAX) {
			fprintf(stderr, WHO ": --graph: at most %d\n", SODA_EVAL_GRAPHS_MAX);
			return -EINVAL;
		}
		err = soda_eval_graph_name(&plan->graphs[plan->graphs_n], word, plan->work);
		for (uint32_t i = 0; i < plan->graphs_n && !err; i++)
			if (!strcmp(plan->graphs[i].name, plan->graphs[plan->graphs_n].name)) {
				fprintf(stderr, WHO ": --graph %s: the name is taken\n", word);
				err = -EINVAL;
			}
		plan->graphs_n++;
	}
	return err;
}

static void take_values(const struct options *opt, struct soda_eval_plan *plan)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	plan->threads = opt->threads ? opt->threads : (uint32_t)(processors > 1 ? processors : 1);
	plan->repeat = opt->repeat;
	plan->iterations = opt->iterations;
	plan->timeout_ms = opt->timeout_ms;
	plan->chunk_bytes = opt->chunk;
	plan->cache_bytes = opt->cache;
	plan->limit_bytes = opt->limit;
	plan->cpu_pct = opt->dpu_cpu;
	plan->background = !opt->alone;
	plan->shm = opt->transport == SHM;
	plan->quick = opt->quick;
	plan->paper = opt->paper;
}

/* Make both folders; absolute paths, because the memory server exports one of them. */
static int make_folders(const char *out, char out_path[PATH_MAX], char work_path[PATH_MAX])
{
	if ((mkdir(out, 0755) && errno != EEXIST) || !realpath(out, out_path)) {
		fprintf(stderr, WHO ": --out %s: %s\n", out, strerror(errno));
		return -EINVAL;
	}
	if (snprintf(work_path, PATH_MAX, "%s/work", out_path) >= PATH_MAX - 64 ||
	    (mkdir(work_path, 0755) && errno != EEXIST)) {
		fprintf(stderr, WHO ": %s/work: %s\n", out_path, strerror(errno));
		return -EINVAL;
	}
	return 0;
}

static int make_plan(struct options *opt, struct soda_eval_plan *plan)
{
	static char small[] = "rmat:18:4000000", large[] = "rmat:24:290000000";
	int err;

	take_values(opt, plan);
	if (opt->chunk & (opt->chunk - 1)) {
		fprintf(stderr, WHO ": --chunk: expected a power of two\n");
		return -EINVAL;
	}
	err = choose_apps(opt->apps, plan);
	if (!err)
		err = choose_modes(opt->modes, plan);
	if (!err && (opt->graph || !opt->paper))
		err = choose_graphs(opt->graph ? opt->graph : opt->quick ? small : large, plan);
	if (!err && opt->paper)
		err = soda_eval_paper_plan(plan);
	if (!err && opt->link)
		err = soda_bench_link_plan(opt->link, getpid(), &plan->link);
	return err ? err : soda_eval_plan_make(plan);
}

static void remove_graphs(const struct soda_eval_plan *plan)
{
	for (uint32_t i = 0; i < plan->graphs_n; i++)
		soda_graph_triple_remove(plan->graphs[i].path);
	rmdir(plan->work);
}

/* The command as it was typed, for the report. */
static void put_together(char *text, size_t bytes, int argc, char **argv)
{
	size_t n = (size_t)snprintf(text, bytes, "soda");

	for (int i = 0; i < argc && n < bytes; i++)
		n += (size_t)snprintf(text + n, bytes - n, " %s", argv[i]);
}

static int evaluate(struct options *opt, const char *command)
{
	static char out_path[PATH_MAX], work_path[PATH_MAX];
	static struct soda_eval_plan plan;
	struct soda_eval_drive drive = { .plan = &plan,
					 .command = command,
					 .begin = opt->report  ? SODA_EVAL_LOOK
						  : opt->fresh ? SODA_EVAL_FRESH
							       : SODA_EVAL_GO_ON };
	static const struct soda_bench_work work = { soda_eval_drive_run, soda_eval_drive_clean };
	int err = make_folders(opt->out, out_path, work_path), code;

	plan.out = out_path;
	plan.work = work_path;
	if (!err)
		err = opt->report ? 0 : make_plan(opt, &plan);
	if (err) {
		rmdir(work_path);
		return err == -EPERM || err == -ENOMEM ? SODA_EXIT_FAILED : SODA_EXIT_USAGE;
	}
	soda_eval_drive_prepare(&drive);
	code = soda_bench_guard_run(&work, &drive);
	if (code <= SODA_EXIT_FAILED && !opt->keep)
		remove_graphs(&plan);
	rmdir(work_path); /* unless it is needed */
	free(plan.runs);
	return code;
}

int soda_command_eval(int argc, char **argv)
{
	struct options opt = { 0 };
	const char *unused;
	char command[512];
	int code = SODA_EXIT_USAGE;

	put_together(command, sizeof(command), argc, argv);
	if (soda_tool_options(&conf, argc, argv, &opt, &unused, 0) == 0)
		code = evaluate(&opt, command);
	soda_conf_free(&conf, &opt);
	return code;
}
