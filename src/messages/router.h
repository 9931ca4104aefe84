/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A router in the program's own process (SODA_MSG_ROUTING=process): the same routing as an agent's
 * (routing/calls.h), by threads of each rank's process.  It listens where the routers of other
 * ranks find it, and for its own rank, which reaches it by shm.
 *
 * Its threads are those of a listener, a link for each other rank, and one that watches; they take
 * no signal.  The child of a fork has none of them.
 */
#ifndef SODA_MESSAGES_ROUTER_H
#define SODA_MESSAGES_ROUTER_H

#include "transport/api/transport.h"

struct soda_msg_router;

/*
 * Start one for a job of so many ranks.  listen: where other routers find it, tcp, verbs or shm;
 * NULL: there are no others.  0; -EADDRINUSE, -EINVAL and others of soda_listener_open(); -ENOMEM,
 * -EAGAIN: no memory or no threads are left.
 */
int soda_msg_router_open(const char *listen, uint32_t ranks, struct soda_msg_router **router_p,
			 struct soda_why *why);
/* Where this process finds it. Stays as long as the router. */
const char *soda_msg_router_address(const struct soda_msg_router *r);
/*
 * When the rank has left its job, and closed its connections.  Waits until the other routers have
 * heard that: milliseconds mostly, SODA_MSG_PATIENCE_MS and a second where one is out of reach.
 * NULL: nothing.
 */
void soda_msg_router_close(struct soda_msg_router *r);

#endif
