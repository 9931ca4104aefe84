/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keeper of the link to the memory server (core/link.h): client id and epoch, connections,
 * reconnection.  The keeper thread owns all of it after start.
 *
 *   UP ----- a connection fails, or the server hangs up ----> DOWN
 *   DOWN --- all connections broken, control HELLO with the next epoch, regions
 *            checked or opened anew, data connections made --> UP
 *
 * The server may come back as another instance, without our anonymous data.
 * Then, chunk by chunk: ZERO and resident ones live on, resident ones as dirty,
 * because theirs is the only copy; REMOTE ones are LOST, except those of
 * READ_ONLY files that are still the same.
 */
#ifndef SODA_HOST_SESSION_H
#define SODA_HOST_SESSION_H

#include <stdint.h>

#include "transport/api/transport.h"

/*
 * Connect, start the keeper.  pairs: of data channels.  Errors of
 * soda_conn_connect, and of starting a private server.
 */
int soda_session_start(const char *address, uint32_t pairs, struct soda_why *why);
/* Say goodbye, end the keeper, close everything. */
void soda_session_stop(void);
/* The process is about to end: the server frees everything with the last connection. */
void soda_session_leave(void);
/* In a fork's child: close the descriptors, nothing else. */
void soda_session_forget(void);

#endif
