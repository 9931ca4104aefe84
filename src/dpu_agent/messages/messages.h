/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages, a service of the agent beside paging and movement: packets of messages that ranks of a
 * job push, and others pull.  docs/internals/messages.md is its design, include/soda_msg.h the
 * programs' side.
 *
 *   messages.c   the service's hooks and calls
 *   jobs.h       jobs, their ranks, phases and collectives; routing (jobs_impl.h: in which files)
 *   links.c      the way to other agents
 *   inbox.c      what waits for one rank
 *   rings.c      memory that a rank on this machine has mapped
 *   near.c       memory that another agent on this machine has
 */
#ifndef SODA_DPU_AGENT_MESSAGES_H
#define SODA_DPU_AGENT_MESSAGES_H

#include "daemon/metrics.h"
#include "dpu_agent/messages/jobs.h"
#include "dpu_agent/session/services.h"

struct soda_messages {
	struct soda_msg_jobs jobs;
	_Atomic uint64_t messages, bytes, packets, refused, pulls; /* pulls: answers with packets */
	_Atomic uint64_t relayed;				   /* messages of other agents */
};

/*
 * Start the service, with so much memory for inboxes, and register it for these sessions.  *m is
 * zeroed memory.  0, negative errno: nothing has been started.
 */
int soda_messages_start(struct soda_messages *m, struct soda_sessions *all, uint64_t budget,
			const struct soda_msg_tuning *tuning);
/* When the sessions have ended. Nothing happens where it was not started. */
void soda_messages_stop(struct soda_messages *m);

/* Say its statistics, where it was started. */
void soda_messages_walk(struct soda_messages *m, struct soda_metrics *metrics);

#endif
