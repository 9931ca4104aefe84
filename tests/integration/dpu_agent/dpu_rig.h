/* SPDX-License-Identifier: BSD-3-Clause */
/* A memory server and a DPU agent before it, both on tcp. */
#ifndef SODA_TEST_DPU_RIG_H
#define SODA_TEST_DPU_RIG_H

#include <stdint.h>

#include "lib/proc.h"

struct rig {
	struct server server, agent;
	char dir[64];
	char server_address[128], agent_address[128];
	const char *mode; /* an option of the agent, or NULL */
};

/* mode: an option of the agent, or NULL. */
void rig_up(struct rig *r, const char *mode);
/* agent_status: what it exits with, if it runs. */
void rig_down(struct rig *r, int agent_status);

/* One of the two anew; listen: its address of before, so that the other one finds it. */
void rig_start_server(struct rig *r, const char *listen);
void rig_start_agent(struct rig *r, const char *listen);

/* A statistic of a daemon. */
uint64_t rig_stat(const char *address, const char *name);
/* Await, for at most a minute, that it has at least this value. */
void rig_await_stat(const char *address, const char *name, uint64_t least);

#endif
