/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host agent's side of its session with the memory server (client/server.h): which connections
 * it has, what becomes of objects at a reconnection, and the keeper, the thread that drives the
 * session and alone changes it after start.
 *
 * The server may come back as another instance, without the objects' data.  Then recover.c decides
 * of each chunk: a ZERO chunk stays ZERO; a resident one becomes dirty, because it is the only
 * copy; a REMOTE one becomes LOST, unless it is of a READ_ONLY file that is still the same.
 */
#ifndef SODA_HOST_SESSION_H
#define SODA_HOST_SESSION_H

#include <stdint.h>

#include "host_agent/core/link.h"
#include "transport/api/transport.h"

/*
 * Connect to the server, with so many pairs of data channels, each connection within connect_ms,
 * and start the keeper.  0; errors of soda_server_attempt, and of starting a thread.
 */
int soda_session_open(struct soda_link *link, const char *address, uint32_t pairs, int connect_ms,
		      struct soda_why *why);
/* Objects may lie there from now on: the link is the next of soda_members(). */
void soda_session_publish(const struct soda_link *link);
/* End the keeper, say BYE to the server, close all connections. */
void soda_session_stop(struct soda_link *link);
/* The process is about to end: tell the server to free our regions with the last connection. */
void soda_session_leave(struct soda_link *link);
/* In a fork's child: close the descriptors, and do nothing else. */
void soda_session_forget(struct soda_link *link);

#endif
