/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory server and a DPU agent before it, both on tcp.  Each function fails the running cmocka
 * test where something goes wrong.
 */
#ifndef SODA_TEST_DPU_RIG_H
#define SODA_TEST_DPU_RIG_H

#include <stdint.h>

#include "lib/proc.h"

struct rig {
	struct server server, agent; /* agent.pid 0: the test has ended it */
	char dir[64]; /* of the server's files; removed at the end, with "file" in it */
	char server_address[128], agent_address[128];
	const char *mode; /* an option of the agent, or NULL */
};

/* Start both; mode as in the struct, and kept there for rig_start_agent(). */
void rig_up(struct rig *r, const char *mode);
/* End both by SIGTERM, the agent first. agent_status: what it exits with, if it runs. */
void rig_down(struct rig *r, int agent_status);

/*
 * One of the two anew.  listen: its address of before, so that the other one finds it; or
 * tcp://127.0.0.1:0.
 */
void rig_start_server(struct rig *r, const char *listen);
void rig_start_agent(struct rig *r, const char *listen);

#endif
