/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory this machine has and can give, as the kernel says it: /proc/meminfo, the memory
 * cgroups (version 1 or 2) of this process and all above them, NUMA nodes, the pool of huge pages.
 * Daemons hold it against the sizes that their options ask for, once, at their start: what other
 * processes take later nobody knows here.
 *
 * A cgroup's limit is another thing than a machine that is full: where it is reached the kernel
 * does not refuse memory, it ends a process of the group.  Beyond memory.high (systemd's
 * MemoryHigh=) it ends none, but holds the group up at each page that it takes.
 *
 * All in bytes.  Threads: any; each call reads the kernel's files anew.
 */
#ifndef SODA_DAEMON_HOST_MEMORY_H
#define SODA_DAEMON_HOST_MEMORY_H

#include <stdint.h>

#include "base/numa/numa_node.h"

/*
 * The memory that can be allocated now: MemAvailable, but no more than the cgroups leave, below
 * their limits and memory.high, their page cache not counted, and no more than these NUMA nodes
 * have, if any are chosen.  0: unknown, or nothing.
 */
uint64_t soda_host_memory_available(const struct soda_nodes *nodes);
/* What the machine has, without swap space. 0: unknown. */
uint64_t soda_host_memory_total(void);
/*
 * The least limit of the cgroups, memory.high not among them; where they have none more than any
 * machine has.
 */
uint64_t soda_host_memory_limit(void);
/*
 * Free 2 MiB huge pages, of these nodes, or of all nodes with those that the kernel may add.  0:
 * none, or no support.
 */
uint64_t soda_host_memory_huge(const struct soda_nodes *nodes);

#endif
