/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for write-backs: what soda_sync(), COLD and the end of an object need. */
#ifndef SODA_HOST_SYNC_H
#define SODA_HOST_SYNC_H

#include <stdint.h>

/*
 * Bring the dirty chunks of [first, first + n) to the server; waits.  0; -ETIMEDOUT:
 * no progress for the fault time-out; the error of a refused WRITE.  What could not
 * be written stays dirty and resident.
 */
int soda_sync_chunks(uint32_t first, uint32_t n);

/* Wait until the chunk is neither queued nor in flight, at most until deadline_ns. */
void soda_sync_settle(uint32_t id, uint64_t deadline_ns);

#endif
