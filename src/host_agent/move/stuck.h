/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of connections that have ended, whose peer stood still while it installed a page: an
 * agent that was stopped may go on at any time, and then store to that chunk.  Until it has gone
 * on, or is gone, these chunks stay FETCHING with their credits, named by no channel, and
 * whoever wants one fails in his time.  The keeper asks again at each of its ticks.
 */
#ifndef SODA_HOST_STUCK_H
#define SODA_HOST_STUCK_H

#include "host_agent/move/channel.h"

/*
 * The channel's connection and all of its requests are ours from now on.  The keeper's, the
 * channel's lock held.  false: there is no room, and nothing has changed.
 */
bool soda_stuck_keep(struct soda_fetch_channel *ch);

/* The keeper's tick: what can be revoked by now goes back to where it was, or where it was sent. */
void soda_stuck_look(void);

/* The server has lost the chunk: it will be LOST. false: it is not among them. */
bool soda_stuck_lose(uint32_t id);
/* The chunk's object goes: it will be NONE, and nothing may come to lie there. The same. */
bool soda_stuck_orphan(uint32_t id);
bool soda_stuck_has(uint32_t id);

/* The end: nobody touches a chunk any more. */
void soda_stuck_end(void);
/* In a fork's child: fn for each connection. */
void soda_stuck_forget(void (*fn)(struct soda_conn *conn));

#endif
