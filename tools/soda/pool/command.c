/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda pool`: which of its commands. */
#include "soda/base/tool.h"
#include "soda/pool/look.h"

int soda_command_pool(int argc, char **argv)
{
	static const struct soda_tool_command commands[] = {
		{ "add", soda_command_pool_add },
		{ "drain", soda_command_pool_drain },
		{ "events", soda_command_pool_events },
		{ "rebalance", soda_command_pool_rebalance },
		{ "status", soda_command_pool_status },
		{ NULL, NULL },
	};

	return soda_tool_choose(
		commands, "soda pool: no command",
		"Usage: soda pool COMMAND [ARGUMENT]...\n\n"
		"Commands:\n"
		"  add        tell running programs of a server more, or of a new address\n"
		"  drain      move what a server has to the others\n"
		"  events     print what changes in a pool, as it happens\n"
		"  rebalance  move what lies there to servers with more free\n"
		"  status     show the servers of a pool and the redundancy of what "
		"is there\n\n"
		"soda pool COMMAND --help tells its options.\n",
		argc, argv);
}
