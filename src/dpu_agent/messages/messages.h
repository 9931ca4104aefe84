/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages, a service of the agent beside paging and movement: its sessions are the clients of a
 * router (routing/calls.h), whose statistics are among the agent's.
 */
#ifndef SODA_DPU_AGENT_MESSAGES_H
#define SODA_DPU_AGENT_MESSAGES_H

#include "daemon/metrics.h"
#include "dpu_agent/session/services.h"
#include "routing/calls.h"

/*
 * Start a router with so much memory for inboxes, and register the service for these sessions.  *m
 * is zeroed memory.  When the sessions have ended: soda_router_stop().  0, negative errno: nothing
 * has been started.
 */
int soda_messages_start(struct soda_router *m, struct soda_sessions *all, uint64_t budget,
			const struct soda_msg_tuning *tuning);
/* Say its statistics, where it was started. */
void soda_messages_walk(struct soda_router *m, struct soda_metrics *metrics);

#endif
