/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a DPU agent owes: chunks whose WRITEs it has acknowledged and may not have
 * brought to the server yet.  Until it has, only the agent holds their content, and
 * the server's copy is an old one; if the agent dies they are lost, and must be
 * known (recover.c).  Two bits a chunk:
 *
 *   a WRITE is acknowledged -> NOTED --- the agent is asked how far it is ---> ASKED
 *   NOTED <--- the connection failed --- ASKED --- it is as far as that ---> nothing owed
 *
 * An agent that acknowledges late, or none, owes nothing: no bit is ever set.
 */
#ifndef SODA_HOST_OWED_H
#define SODA_HOST_OWED_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/api/transport.h"

/* Reserve the bits of all chunks. -ENOMEM. */
int soda_owed_start(void);
/* Give them back: of so many chunks. */
void soda_owed_undo(uint64_t chunks);

/* A WRITE of the chunk was acknowledged. AS. */
void soda_owed_note(uint32_t chunk);
/* Of [first, first + n): is anything owed? */
bool soda_owed_any(uint32_t first, uint32_t n);
/* The chunks are nobody's any more. */
void soda_owed_forget(uint32_t first, uint32_t n);

/* Memory that the bits take. */
uint64_t soda_owed_bytes(void);

/*
 * What follows is for who has the control connection's lock.  NOTED -> ASKED before
 * a request that waits for the agent, and afterwards: nothing owed, or NOTED again.
 */
void soda_owed_begin(uint32_t first, uint32_t n);
void soda_owed_end(uint32_t first, uint32_t n, bool written);
/* Ask, where something is owed; does not wait for the WRITEs. 0, or an error of the connection. */
int soda_owed_ask(struct soda_conn *control, int timeout_ms);

/*
 * Connected anew, to soda_wire_welcome.agent; nothing of the connections before is under
 * way.  True: to another one, so that what was owed is lost; then for each chunk
 * soda_owed_is, and soda_owed_buried at the end.
 */
bool soda_owed_meet(uint32_t agent);
bool soda_owed_is(uint32_t chunk);
void soda_owed_buried(void);
/*
 * Goes up when an agent's death is seen, and again when all that it owed is LOST, or dirty
 * once more: odd in between.
 */
uint32_t soda_owed_deaths(void);

/*
 * A number that is another one each time a peer has ended with what it had acknowledged, and again
 * when what was resident of that is dirty again: what was synced before may not be on the server.
 */
uint32_t soda_owed_losses(void);

#endif
