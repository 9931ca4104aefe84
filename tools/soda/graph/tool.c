/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/graph/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda/base/json.h"

#define BAR_WIDTH 40
#define BAR_SECONDS 0.1 /* between two updates */

int soda_graph_tool_fail(const char *command, int ret, const struct soda_graph_error *err)
{
	soda_graph_tool_progress(NULL, NULL, 0);
	fprintf(stderr, "%s: %s\n", command, err->text);
	return ret == -EINVAL || ret == -ENOENT || ret == -ERANGE ? SODA_EXIT_USAGE
								  : SODA_EXIT_FAILED;
}

static void draw(const char *step, double fraction)
{
	static const char full[BAR_WIDTH + 1] = "########################################";
	int done = (int)(fraction * BAR_WIDTH);

	if (done < 0 || done > BAR_WIDTH)
		done = BAR_WIDTH;
	fprintf(stderr, "\r%-15s [%.*s%*s] %3.0f %%", step, done, full, BAR_WIDTH - done, "",
		fraction < 1 ? fraction * 100 : 100);
}

void soda_graph_tool_progress(void *unused, const char *step, double fraction)
{
	static double last;
	static bool drawn;
	double now;

	if (!step && drawn) {
		fprintf(stderr, "\r%*s\r", BAR_WIDTH + 25, "");
		drawn = false;
	}
	if (!step || !isatty(STDERR_FILENO))
		return;
	now = (double)soda_now_ns() / 1e9;
	if (now - last < BAR_SECONDS)
		return;
	last = now;
	drawn = true;
	draw(step, fraction);
}

int soda_graph_tool_report(const char *path, const struct soda_graph_info *info, uint64_t begin_ns,
			   bool json)
{
	double seconds = (double)(soda_now_ns() - begin_ns) / 1e9;

	soda_graph_tool_progress(NULL, NULL, 0);
	if (json)
		return soda_json_print(
			       json_pack("{so sI sI sb sb sf}", "path", soda_json_text_of(path),
					 "vertices", (json_int_t)info->vertices, "edges",
					 (json_int_t)info->edges, "symmetric", info->symmetric,
					 "weighted", info->weighted, "seconds", seconds))
			       ? SODA_EXIT_FAILED
			       : SODA_EXIT_OK;
	printf("%s: %" PRIu64 " vertices, %" PRIu64 " edges%s%s, in %.1f s\n", path, info->vertices,
	       info->edges, info->symmetric ? " (symmetric)" : "",
	       info->weighted ? " with weights" : "", seconds);
	return SODA_EXIT_OK;
}

static const char usage[] = "Usage: soda graph COMMAND [ARGUMENT]...\n"
			    "\n"
			    "Commands:\n"
			    "  gen      generate a random graph\n"
			    "  convert  from one format to another\n"
			    "  info     what is in a file, all of it read and checked\n"
			    "\n"
			    "soda graph COMMAND --help tells its options.\n";

int soda_command_graph(int argc, char **argv)
{
	static const struct soda_tool_command commands[] = {
		{ "gen", soda_command_graph_gen },
		{ "convert", soda_command_graph_convert },
		{ "info", soda_command_graph_info },
		{ NULL, NULL },
	};

	return soda_tool_choose(commands, "soda graph: no command", usage, argc, argv);
}
