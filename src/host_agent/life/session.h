/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The relation to the memory server: control connection, client id and epoch,
 * reconnection.  The keeper thread owns it after start.
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

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"
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

/*
 * A connection failed with err; the keeper sees to it.  Of the control connection: with its lock
 * held (session_impl.h), for a later report would be taken for one of the next connection. AS.
 */
void soda_session_report(int err);
/* Whether it is UP. AS. */
bool soda_session_up(void);
/* Wait until it is; -ETIMEDOUT.  Time that the process stood still for does not count. AS. */
int soda_session_wait(uint64_t deadline_ns);
/* "tcp://10.0.0.1:7001: connection refused", for messages. AS. */
const char *soda_session_trouble(void);
const char *soda_session_peer(void);
/*
 * Goes up when a server is met that has none of our data, before what is resident becomes dirty
 * for that, and again when all of it is, however many attempts that takes: odd in between.
 */
uint32_t soda_session_restarts(void);
/* Chunks were asked for ahead of any fault: the keeper collects the answers as they come. AS. */
void soda_session_want_collector(void);

/* There are keys to an agent's static cache: the keeper makes the channels read by them. */
void soda_session_want_keyed(void);
/* Wait until it has, or has tried, no longer than connecting may take. */
void soda_session_await_keyed(void);

/*
 * Control calls for an object; they outlast a reconnection, within the fault time-out.  One that is
 * not answered within it is -ETIMEDOUT, and costs all connections: they are made anew, because the
 * server does nothing of the old ones after that.
 */
int soda_session_open_region(struct soda_region *r, struct soda_why *why);
/* 0 also where nobody answers: the server is told when it is there again.  Else it keeps it. */
int soda_session_close_region(struct soda_region *r, struct soda_why *why);
/* Whether the server may still have a region of this number, which no object has. */
bool soda_session_owes_close(uint16_t id);
int soda_session_sync_region(struct soda_region *r, struct soda_why *why);
/*
 * DISCARD of chunks that nobody fetches or writes back before this returns.  Never twice, and
 * best effort: a server that refuses is not asked again for the region.  When it returns the
 * server has done it, or never will after a WRITE that follows.  A server that does not answer
 * within the time of a fault loses its connections.
 */
void soda_session_discard(struct soda_region *r, uint32_t first, uint32_t n);
/* *advice_p: what the operator's rules say of the object, or SODA_NORMAL. */
int soda_session_name_region(struct soda_region *r, int *advice_p, struct soda_why *why);
/*
 * SODA_STATIC_CACHE, for what was synced since soda_sync_losses() was that number.  As
 * soda_conn_advise; -EAGAIN: it is another one, so that the server may lack some of it.  The
 * server was not asked.
 */
int soda_session_freeze_region(struct soda_region *r, struct soda_wire_advise *advise,
			       uint32_t losses, struct soda_static_map **map_p,
			       struct soda_why *why);
/* Other advice. As soda_conn_advise. */
int soda_session_advise_region(struct soda_region *r, struct soda_wire_advise *advise,
			       struct soda_static_map **map_p, struct soda_why *why);

#endif
