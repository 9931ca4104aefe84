/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap behind soda_malloc(): jemalloc with one arena, whose pages are cut
 * from a few large objects in FAM.  jemalloc's own data are local memory.
 *
 *   heap.c    the calls; jemalloc itself, with all its symbols hidden, is
 *             made by hide-jemalloc
 *   thread.c  the threads that use it, and the end of their shortest way
 *   extent.c  where its pages come from, and their way back
 *   stub.c    a build without jemalloc: ENOTSUP
 *
 * Locks: jemalloc's are outside of all of ours: it asks for pages with them
 * held, which takes api_lock.  So nobody calls jemalloc with one of ours held.
 */
#ifndef SODA_HOST_HEAP_H
#define SODA_HOST_HEAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "host_agent/life/start.h"
#include "host_agent/object/region.h"

/*
 * As aligned_alloc(3) with an alignment that is a power of two; 0: that of malloc.
 * zero: the block is zeros.  On failure NULL, errno and *why: ENOMEM, whatever it is that there is
 * not enough of, also where soda_heap_over(), and what starting the runtime fails with.
 */
void *soda_heap_alloc(size_t alignment, size_t bytes, bool zero, struct soda_why *why);
/* As realloc(3) of a block of this heap; bytes is not 0.  Errors as above. */
void *soda_heap_realloc(void *p, size_t bytes, struct soda_why *why);
/* Of one cache line, because soda_free() reads it. */
struct soda_heap {
	/* The first region and those that directly follow, mostly all; grows, 0: as below. */
	_Atomic uintptr_t near;
	_Atomic uint64_t near_bytes;
	char *base;
	/* Of the address range; 0: there is no heap, or the runtime does not run any more. */
	_Atomic uint64_t bytes;
	_Atomic uint8_t *granules; /* not 0: of the heap; set before any block there is given out */
};

extern struct soda_heap soda_heap __attribute__((visibility("hidden")));

/* If so, soda_heap_owns(p); if not, that has to be asked. AS. */
static inline bool soda_heap_near(const void *p)
{
	/* with the store in extent.c */
	return (uintptr_t)p - atomic_load_explicit(&soda_heap.near, memory_order_relaxed) <
	       atomic_load_explicit(&soda_heap.near_bytes, memory_order_acquire);
}

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
/*
 * soda_je_malloc's blocks up to here are cut from larger pages.  That it is jemalloc that says no
 * to one of them means that extent.c has said why; errno is ENOMEM.
 */
enum { SODA_HEAP_SMALL = 14336 };

struct soda_heap_thread {
	/* SODA_HEAP_SMALL + 1; 0: it has to be prepared, or the runtime does not run any more. */
	_Atomic size_t limit;
	struct soda_heap_thread *next, **back; /* of all that have a limit: api_lock */
	bool known;	/* has come here once: it gets no second limit, for it may be at its end */
	bool ending;	/* its values' destructors have begun */
	bool over;	/* and jemalloc has cleared up behind it */
	void *jemalloc; /* what that is told then */
};

extern __thread struct soda_heap_thread soda_heap_mine
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/*
 * soda_je_malloc() serves this from the heap, and says why if not.  One comparison for all:
 * the thread's arena is ours, the runtime runs, and the block is small.
 */
static inline bool soda_heap_short(size_t bytes)
{
	return bytes < atomic_load_explicit(&soda_heap_mine.limit, memory_order_relaxed);
}

/*
 * The calling thread has ended but for destructors of its values, in their third round or later:
 * it can free blocks, and gets no more of them.
 */
static inline bool soda_heap_over(void)
{
	return soda_heap_mine.over;
}

/* thread.c: what jemalloc calls for pthread_key_create(3) and pthread_setspecific(3). */
__attribute__((visibility("hidden"))) int soda_je_pthread_key_create(pthread_key_t *key_p,
								     void (*destructor)(void *));
__attribute__((visibility("hidden"))) int soda_je_pthread_setspecific(pthread_key_t ignored,
								      const void *its);

/* thread.c: the calling thread's arena is ours: give it its limit, once. -ENOMEM. */
int soda_heap_thread_join(void);
/* What ends the heap with the runtime: all limits are taken away. */
extern const struct soda_heap_ends soda_heap_thread_ends __attribute__((visibility("hidden")));

/* Of a live block; errno stays. */
static inline void soda_heap_free(void *p)
{
	soda_je_free(p);
}
/* Bytes that may be used of a live block. */
size_t soda_heap_usable(const void *p);
/* End its thread, before the runtime ends. No lock of ours may be held. */
void soda_heap_stop(void);

#endif
