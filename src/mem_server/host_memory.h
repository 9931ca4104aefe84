/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory this node can give, for the default capacity. */
#ifndef SODA_MEM_SERVER_HOST_MEMORY_H
#define SODA_MEM_SERVER_HOST_MEMORY_H

#include <stdint.h>

/*
 * What can be allocated now: MemAvailable, at most what the memory cgroups (v1 or
 * v2) of this process leave, their page cache not counted. 0: unknown.
 */
uint64_t soda_host_memory_available(void);

/* Free 2 MiB huge pages, and those that the kernel may add, in bytes. 0: none, or no support. */
uint64_t soda_host_memory_huge(void);

#endif
