/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between the ranks of jobs, routed: what ranks, and other routers of their jobs, ask for.
 * A DPU agent has a router, for all jobs that come to it (dpu_agent/messages/), and so has a
 * program that routes its own messages (messages/router.h).  docs/internals/messages.md is the
 * design, include/soda_msg.h the programs' side.  Who listens, and whose connections these are, is
 * not known here.
 *
 *   calls.c      calls, each of them checked, and counted
 *   jobs.h       jobs, their ranks, phases and collectives; routing (jobs_impl.h: in which files)
 *   links.c      the way to other routers
 *   inbox.c      what waits for one rank
 *   rings.c      memory that a rank on this machine has mapped
 *   near.c       memory that another router on this machine has
 *
 * A router in a DPU agent is called "the agent" in the sentences that a user reads, and in the
 * comments here; what is said of it holds of every router.
 */
#ifndef SODA_ROUTING_CALLS_H
#define SODA_ROUTING_CALLS_H

#include "routing/jobs.h"

struct soda_router {
	struct soda_msg_jobs jobs;
	_Atomic uint64_t messages, bytes, packets, refused, pulls; /* pulls: answers with packets */
	_Atomic uint64_t relayed;				   /* messages of other routers */
};

/*
 * A client: one of the two connections of a rank, or another router.  Zeroed memory, of which the
 * owner sets the first two.
 */
struct soda_router_client {
	struct soda_router *router;
	const struct soda_peer_info *info; /* who it is; stays as long as the client */
	/* the router's, and so below */
	struct soda_wire_msg_challenge challenge; /* of the next JOIN or LINK, where asked */
	bool asked;
	struct soda_msg_job
		*job; /* NULL: before JOIN. Set by the one control connection's thread */
	struct soda_msg_link *link; /* not NULL: another router */
	uint32_t rank;
	enum soda_msg_role role;
	struct soda_inbox_view view; /* of who pulls: what this connection was shown */
	bool over;		     /* it has left, or is lost */
	bool kept; /* its reference to the job is the job's, in case it comes back */
};

/* With so much memory for inboxes. *r is zeroed memory. Starts a thread. 0, negative errno. */
int soda_router_start(struct soda_router *r, uint64_t budget, const struct soda_msg_tuning *tuning);
/* The memory that a router needs whose jobs have one rank here, of so many. */
uint64_t soda_router_budget(uint32_t ranks);
/*
 * All ranks here have left their jobs: wait until links have said so, for SODA_MSG_GOODBYE_MS at
 * most, while other routers may still call.
 */
void soda_router_drain(struct soda_router *r);
/*
 * When all clients have been forgotten; waits for links to end, at most SODA_MSG_PATIENCE_MS and
 * a little. Nothing happens where it was not started.
 */
void soda_router_stop(struct soda_router *r);

/*
 * A call of enum soda_messages_msg, as soda_service.call: body is not trusted.  Waits at most
 * SODA_MSG_AWAIT_MS.  One thread at a time for a client.
 */
int soda_router_call(struct soda_router_client *c, int type, const void *body, size_t bytes,
		     bool shares, struct soda_reply *reply);
/* The client has said goodbye. */
void soda_router_leave(struct soda_router_client *c);
/*
 * Its connection is lost: a rank's client may come back, for SODA_MSG_PATIENCE_MS, unless stopping.
 * Nothing after soda_router_leave(), and nothing a second time.
 */
void soda_router_lose(struct soda_router_client *c, bool stopping);
/* Nobody calls for the client any more, and its memory may be freed then. */
void soda_router_forget(struct soda_router_client *c);

#endif
