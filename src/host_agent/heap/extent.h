/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the heap's pages come from: the extent hooks of its arena.  They are jemalloc's default
 * hooks, in which the calls to the kernel are replaced by the functions below when it is linked
 * (hide-jemalloc): around any other hook, and each large block is a split and a merge, jemalloc
 * goes to a slow state and back; in its own these two cost nothing.
 */
#ifndef SODA_HOST_HEAP_EXTENT_H
#define SODA_HOST_HEAP_EXTENT_H

#include "host_agent/object/region.h"

/* The arena whose pages are in FAM, set once; 0: there is none. */
extern unsigned soda_heap_arena;

/*
 * jemalloc's names for them are ehooks_default_*_impl, and so are the meanings: alloc gives NULL on
 * failure, the others true.  Locks of jemalloc may be held, and none of ours.  They allocate
 * nothing: the program's malloc() may be what calls them.
 */
void *soda_je_pages_alloc(void *tsdn, void *new_addr, size_t bytes, size_t alignment, bool *zero,
			  bool *commit, unsigned arena);
bool soda_je_pages_purge_forced(void *addr, size_t offset, size_t length);
bool soda_je_pages_purge_lazy(void *addr, size_t offset, size_t length);
bool soda_je_pages_decommit(void *addr, size_t offset, size_t length);
void soda_je_pages_zero(void *addr, size_t bytes);

/* jemalloc's own. */
void *soda_je_own_pages_alloc(void *tsdn, void *new_addr, size_t bytes, size_t alignment,
			      bool *zero, bool *commit, unsigned arena);
bool soda_je_own_pages_purge_forced(void *addr, size_t offset, size_t length);
bool soda_je_own_pages_purge_lazy(void *addr, size_t offset, size_t length);
bool soda_je_own_pages_decommit(void *addr, size_t offset, size_t length);
void soda_je_own_pages_zero(void *addr, size_t bytes);

/* For struct soda_heap. NULL: no address space. */
_Atomic uint8_t *soda_heap_granules_map(void);

/* Why the calling thread's last allocation of pages failed. */
extern __thread struct soda_why soda_heap_trouble __attribute__((tls_model("initial-exec")));
extern __thread int soda_heap_error __attribute__((tls_model("initial-exec")));

#endif
