/* SPDX-License-Identifier: BSD-3-Clause */
/* The program `soda`: one file a command. */
#ifndef SODA_TOOL_H
#define SODA_TOOL_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "base/conf/conf.h"

/* Exit codes of every command. */
enum { SODA_EXIT_OK = 0, SODA_EXIT_FAILED = 1, SODA_EXIT_USAGE = 2 };

/* argv[0] is the command's own name.  Each returns an exit code. */
int soda_command_bench(int argc, char **argv);
int soda_command_bench_dpu(int argc, char **argv);
int soda_command_bench_fault(int argc, char **argv);
int soda_command_bench_heap(int argc, char **argv);
int soda_command_bench_start(int argc, char **argv);
int soda_command_bench_transport(int argc, char **argv);
int soda_command_eval(int argc, char **argv);
int soda_command_graph(int argc, char **argv);
int soda_command_report(int argc, char **argv);
int soda_command_run(int argc, char **argv);
int soda_command_stat(int argc, char **argv);
int soda_command_top(int argc, char **argv);

/*
 * A row of a command's table of options, whose values are members of the command's `struct
 * options`: name, letter or 0, type, member, and of struct soda_option what else it has.
 */
#define OPTION(name_, letter_, type_, member, ...)                                                 \
	{                                                                                          \
		.name = name_, .letter = letter_, .type = SODA_OPT_##type_,                        \
		.offset = offsetof(struct options, member), __VA_ARGS__                            \
	}

/*
 * Defaults, environment, flags into values; positional arguments may stand between
 * flags.  Up to max of them land in args (owned by argv).  Returns how many, or -1
 * after a message.  --help, --version and --man exit.
 */
int soda_tool_options(const struct soda_conf *conf, int argc, char **argv, void *values,
		      const char **args, int max);

/*
 * What is at the first of these places, absolute or as seen from this program's folder, where there
 * is something; NULL ends them.  False: nowhere.
 */
bool soda_tool_find(const char *const *places, char path[PATH_MAX]);

/* A command of a command: its name, and what is called with the arguments behind it. */
struct soda_tool_command {
	const char *name;
	int (*run)(int argc, char **argv);
};

/*
 * Run the command that argv[1] names; a NULL name ends the table.  Usage goes to standard output
 * where it was asked for, else to standard error, behind `none` and the name that there is not.
 */
int soda_tool_choose(const struct soda_tool_command *commands, const char *none, const char *usage,
		     int argc, char **argv);

/* What machine this is, for results.  A new reference: cpu, kernel, architecture, processors,
 * memory_bytes, soda, date. */
json_t *soda_machine_describe(void);

/*
 * report/report.c.  Pages, figures and tables are made by a Python package (tools/report) of the
 * JSON that commands write.  Make the page of a file of results; its name goes to standard output.
 * 0; -ENOENT: what that needs is not installed here; -EIO: it failed.  Both after a message that
 * says what to do, and that the numbers are kept; who: its first words.  At most five minutes.
 */
int soda_report_make(const char *who, const char *json, const char *page);

#endif
