/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of broken connections whose peer, an agent, was stopped while it installed a chunk. Such
 * an agent may go on at any time, and then stores to that chunk.  Until it has gone on, or has
 * ended, the connection's chunks stay FETCHING with their credits, and no channel has them: a fault
 * on one fails with a time-out.  The keeper tries to revoke the requests again at each of its
 * ticks.
 */
#ifndef SODA_HOST_STUCK_H
#define SODA_HOST_STUCK_H

#include "host_agent/move/channel.h"

/*
 * Take the channel's connection over, with all of its requests.  The keeper alone calls this, and
 * holds the channel's lock.  false: there is no room, and nothing has changed.
 */
bool soda_stuck_keep(struct soda_fetch_channel *ch);

/*
 * The keeper, at each tick: chunks whose requests can be revoked by now become what they were
 * before, or what soda_stuck_lose() or soda_stuck_orphan() has said; their connections are closed.
 */
void soda_stuck_look(void);

/* The server has lost the chunk: it will become LOST. false: the chunk is not stuck. */
bool soda_stuck_lose(uint32_t id);
/*
 * The chunk's object is being freed: the chunk will become NONE, and until then the caller must not
 * place another object there.  false: the chunk is not stuck.
 */
bool soda_stuck_orphan(uint32_t id);
bool soda_stuck_has(uint32_t id);

/* The runtime's end, when no thread touches a chunk any more: close the connections. */
void soda_stuck_end(void);
/* In a fork's child: call fn for each connection. */
void soda_stuck_forget(void (*fn)(struct soda_conn *conn));

#endif
