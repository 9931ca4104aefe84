/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for write-backs: what soda_sync(), COLD and the end of an object need. */
#ifndef SODA_HOST_SYNC_H
#define SODA_HOST_SYNC_H

#include <stdint.h>

#include "host_agent/object/region.h"

/*
 * Bring the dirty chunks of [first, first + n) to the server; waits.  0; -ETIMEDOUT:
 * no progress for the fault time-out, or another thread has one of them for so long; the error
 * of a refused WRITE.  What could not be written stays dirty and resident.
 */
int soda_sync_chunks(uint32_t first, uint32_t n);

/*
 * The same for chunks of r, and then wait until what a DPU agent has taken over of them is
 * on the server, and a WRITABLE file in its file.  The errors above and of the
 * control call; -EIO: an agent has died with some of the object's data since the last call.
 */
int soda_sync_range(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why);

/* Wait until the chunk is neither queued nor in flight, at most until deadline_ns. */
void soda_sync_settle(uint32_t id, uint64_t deadline_ns);

#endif
