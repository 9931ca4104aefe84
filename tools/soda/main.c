/* SPDX-License-Identifier: BSD-3-Clause */
/* The program `soda`: which command. */
#include <stdio.h>
#include <string.h>

#include "soda/base/tool.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "bench", soda_command_bench, "measure page faults and start-up" },
	{ "doctor", soda_command_doctor, "check what this machine has of what SODA needs" },
	{ "eval", soda_command_eval, "run the paper's evaluation on this machine" },
	{ "graph", soda_command_graph, "generate, convert and describe graphs" },
	{ "msg", soda_command_msg, "run a program of many ranks that send each other messages" },
	{ "pool", soda_command_pool, "show a pool of memory servers, and drain one of them" },
	{ "report", soda_command_report, "make pages and tables from results" },
	{ "run", soda_command_run, "run an unmodified program on fabric memory" },
	{ "seal", soda_command_seal, "make keys for sealed files, and print such files" },
	{ "stat", soda_command_stat, "show the counters of a running program or of a server" },
	{ "tenant", soda_command_tenant, "make, rotate and remove the tenants of a memory server" },
	{ "top", soda_command_top, "watch programs, agents and servers live" },
};

#define COMMANDS_N (sizeof(commands) / sizeof(commands[0]))

static const char description[] =
	"The tools of SODA, memory that lives across the network.\n"
	"\n"
	"soda bench fault measures page faults, soda bench dpu what a DPU agent changes, soda "
	"bench heap allocation, soda bench move how a DPU agent fetches data out of a program, "
	"soda bench node what a store for the node saves, soda bench pool a pool of memory servers "
	"and what its redundancy costs, soda bench seal what sealed objects cost, soda bench start "
	"the time to the first fault, soda bench "
	"transport the transports by themselves, soda eval graph applications in "
	"every mode, soda doctor checks what this machine has of what SODA needs, soda graph "
	"generates, converts and describes graphs, soda msg run starts the ranks of a program that "
	"sends messages, soda pool status and soda pool events show a pool of memory servers and "
	"what changes in it, soda pool drain moves what a server has to the others, soda report "
	"makes pages and tables of results, soda run runs a "
	"program "
	"that knows nothing of SODA, soda seal makes keys for sealed files and prints such files, "
	"soda "
	"stat shows the counters of a running program or of a "
	"memory server, soda tenant makes the tenants of a memory server and their keys, soda top "
	"watches several of them live. Each command has a manual page of its own and answers "
	"--help.";

static void print_usage(FILE *out)
{
	fputs("Usage: soda COMMAND [ARGUMENT]...\n\nCommands:\n", out);
	for (size_t i = 0; i < COMMANDS_N; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
	fputs("\nsoda COMMAND --help tells a command's options.\n"
	      "soda --version prints the version.\n",
	      out);
}

static int print_man(void)
{
	const struct soda_conf conf = {
		.program = "soda",
		.summary = "tools for fabric-attached memory",
		.args = "COMMAND [ARGUMENT]...",
		.description = description,
		.epilogue = ".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage.\n"
			    ".SH SEE ALSO\n"
			    ".BR soda\\-bench\\-dpu (1),\n.BR soda\\-bench\\-fault (1),\n"
			    ".BR soda\\-bench\\-heap (1),\n"
			    ".BR soda\\-bench\\-node (1),\n"
			    ".BR soda\\-bench\\-pool (1),\n"
			    ".BR soda\\-bench\\-seal (1),\n"
			    ".BR soda\\-bench\\-start (1),\n.BR soda\\-bench\\-transport (1),\n"
			    ".BR soda\\-doctor (1),\n.BR soda\\-eval (1),\n"
			    ".BR soda\\-graph\\-convert (1),\n.BR soda\\-graph\\-gen (1),\n"
			    ".BR soda\\-graph\\-info (1),\n.BR soda\\-msg\\-run (1),\n.BR "
			    "soda\\-pool\\-drain (1),\n.BR soda\\-pool\\-events (1),\n.BR "
			    "soda\\-pool\\-status (1),\n.BR "
			    "soda\\-report (1),\n.BR soda\\-run "
			    "(1),\n.BR soda\\-seal\\-cat (1),\n.BR soda\\-stat (1),\n.BR "
			    "soda\\-tenant\\-add (1),\n.BR "
			    "soda\\-top (1),\n.BR "
			    "soda\\-mem\\-server (1)\n",
	};

	soda_conf_man(&conf, stdout);
	return fflush(stdout) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	for (size_t i = 0; i < COMMANDS_N; i++)
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
		print_usage(stdout);
		return SODA_EXIT_OK;
	}
	if (strcmp(name, "--version") == 0) {
		puts("soda " SODA_VERSION);
		return SODA_EXIT_OK;
	}
	if (strcmp(name, "--man") == 0)
		return print_man();
	if (*name)
		fprintf(stderr, "soda: no command '%s'\n", name);
	print_usage(stderr);
	return SODA_EXIT_USAGE;
}
