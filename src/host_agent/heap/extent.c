/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each new region of the heap is as large as all before it together, so that a large heap is a few
 * objects and a small one reserves little.  Extents are cut from the front of a region and never
 * given back: jemalloc keeps the addresses of freed extents for later use, and their content is
 * discarded. jemalloc never joins extents that it got with two calls, so an extent lies in one
 * object.
 */
#include "host_agent/heap/extent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/heap/heap.h"
#include "host_agent/life/advise.h"
#include "host_agent/life/object.h"

static const uint64_t region_least = 16ull << 20, region_most = 1ull << 30,
		      granule = 1ull << SODA_GRANULE_SHIFT;

/* The unused rest of the newest region, and the size of all regions; guarded by api_lock. */
static uintptr_t rest, rest_end;
static uint64_t total;

__thread int soda_heap_error __attribute__((tls_model("initial-exec")));

static uint64_t granule_of(const char *p)
{
	return (uint64_t)(p - soda_agent.base) >> SODA_GRANULE_SHIFT;
}

_Atomic uint8_t *soda_heap_granules_map(void)
{
	void *p = mmap(NULL, (soda_agent.bytes >> SODA_GRANULE_SHIFT) + 1, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Add a new region, whose granules are marked already, to soda_heap.near if it follows directly. */
static void extend_locked(char *base, uint64_t span)
{
	uintptr_t near = atomic_load_explicit(&soda_heap.near, memory_order_relaxed);
	uint64_t before = atomic_load_explicit(&soda_heap.near_bytes, memory_order_relaxed);

	if (!before) {
		near = (uintptr_t)base;
		atomic_store_explicit(&soda_heap.near, near, memory_order_relaxed);
	}
	if (near + before == (uintptr_t)base) /* release: pairs with soda_heap_near() */
		atomic_store_explicit(&soda_heap.near_bytes, before + span, memory_order_release);
}

static int new_region_locked(uint64_t bytes)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	char *base;
	int ret = soda_object_create_locked(NULL, bytes, SODA_REGION_HEAP, &r, &why);

	if (ret) {
		if (!why.text[0])
			snprintf(why.text, sizeof(why.text), "the heap cannot grow: %s",
				 soda_strerror(ret));
		soda_heap_error = ret;
		/* here, because soda_malloc() returns the NULL of jemalloc as it is */
		soda_explain(&why);
		return ret;
	}
	base = soda_chunk_address(r->first);
	bytes = soda_region_object_span(r);
	for (; r; r = r->rest)
		strcpy(r->name, "heap");
	for (uint64_t at = 0; at < bytes; at += granule)
		atomic_store_explicit(&soda_heap.granules[granule_of(base + at)], 1,
				      memory_order_relaxed);
	extend_locked(base, bytes);
	total += bytes;
	rest = (uintptr_t)base;
	rest_end = rest + bytes;
	return 0;
}

static int grow_locked(uint64_t least)
{
	uint64_t want = total < region_least  ? region_least
			: total > region_most ? region_most
					      : total;
	int ret;

	least = (least + granule - 1) & ~(granule - 1);
	want = (want + granule - 1) & ~(granule - 1);
	if (want <= least)
		return new_region_locked(least);
	ret = new_region_locked(want);
	return ret == -ENOSPC || ret == -EDQUOT ? new_region_locked(least) : ret;
}

static uintptr_t take_locked(size_t bytes, size_t alignment)
{
	uintptr_t at = (rest + alignment - 1) & ~(uintptr_t)(alignment - 1);

	if (!rest || at < rest || at > rest_end || rest_end - at < bytes)
		return 0;
	rest = at + bytes;
	return at;
}

uint64_t soda_heap_given(const struct soda_region *r)
{
	uintptr_t base = (uintptr_t)soda_chunk_address(r->first);
	uint64_t given = r->span;

	soda_lock_acquire(&soda_agent.api_lock);
	if (rest < rest_end && rest - base < r->span) /* the rest of the newest one */
		given = rest - base;
	else if (rest < base && base < rest_end)
		given = 0; /* a later slab of it */
	soda_lock_release(&soda_agent.api_lock);
	return given;
}

static bool running(void)
{
	return atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING;
}

/*
 * Cut an extent from the rest of the newest region. new_addr: exactly there, to lengthen an extent.
 */
static void *cut(void *new_addr, size_t bytes, size_t alignment)
{
	int saved = errno;
	uintptr_t at = 0;

	if (!running() || (new_addr && alignment > granule))
		return NULL;
	soda_lock_acquire(&soda_agent.api_lock);
	if (!new_addr || (uintptr_t)new_addr == rest) {
		at = take_locked(bytes, alignment);
		if (!at && !new_addr && bytes + alignment >= bytes &&
		    !grow_locked(alignment > granule ? bytes + alignment : bytes))
			at = take_locked(bytes, alignment);
	}
	soda_lock_release(&soda_agent.api_lock);
	errno = saved;
	return (void *)at;
}

void *soda_je_pages_alloc(void *tsdn, void *new_addr, size_t bytes, size_t alignment, bool *zero,
			  bool *commit, unsigned arena)
{
	void *p;

	if (arena == 0 || arena != soda_heap_arena) /* 0: jemalloc's arena for its own data */
		return soda_je_own_pages_alloc(tsdn, new_addr, bytes, alignment, zero, commit,
					       arena);
	p = cut(new_addr, bytes, alignment);
	if (p)
		*zero = *commit = true; /* these addresses were never used */
	return p;
}

/*
 * Discard the chunks wholly inside, here and on the server.  Synchronous: jemalloc may give the
 * range out again when this returns.  True: not all of the range is zeros.
 */
static bool discard(char *from, size_t length)
{
	uint64_t edges = ((uintptr_t)from | length) & (soda_chunk_bytes() - 1);
	int saved = errno, ret = -ESHUTDOWN;

	if (running())
		ret = soda_advise_purge(soda_region_of(soda_chunk_of(from)), from, length);
	errno = saved;
	return ret || edges;
}

bool soda_je_pages_purge_forced(void *addr, size_t offset, size_t length)
{
	return soda_agent_owns(addr) ? discard((char *)addr + offset, length)
				     : soda_je_own_pages_purge_forced(addr, offset, length);
}

bool soda_je_pages_purge_lazy(void *addr, size_t offset, size_t length)
{
	return soda_agent_owns(addr) || soda_je_own_pages_purge_lazy(addr, offset, length);
}

bool soda_je_pages_decommit(void *addr, size_t offset, size_t length)
{
	return soda_agent_owns(addr) || soda_je_own_pages_decommit(addr, offset, length);
}

void soda_je_pages_zero(void *addr, size_t bytes)
{
	if (soda_agent_owns(addr))
		memset(addr, 0, bytes);
	else
		soda_je_own_pages_zero(addr, bytes);
}
