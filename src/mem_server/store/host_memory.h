/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory this node can give, for the default capacity. */
#ifndef SODA_MEM_SERVER_HOST_MEMORY_H
#define SODA_MEM_SERVER_HOST_MEMORY_H

#include "base/numa/numa_node.h"

/*
 * What can be allocated now: MemAvailable, at most what the memory cgroups (v1 or
 * v2) of this process leave, their page cache not counted, and at most what these nodes
 * have, if any are chosen. 0: unknown.
 */
uint64_t soda_host_memory_available(const struct soda_nodes *nodes);

/*
 * Free 2 MiB huge pages in bytes, of these nodes, or of all, and those that the kernel may
 * add. 0: none, or no support.
 */
uint64_t soda_host_memory_huge(const struct soda_nodes *nodes);

#endif
