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
/* Of one cache line, because each call reads it. */
struct soda_heap {
	char *base;
	/* Of the address range; 0: there is no heap, or the runtime does not run any more. */
	_Atomic uint64_t bytes;
	_Atomic uint8_t *granules; /* not 0: of the heap; set before any block there is given out */
};

extern struct soda_heap soda_heap __attribute__((visibility("hidden")));

/* p lies in the heap, and the runtime runs. AS. */
static inline bool soda_heap_owns(const void *p)
{
	uint64_t at = (uintptr_t)p - (uintptr_t)soda_heap.base;

	/* with the store in heap.c */
	return at < atomic_load_explicit(&soda_heap.bytes, memory_order_acquire) &&
	       atomic_load_explicit(&soda_heap.granules[at >> SODA_GRANULE_SHIFT],
				    memory_order_relaxed);
}

/* jemalloc's own, for the two functions below. */
__attribute__((visibility("hidden"))) void *soda_je_malloc(size_t bytes);
__attribute__((visibility("hidden"))) void soda_je_free(void *p);
/* The calling thread uses the heap's arena. */
extern __thread bool soda_heap_ready __attribute__((tls_model("initial-exec")));

/* It may call jemalloc. */
static inline bool soda_heap_prepared(void)
{
	return soda_heap_ready && atomic_load_explicit(&soda_heap.bytes, memory_order_relaxed);
}

/* soda_heap_alloc(0, bytes, false) where nothing is in the way, else NULL; errno stays. */
static inline void *soda_heap_quick(size_t bytes)
{
	return soda_heap_prepared() ? soda_je_malloc(bytes) : NULL;
}
/* Of a live block; errno stays. */
static inline void soda_heap_free(void *p)
{
	soda_je_free(p);
}
/* Bytes that may be used of a live block. */
size_t soda_heap_usable(const void *p);
/* End its thread, before the runtime ends. No lock of ours may be held. */
void soda_heap_stop(void);
/* The runtime ends, or this is the child of a fork. */
static inline void soda_heap_close(void)
{
	atomic_store_explicit(&soda_heap.bytes, 0, memory_order_relaxed);
}

#endif
