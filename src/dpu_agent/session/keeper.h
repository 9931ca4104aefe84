/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keeper sees to sessions of which a service has failed and to those that no client is
 * connected to.
 *
 *   the keeper   looks at every session, and never waits for the network: it finds channels that
 *                stand still, and takes down in place what is broken, on both sides, so that
 *                the client comes back and its HELLO finds nothing of before
 *   its hands    SODA_DPU_HANDS threads that wait for the server in its place.  A session without a
 *                client is given to them: what that has left behind, acknowledged, is
 *                brought to the server, over new connections if need be; then the session
 *                ends, with a BYE if the client has left for good
 *
 * A session is given once at a time, is `busy` until a hand has seen to it, and rests for a tick
 * then.  A client that comes back meanwhile does not wait for the hands, unless one of them
 * connects this very session just then; whoever is first at session->life does it.  The keeper
 * takes life only where it is free.
 */
#ifndef SODA_DPU_AGENT_KEEPER_H
#define SODA_DPU_AGENT_KEEPER_H

#include <stdint.h>

struct soda_sessions;

/* 0, negative errno. */
int soda_keeper_start(struct soda_sessions *all);
/*
 * No client connects any more: wait until all sessions have ended, at most patience_ms;
 * the others lose what they have.  Ends the thread.
 */
void soda_keeper_stop(struct soda_sessions *all, uint32_t patience_ms);

#endif
