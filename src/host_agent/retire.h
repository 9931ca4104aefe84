/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks that go for another reason than room: the end of an object, DISCARD, COLD. */
#ifndef SODA_HOST_RETIRE_H
#define SODA_HOST_RETIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/thread.h"

/*
 * An object is about to go: wait for what is under way in its chunks, drop the
 * resident ones, and make all of them NONE.  Nothing is written back.  A server that leaves
 * something under way for the time of a fault loses its connections.
 */
void soda_retire_range(uint32_t first, uint32_t n);

/*
 * DISCARD: the chunk's content becomes zeros.  *backed_p: the server holds some of it.  Signals
 * blocked.  -ETIMEDOUT.
 */
int soda_retire_discard(uint32_t id, uint64_t deadline_ns, bool *backed_p);

/* Drop it if it is clean, and has none of the flags that keep it. Signals blocked. */
void soda_retire_cold(struct soda_thread *t, uint32_t id, uint32_t keep);

#endif
