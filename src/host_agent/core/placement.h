/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placement: the library's threads run, and its staging buffers lie, on the NUMA
 * node of the network device in use, as sysfs tells it, or on the one that the
 * settings name.  No such device (loopback, shm) or one node: nothing is bound,
 * and the log says so.
 */
#ifndef SODA_HOST_PLACEMENT_H
#define SODA_HOST_PLACEMENT_H

#include <stddef.h>

#include "transport/api/transport.h"

/* Find the node, by the control connection. Once, at start, before there are threads. */
void soda_numa_detect(const struct soda_conn *control);
/* The calling thread runs on that node from now on. */
void soda_numa_run_here(void);
/* Memory that was not touched yet will lie there. */
void soda_numa_place(void *addr, size_t bytes);

#endif
