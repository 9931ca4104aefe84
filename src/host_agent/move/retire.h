/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking chunks away for another reason than room: the end of an object, DISCARD, COLD. */
#ifndef SODA_HOST_RETIRE_H
#define SODA_HOST_RETIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"

/*
 * An object is about to be freed: wait until nothing is under way in its chunks, drop the resident
 * ones without writing them back, and make all of them NONE.  When a READ or WRITE is not answered
 * within the time of a fault the connections are closed, which ends it.  0.
 * -EBUSY: done, but a stopped peer may still store to a chunk (stuck.h); the kernel's error: done,
 * but some pages stay in memory; after either no other object may be placed at these addresses.
 * -ETIMEDOUT: a chunk was in use for too long; the object can be neither used nor freed any more.
 */
int soda_retire_range(uint32_t first, uint32_t n);

/*
 * DISCARD: the chunk's content becomes zeros.  *backed_p: the server holds a copy of the old
 * content. Signals blocked.  0; -ETIMEDOUT; the kernel's error, which has not dropped all pages:
 * the chunk keeps some of its content, and *backed_p is untouched.
 */
int soda_retire_discard(uint32_t id, uint64_t deadline_ns, bool *backed_p);

/*
 * Drop the chunk if it is CLEAN, not under way, and has none of the flags in `keep`. Signals
 * blocked.
 */
void soda_retire_cold(uint32_t id, uint32_t keep);

#endif
