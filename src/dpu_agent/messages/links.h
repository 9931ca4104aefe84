/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way from this agent to the other agents of a job: a thread for each, which takes packets for
 * that agent's ranks out of their inboxes, and RELAYs them, many together.
 *
 *   wait     until a transfer is full, its first packet has waited for SODA_MSG_LINK_FLUSH_US, a
 *            rank on the blocklist is to be tried again, or there is something to say
 *   load     packets of all ranks in turns, but of one on the blocklist the oldest alone
 *   RELAY    until it is answered; on another connection where one is lost, with the same number
 *   settle   packets that were taken leave their inboxes; ranks whose packets were not are on the
 *            blocklist
 *
 * A packet stays in its inbox until its RELAY is answered, so a connection may be lost at any time.
 * For SODA_MSG_PATIENCE_MS without an answer the job is broken off.
 */
#ifndef SODA_DPU_AGENT_LINKS_H
#define SODA_DPU_AGENT_LINKS_H

#include "dpu_agent/messages/jobs.h"

/* Start the links of a new job, if it has any. Where that fails the job is broken off. */
void soda_msg_links_start(struct soda_msg_job *job);

#endif
