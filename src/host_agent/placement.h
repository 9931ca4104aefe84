/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placement: the library's threads run, and its staging buffers lie, on the NUMA
 * node of the network interface in use, as sysfs tells it.  No such interface
 * (loopback, shm) or one node: nothing is bound, and the log says so.
 */
#ifndef SODA_HOST_PLACEMENT_H
#define SODA_HOST_PLACEMENT_H

#include <stddef.h>

/* Find the node by a connected socket of ours; -1: no socket. Once, at start. */
void soda_numa_detect(int socket_fd);
/* The calling thread runs on that node from now on. */
void soda_numa_run_here(void);
/* Memory that was not touched yet will lie there. */
void soda_numa_place(void *addr, size_t bytes);

#endif
