/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap behind soda_malloc(): jemalloc with one arena, whose pages are cut
 * from a few large objects in FAM.  jemalloc's own data are local memory.
 *
 *   heap.c          the calls; jemalloc itself, with all its symbols hidden, is
 *                   made by hide-jemalloc
 *   heap_extent.c   the arena's hooks: where its pages come from, and their way back
 *   heap_stub.c     a build without jemalloc: ENOTSUP
 *
 * Locks: jemalloc's are outside of all of ours: its hooks are called with them
 * held, and take api_lock.  So nobody calls jemalloc with one of ours held.
 */
#ifndef SODA_HOST_HEAP_H
#define SODA_HOST_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "host_agent/region.h"

/*
 * As aligned_alloc(3) with an alignment that is a power of two; 0: that of malloc.
 * zero: the block is zeros.  On failure NULL, errno and *why: ENOMEM, and what
 * starting the runtime or soda_alloc() fails with.
 */
void *soda_heap_alloc(size_t alignment, size_t bytes, bool zero, struct soda_why *why);
/* As realloc(3) of a block of this heap; bytes is not 0.  Errors as above. */
void *soda_heap_realloc(void *p, size_t bytes, struct soda_why *why);
/* p lies in the heap. AS. */
bool soda_heap_owns(const void *p);
/* Of a live block. */
void soda_heap_free(void *p);
/* Bytes that may be used of a live block. */
size_t soda_heap_usable(const void *p);
/* End its thread, before the runtime ends. No lock of ours may be held. */
void soda_heap_stop(void);

#endif
