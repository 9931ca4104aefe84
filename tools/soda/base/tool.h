/* SPDX-License-Identifier: BSD-3-Clause */
/* The program `soda`: its commands, and what all of them use. */
#ifndef SODA_TOOL_H
#define SODA_TOOL_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/conf/conf.h"

/* Exit codes of every command. */
enum { SODA_EXIT_OK = 0, SODA_EXIT_FAILED = 1, SODA_EXIT_USAGE = 2 };

/* argv[0] is the command's own name.  Each returns an exit code. */
int soda_command_bench(int argc, char **argv);
int soda_command_bench_dpu(int argc, char **argv);
int soda_command_bench_fault(int argc, char **argv);
int soda_command_bench_heap(int argc, char **argv);
int soda_command_bench_messages(int argc, char **argv);
int soda_command_bench_move(int argc, char **argv);
int soda_command_bench_node(int argc, char **argv);
int soda_command_bench_pool(int argc, char **argv);
int soda_command_bench_seal(int argc, char **argv);
int soda_command_bench_start(int argc, char **argv);
int soda_command_bench_transport(int argc, char **argv);
int soda_command_doctor(int argc, char **argv);
int soda_command_eval(int argc, char **argv);
int soda_command_graph(int argc, char **argv);
int soda_command_msg(int argc, char **argv);
int soda_command_pool(int argc, char **argv);
int soda_command_report(int argc, char **argv);
int soda_command_run(int argc, char **argv);
int soda_command_seal(int argc, char **argv);
int soda_command_stat(int argc, char **argv);
int soda_command_tenant(int argc, char **argv);
int soda_command_top(int argc, char **argv);

/*
 * A row of a command's table of options, whose values are members of the command's `struct
 * options`: name, letter or 0, type, member, and initializers of other members of struct
 * soda_option.
 */
#define OPTION(name_, letter_, type_, member, ...)                                                 \
	{                                                                                          \
		.name = name_, .letter = letter_, .type = SODA_OPT_##type_,                        \
		.offset = offsetof(struct options, member), __VA_ARGS__                            \
	}

/* The row of a command that prints one JSON object, by soda_json_print(). */
#define JSON_OPTION OPTION("json", 'j', BOOL, json, .help = "Print one JSON object.")

/*
 * Set *values from the defaults, then the environment, then the flags of argv.  Positional
 * arguments may stand between flags; at most max are put into args (which point into argv).
 * Returns how many, or -1 after a message.  --help, --version and --man end the process.
 */
int soda_tool_options(const struct soda_conf *conf, int argc, char **argv, void *values,
		      const char **args, int max);

/*
 * Find the first of these places (paths, absolute or relative to this program's folder; NULL ends
 * the list) where a file or folder is.  False: there is none.
 */
bool soda_tool_find(const char *const *places, char path[PATH_MAX]);

/* A subcommand: its name, and the function that is called with the arguments behind it. */
struct soda_tool_command {
	const char *name;
	int (*run)(int argc, char **argv);
};

/*
 * Run the command that argv[1] names; a NULL name ends the table.  --help prints the usage to
 * standard output; an unknown name prints `none`, that name, and the usage to standard error.
 */
int soda_tool_choose(const struct soda_tool_command *commands, const char *none, const char *usage,
		     int argc, char **argv);

/*
 * Print text that begins in column `indent` and whose other lines do, too, and a line's end: in
 * lines of at most so many columns, but for a word that is longer; columns: 0: in one line.
 */
void soda_tool_wrap(FILE *out, const char *text, unsigned indent, unsigned columns);

/*
 * Describe this machine, for results.  A new reference: cpu, kernel, architecture, processors,
 * memory_bytes, soda, date.
 */
json_t *soda_machine_describe(void);

/*
 * report/report.c.  A Python package (tools/report) makes pages, figures and tables of the JSON
 * that commands write.  Make the page of a file of results, and print the page's name.  0; -ENOENT:
 * the packages that this needs are not installed here; -EIO: it failed.  Both after a message,
 * whose first words are `who`, that says what to do and that the numbers are kept.  At most five
 * minutes.
 */
int soda_report_make(const char *who, const char *json, const char *page);

#endif
