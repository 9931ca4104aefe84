/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a daemon that data of READs and WRITEs lie in.  verbs registers what it is told
 * of when a request first uses it, once for a device, so that data travel straight into and
 * out of it; of memory that nobody has told it of it copies, and counts that (payload.h).
 * Other transports do not need it.
 *
 * A large range is cut into parts of SODA_MEMORY_PART from its beginning, registered
 * each by itself; data that lie in two of them are copied.
 */
#ifndef SODA_MEMORY_H
#define SODA_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define SODA_MEMORY_PART (16ull << 20)

/* It may be used from now on. 0; -ENOMEM: not told, it is copied. Any thread. */
int soda_memory_add(void *memory, uint64_t bytes);
/* No request uses it any more. What was not added is no mistake. Any thread. */
void soda_memory_remove(void *memory, uint64_t bytes);
/* Whether there is any. AS. */
bool soda_memory_any(void);

#endif
