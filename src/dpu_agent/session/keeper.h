/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that take care of sessions for which a service has failed, and of those whose client is
 * not connected.
 *
 *   the keeper   looks at every session, and never waits for the network.  It calls the services'
 *                tick, where paging finds channels that stand still, and takes broken sessions
 * down: closes the client's connections and calls `broken`, so that the client comes back and its
 * HELLO finds nothing of before its hands    SODA_DPU_HANDS threads that may wait for a server, or
 * more. The keeper gives them sessions whose client is not connected: the services' `idle` brings
 * WRITEs that were acknowledged to the server, over new connections if need be; then the session
 * ends, with a BYE to the server if the client has left for good
 *
 * Each member of a pool has SODA_DPU_HANDS_SERVER hands at most, so that one that is silent holds
 * up nobody else's ends; where others need hands meanwhile the keeper starts some more.
 *
 * A session is given to one hand at a time, counts as `busy` until that hand is done, and is not
 * given again for a tick.  A client that comes back meanwhile does not wait for a hand, unless that
 * hand is connecting this session: either takes session->life for that.  The keeper takes life only
 * where no other thread has it.
 */
#ifndef SODA_DPU_AGENT_KEEPER_H
#define SODA_DPU_AGENT_KEEPER_H

#include <stdint.h>

struct soda_sessions;

/* Start the keeper and its hands, and initialise the table's locks. 0, negative errno. */
int soda_keeper_start(struct soda_sessions *all);
/*
 * No client connects any more: wait until all sessions have ended, at most patience_ms, and end the
 * threads.  Sessions that are left lose what was not brought to the server.
 */
void soda_keeper_stop(struct soda_sessions *all, uint32_t patience_ms);

#endif
