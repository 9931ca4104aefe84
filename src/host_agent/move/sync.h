/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for write-backs: what soda_sync(), COLD and the end of an object need. */
#ifndef SODA_HOST_SYNC_H
#define SODA_HOST_SYNC_H

#include <stdint.h>

#include "host_agent/object/region.h"

/*
 * Write the dirty chunks of [first, first + n) back and wait for the acknowledgments.  0;
 * -ETIMEDOUT: for the fault time-out no write-back was answered, or another thread had one of the
 * chunks BUSY or FETCHING; the error of a refused WRITE.  What could not be written stays dirty and
 * resident.
 */
int soda_sync_chunks(uint32_t first, uint32_t n);

/*
 * soda_sync_chunks() for chunks of r, and then wait until unacknowledged ones are on the server,
 * and until a WRITABLE file's content is in that file.  Errors of soda_sync_chunks() and of the
 * control call; -EIO: since the last call an agent or a server has ended with some of the object's
 * data.
 */
int soda_sync_range(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why);

/* Wait until the chunk is neither queued nor in flight, at most until deadline_ns. */
void soda_sync_settle(uint32_t id, uint64_t deadline_ns);

#endif
