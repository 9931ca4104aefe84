/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap behind soda_malloc(): jemalloc with one arena, whose pages are cut
 * from a few large objects in FAM.  jemalloc's own data are local memory.
 *
 *   heap.c    the calls; jemalloc itself, with all its symbols hidden, is
 *             made by hide-jemalloc
 *   thread.c  the threads that use the heap's fast path, which ends with them or the runtime
 *   tsd.c     jemalloc's data of each thread, for which move-tsd changes its object code
 *   extent.c  where the heap's pages come from, and how they are given back
 *   stub.c    a build without jemalloc: ENOTSUP
 *
 * Locks: jemalloc asks for pages while it holds locks of its own, and that takes api_lock.  So no
 * thread may call jemalloc while it holds a lock of ours.
 *
 * AS: async-signal-safe.
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
 * zero: the block is zeros.  On failure NULL, errno and *why: ENOMEM, for lack of anything, and
 * where soda_heap_over(); or an error of starting the runtime.
 */
void *soda_heap_alloc(size_t alignment, size_t bytes, bool zero, struct soda_why *why);
/* As realloc(3) of a block of this heap; bytes is not 0.  Errors as above. */
void *soda_heap_realloc(void *p, size_t bytes, struct soda_why *why);
/* In one cache line, because each soda_free() reads it. */
struct soda_heap {
	/*
	 * Addresses of the first region and of those that directly follow it, mostly all of the
	 * heap. near_bytes only grows, and is 0 where `bytes` is.
	 */
	_Atomic uintptr_t near;
	_Atomic uint64_t near_bytes;
	char *base;
	/* The reserved range is [base, base + bytes); 0: no heap, or the runtime has ended. */
	_Atomic uint64_t bytes;
	_Atomic uint8_t *granules; /* not 0: the heap's; set before a block there is given out */
};

extern struct soda_heap soda_heap __attribute__((visibility("hidden")));

/* True: p lies in the heap. False: ask soda_heap_owns(). AS. */
static inline bool soda_heap_near(const void *p)
{
	/* acquire: pairs with the release in extend_locked() of extent.c */
	return (uintptr_t)p - atomic_load_explicit(&soda_heap.near, memory_order_relaxed) <
	       atomic_load_explicit(&soda_heap.near_bytes, memory_order_acquire);
}

/* Whether p lies in the heap and the runtime runs. AS. */
static inline bool soda_heap_owns(const void *p)
{
	uint64_t at = (uintptr_t)p - (uintptr_t)soda_heap.base;

	/* acquire: pairs with the release in make_arena() of heap.c */
	return at < atomic_load_explicit(&soda_heap.bytes, memory_order_acquire) &&
	       atomic_load_explicit(&soda_heap.granules[at >> SODA_GRANULE_SHIFT],
				    memory_order_relaxed);
}

/*
 * jemalloc's malloc and free; called by soda_heap_malloc_short() and soda_heap_free_short() alone.
 * data: where it finds the calling thread's data, soda_heap_mine.data.  Its C code has no such
 * argument; move-tsd has made its object code take it from there.  (Where it has not, nothing
 * reads that register.)
 */
__attribute__((visibility("hidden"))) void *soda_je_malloc(size_t bytes, uintptr_t data);
__attribute__((visibility("hidden"))) void soda_je_free(void *p, uintptr_t data);
/*
 * The largest block that jemalloc cuts from a slab.  When soda_je_malloc() fails for such a block,
 * extent.c has failed, and has set soda_last_error(); errno is ENOMEM.
 */
enum { SODA_HEAP_SMALL = 14336 };

struct soda_heap_thread {
	/*
	 * tsd.c: where jemalloc's data of the thread are, from the thread pointer; 0: nowhere yet,
	 * and it may not call jemalloc.  First, because tsd.S reads it.
	 */
	uintptr_t data;
	/* SODA_HEAP_SMALL + 1; 0: the thread has not joined, or the runtime has ended. */
	_Atomic size_t limit;
	struct soda_heap_thread *next, **back; /* list of threads that have a limit; api_lock */
	bool known;	/* it has joined; it does not join again, because it may be ending */
	uint8_t round;	/* of the destructors of its thread-specific values; 0: none yet */
	bool over;	/* jemalloc has freed what it kept for the thread */
	void *jemalloc; /* the argument of jemalloc's destructor */
};

extern __thread struct soda_heap_thread soda_heap_mine
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* tsd.c: map soda_heap_mine.data, and unmap it; the caller is thread.c. 0, -ENOMEM. */
int soda_heap_data_map(void);
void soda_heap_data_unmap(void);
/* thread.c: give the calling thread its data, until it ends. 0, -ENOMEM. */
int soda_heap_data_make(void);
/* thread.c: the calling thread, whose data are mapped, loses them when it ends. */
void soda_heap_data_arm(void);

/* Before each call of jemalloc by a thread that may not have its data. 0, -ENOMEM. errno stays. */
static inline int soda_heap_data(void)
{
	return __builtin_expect(soda_heap_mine.data != 0, 1) ? 0 : soda_heap_data_make();
}

/*
 * Whether soda_je_malloc() may be called right away.  One comparison tells all: the thread uses our
 * arena, the runtime runs, and the block is small.
 */
static inline bool soda_heap_short(size_t bytes)
{
	return bytes < atomic_load_explicit(&soda_heap_mine.limit, memory_order_relaxed);
}

/* jemalloc's malloc, where soda_heap_short() or soda_heap_data() allows it. */
static inline void *soda_heap_malloc_short(size_t bytes)
{
	return soda_je_malloc(bytes, soda_heap_mine.data);
}

/*
 * Whether the calling thread is ending, in the third round of its values' destructors or later: it
 * can free blocks, and gets no new ones.
 */
static inline bool soda_heap_over(void)
{
	return soda_heap_mine.over;
}

/* thread.c: jemalloc calls these in place of pthread_key_create(3) and pthread_setspecific(3). */
__attribute__((visibility("hidden"))) int soda_je_pthread_key_create(pthread_key_t *key_p,
								     void (*destructor)(void *));
__attribute__((visibility("hidden"))) int soda_je_pthread_setspecific(pthread_key_t ignored,
								      const void *its);

/* thread.c: the calling thread uses our arena now: give it its limit, once. 0, -ENOMEM. */
int soda_heap_thread_join(void);
/* thread.c: for soda_heap_ends: closes the heap and takes all limits away. */
extern const struct soda_heap_ends soda_heap_thread_ends __attribute__((visibility("hidden")));

/* As soda_heap_malloc_short(), of its free: soda_heap_mine.data is not 0. */
static inline void soda_heap_free_short(void *p)
{
	soda_je_free(p, soda_heap_mine.data);
}

/* Free a live block; errno stays. Without memory for a thread's first call the block is kept. */
static inline void soda_heap_free(void *p)
{
	if (!soda_heap_data())
		soda_heap_free_short(p);
}
/* How many bytes of a live block may be used. */
size_t soda_heap_usable(const void *p);
/* End jemalloc's thread, before the runtime ends. The caller holds no lock of ours. */
void soda_heap_stop(void);

#endif
