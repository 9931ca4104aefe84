/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host agent's side of its session with the memory server (client/server.h): which connections
 * it has, what becomes of objects at a reconnection, and the keeper, the thread that drives the
 * session and alone changes it after start.
 *
 * The server may come back as another instance, without our anonymous data.
 * Then recover.h decides chunk by chunk: ZERO and resident chunks stay, resident ones as dirty,
 * because theirs is the only copy; REMOTE ones become LOST, except those of
 * READ_ONLY files that are still the same.
 */
#ifndef SODA_HOST_SESSION_H
#define SODA_HOST_SESSION_H

#include <stdint.h>

#include "host_agent/core/link.h"
#include "transport/api/transport.h"

/*
 * Connect, start the keeper.  pairs: of data channels.  Errors of
 * soda_conn_connect, and of starting a private server.
 */
int soda_session_start(struct soda_link *link, const char *address, uint32_t pairs,
		       struct soda_why *why);
/* End the keeper, say BYE to the server, close all connections. */
void soda_session_stop(struct soda_link *link);
/* The process is about to end: tell the server to free our regions with the last connection. */
void soda_session_leave(struct soda_link *link);
/* In a fork's child: close the descriptors, and do nothing else. */
void soda_session_forget(struct soda_link *link);

#endif
