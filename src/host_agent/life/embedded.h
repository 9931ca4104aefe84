/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The private memory server of a process for which no server is named.  It is a
 * process of its own, not our child as wait(2) sees it, reached over shm, and ends
 * with us: by the end-of-file on a pipe whose other end only we hold.
 */
#ifndef SODA_HOST_EMBEDDED_H
#define SODA_HOST_EMBEDDED_H

#include <stddef.h>

#include "transport/api/transport.h"

/*
 * Start it.  program: its path, NULL to look beside the library and in the PATH.
 * address receives where it listens.  -ENOENT, -ETIMEDOUT, -EIO...
 */
int soda_embedded_start(const char *program, int timeout_ms, char *address, size_t address_bytes,
			struct soda_why *why);
/* Let it go. Idempotent; also for a fork's child. */
void soda_embedded_stop(void);

#endif
