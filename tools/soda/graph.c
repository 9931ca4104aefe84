/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda graph`: which of its commands. */
#include <stdio.h>
#include <string.h>

#include "graph_tool.h"

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
	const char *which = argc > 1 ? argv[1] : "";

	if (strcmp(which, "gen") == 0)
		return soda_command_graph_gen(argc - 1, argv + 1);
	if (strcmp(which, "convert") == 0)
		return soda_command_graph_convert(argc - 1, argv + 1);
	if (strcmp(which, "info") == 0)
		return soda_command_graph_info(argc - 1, argv + 1);
	if (strcmp(which, "--help") == 0 || strcmp(which, "-h") == 0) {
		fputs(usage, stdout);
		return SODA_EXIT_OK;
	}
	if (*which)
		fprintf(stderr, "soda graph: no command '%s'\n", which);
	fputs(usage, stderr);
	return SODA_EXIT_USAGE;
}
