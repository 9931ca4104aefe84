/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the heap's pages come from: the extent hooks of its arena.  They are jemalloc's default
 * hooks; hide-jemalloc links jemalloc so that these call the functions below where they called the
 * kernel. Hooks of our own would be slower: jemalloc changes into a slow state and back around each
 * call of a hook that is not its default one, and each large block is a split and a merge.
 */
#ifndef SODA_HOST_HEAP_EXTENT_H
#define SODA_HOST_HEAP_EXTENT_H

#include "host_agent/object/region.h"

/* The arena whose pages are in FAM, set once; 0: there is none. */
extern unsigned soda_heap_arena;

/*
 * jemalloc calls these functions ehooks_default_*_impl, and defines what they do: on failure alloc
 * returns NULL, the others true.  The caller may hold locks of jemalloc, and holds none of ours.
 * They call no malloc(), because the program's malloc() may be this heap.
 */
void *soda_je_pages_alloc(void *tsdn, void *new_addr, size_t bytes, size_t alignment, bool *zero,
			  bool *commit, unsigned arena);
bool soda_je_pages_purge_forced(void *addr, size_t offset, size_t length);
bool soda_je_pages_purge_lazy(void *addr, size_t offset, size_t length);
bool soda_je_pages_decommit(void *addr, size_t offset, size_t length);
void soda_je_pages_zero(void *addr, size_t bytes);

/* jemalloc's own versions, which ask the kernel. */
void *soda_je_own_pages_alloc(void *tsdn, void *new_addr, size_t bytes, size_t alignment,
			      bool *zero, bool *commit, unsigned arena);
bool soda_je_own_pages_purge_forced(void *addr, size_t offset, size_t length);
bool soda_je_own_pages_purge_lazy(void *addr, size_t offset, size_t length);
bool soda_je_own_pages_decommit(void *addr, size_t offset, size_t length);
void soda_je_own_pages_zero(void *addr, size_t bytes);

/* How many bytes of a region of the heap, from its first on, jemalloc has got so far. */
uint64_t soda_heap_given(const struct soda_region *r);

/* Reserve soda_heap.granules. NULL: no address space. */
_Atomic uint8_t *soda_heap_granules_map(void);

/*
 * The error of the calling thread's last allocation of pages, 0 if none has failed;
 * soda_explained() has the sentence.
 */
extern __thread int soda_heap_error __attribute__((tls_model("initial-exec")));

#endif
