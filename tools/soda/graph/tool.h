/* SPDX-License-Identifier: BSD-3-Clause */
/* What the commands of `soda graph` share. */
#ifndef SODA_GRAPH_TOOL_H
#define SODA_GRAPH_TOOL_H

#include "graph/build.h"
#include "soda/base/tool.h"

/* As soda_command_*(). */
int soda_command_graph_gen(int argc, char **argv);
int soda_command_graph_convert(int argc, char **argv);
int soda_command_graph_info(int argc, char **argv);

/* The sentence on stderr; returns the exit code: bad input is bad usage. */
int soda_graph_tool_fail(const char *command, int ret, const struct soda_graph_error *err);

/* A bar on stderr, where that is a terminal: soda_graph_build's progress.  NULL step: take it away.
 */
void soda_graph_tool_progress(void *unused, const char *step, double fraction);

/*
 * The line on stdout about a graph that was written, or one JSON object; begin_ns: soda_now_ns()
 * before that.  The command's exit code.
 */
int soda_graph_tool_report(const char *path, const struct soda_graph_info *info, uint64_t begin_ns,
			   bool json);

#endif
