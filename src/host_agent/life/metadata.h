/* SPDX-License-Identifier: BSD-3-Clause */
/* What the runtime's own tables take, the kernel's page tables apart. */
#ifndef SODA_HOST_METADATA_H
#define SODA_HOST_METADATA_H

#include <stdint.h>

/*
 * Counted: touched pages of the chunk table, of the fingerprints and of what is owed; thread
 * contexts; object records; the write-back queue; the runtime's own record.  Not counted: staging
 * slots, which are the page buffer's (buffer.h); sockets' and transports' buffers; jemalloc's own
 * data.
 */
uint64_t soda_metadata_bytes(void);

#endif
