/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links between agents of a simulation: links.c as it is, its threads as a table, and its
 * connections as calls of the other agent's routing, which are lost by seed: before they arrive, or
 * their answers.  The clock is the simulation's own.  For test_dpu_msg_router.c.
 */
#ifndef SODA_TEST_ROUTER_LINKS_H
#define SODA_TEST_ROUTER_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "routing/jobs.h"

enum { AGENTS_MAX = 64, OUTAGE_MS = 3000 };

struct router_faults {
	uint32_t cut; /* one call of so many is lost; 0: none */
	bool outages; /* agents stop, and links are down, for up to OUTAGE_MS, one at a time */
};

/* draw: a random number below its argument. */
void router_begin(struct soda_msg_jobs *agents, struct router_faults faults,
		  uint64_t (*draw)(uint64_t below));
/* A new job's links; where it has several agents. */
void router_add(struct soda_msg_job *job);
/* One turn of a link, if that has something to do. Whether packets moved. */
bool router_step(void);
/* Whether the agent is stopped now: then its ranks' calls wait, too. */
bool router_stopped(uint32_t agent);
uint64_t router_now_ms(void);
/* After all ranks have left: until all links have ended. */
void router_end(void);
/* What has happened so far. */
struct router_counts {
	uint64_t calls, cuts, outages,
		ahead; /* ahead: calls made while another one was under way */
};
struct router_counts router_counts(void);

#endif
