/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the heap's pages come from: the hooks of its jemalloc arena. */
#ifndef SODA_HOST_HEAP_EXTENT_H
#define SODA_HOST_HEAP_EXTENT_H

#include <jemalloc/jemalloc.h>

#include "host_agent/region.h"

/*
 * They allocate nothing: a region has its entry on the server, and what it takes
 * in this process is the C library's malloc, not this heap.
 */
extern extent_hooks_t soda_heap_hooks;

/* For struct soda_heap. NULL: no address space. */
_Atomic uint8_t *soda_heap_granules_map(void);

/* Why the calling thread's last allocation of pages failed. */
extern __thread struct soda_why soda_heap_trouble __attribute__((tls_model("initial-exec")));
extern __thread int soda_heap_error __attribute__((tls_model("initial-exec")));

#endif
