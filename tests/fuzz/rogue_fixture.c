/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The DPU agent (agent.h), for calls.c, in front of a server that answers what the input begins
 * with (rogue.h): what it makes of welcomes, of lists of regions and of all other answers.
 */
#include "agent.h"
#include "calls.h"
#include "rogue.h"

/* Two sessions with their connections: for calls, READs, WRITEs and what is fetched ahead. */
enum { CONNECTIONS = 8 };

/*
 * TCP: over shm:// the agent would refuse regions that it learns of, as nobody passes them.  A
 * WRITE that is acknowledged early would be kept for the next server, while its client waits
 * (calls.c).
 */
void fuzz_service_start(void)
{
	char address[ROGUE_ADDRESS];

	rogue_start(true, address);
	fuzz_agent_start(address, false);
}

void fuzz_service_begin(struct fuzz_input *in)
{
	rogue_begin(in, CONNECTIONS);
}

void fuzz_service_end(void)
{
	rogue_end();
	fuzz_agent_await_idle();
}
