/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movement, a service of the agent beside paging: fetches data out of programs' memory, or takes it
 * from them, and shows it to others as the steps of named buffers in the agent's memory.
 * docs/internals/movement.md is its design, include/soda_move.h the programs' side.
 *
 *   movement.c   the service's hooks and calls
 *   tickets.c    what a client has handed over, and the threads that fetch it
 *   ring.c       lists and notices in memory that is shared with a client
 *   source.c     another process's memory
 *   areas.c      memory of the agent's that clients compute in
 *   buffers.c    named buffers
 *   memory.c     memory files for both
 */
#ifndef SODA_DPU_AGENT_MOVEMENT_H
#define SODA_DPU_AGENT_MOVEMENT_H

#include "daemon/metrics.h"
#include "dpu_agent/movement/tickets.h"

/*
 * Start movement, with so much memory for buffers, and register it for these sessions.  *m is
 * zeroed memory.  0, negative errno: nothing has been started.
 */
int soda_movement_start(struct soda_movement *m, struct soda_sessions *all, uint64_t budget);
/* When the sessions have ended. Nothing happens where it was not started. */
void soda_movement_stop(struct soda_movement *m);

/* Say its statistics, where it was started. */
void soda_movement_walk(struct soda_movement *m, struct soda_metrics *metrics);

#endif
