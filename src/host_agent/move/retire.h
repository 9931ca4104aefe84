/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks that go for another reason than room: the end of an object, DISCARD, COLD. */
#ifndef SODA_HOST_RETIRE_H
#define SODA_HOST_RETIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"

/*
 * An object is about to go: wait for what is under way in its chunks, drop the
 * resident ones, and make all of them NONE.  Nothing is written back.  A server that leaves
 * something under way for the time of a fault loses its connections.  0.  -EBUSY, or the kernel's
 * error: all is done, but a peer that stands still may yet store there (stuck.h), or some of it is
 * still in memory, so that nothing else may come to lie there.  -ETIMEDOUT: a chunk was in use
 * for too long; the object can be neither used nor freed any more.
 */
int soda_retire_range(uint32_t first, uint32_t n);

/*
 * DISCARD: the chunk's content becomes zeros.  *backed_p: the server holds some of it.  Signals
 * blocked.  -ETIMEDOUT; the kernel's error, where it does not let go of the pages: the chunk
 * has some of its content then, and *backed_p is untouched.
 */
int soda_retire_discard(uint32_t id, uint64_t deadline_ns, bool *backed_p);

/* Drop it if it is clean, and has none of the flags that keep it. Signals blocked. */
void soda_retire_cold(uint32_t id, uint32_t keep);

#endif
