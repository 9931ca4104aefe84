/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/freeze.h"
#include "host_agent/object/region.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "host_agent/fault/handler.h"
#include "host_agent/life/recover.h"
#include "host_agent/life/session.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/retire.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/owed.h"

bool (*_Atomic soda_chunk_closed)(uint32_t id);

static const uint64_t reserve_most = 4ull << 40, reserve_least = 1ull << 30;

/* No object ever has this number: in the granule table it means that none may come here. */
static const uint16_t no_object = SODA_REGIONS_MAX;

static struct soda_region *_Atomic objects[SODA_REGIONS_MAX + 1];
static _Atomic uint16_t *granules; /* object of each granule; changed under api_lock */
static uint32_t granules_n;
static uint32_t next_granule;	 /* where the next search starts; api_lock */
static uint32_t next_of_heap;	 /* the heap's, apart: objects rarely come that far */
static uint16_t next_id;	 /* likewise; ids are reused as late as possible */
static _Atomic uint32_t ids_end; /* no object ever had this number or a higher one; api_lock */
static struct soda_lock table_lock =
	SODA_LOCK_INIT(SODA_RANK_REGIONS); /* of `objects`, for writers */

static struct iovec reserved; /* the whole range, of which soda_agent.base is the aligned part */

static void *reserve(uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* The largest range that the address space limit allows, aligned to granules. */
static int reserve_addresses(struct soda_why *why)
{
	const uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	uint64_t most = (uint64_t)UINT32_MAX << soda_agent.chunk_shift;
	uint64_t bytes = most < reserve_most ? most & ~(granule - 1) : reserve_most;
	char *p = NULL;

	while (bytes >= reserve_least && !(p = reserve(bytes + granule, PROT_NONE)))
		bytes /= 2;
	if (!p) {
		snprintf(why->text, sizeof(why->text),
			 "no address range of 1 GiB to be had: raise the address space limit "
			 "(ulimit -v), and, for a program that locks its memory, that limit, too "
			 "(ulimit -l)");
		return -ENOMEM;
	}
	reserved = (struct iovec){ p, bytes + granule };
	soda_agent.base = (char *)(((uintptr_t)p + granule - 1) & ~(uintptr_t)(granule - 1));
	soda_agent.bytes = bytes;
	granules_n = (uint32_t)(bytes >> SODA_GRANULE_SHIFT);
	next_of_heap = granules_n - granules_n / 8;
	soda_agent.table = reserve((bytes >> soda_agent.chunk_shift) * sizeof(struct soda_chunk),
				   PROT_READ | PROT_WRITE);
	granules = reserve(granules_n * sizeof(*granules), PROT_READ | PROT_WRITE);
	if (!soda_agent.table || !granules || soda_guess_start() || soda_owed_start()) {
		snprintf(why->text, sizeof(why->text),
			 "no address space for the chunk table: raise the address space limit "
			 "(ulimit -v)");
		return -ENOMEM;
	}
	return 0;
}

/* A child must never read zeros here, and a huge page never stand in for 4 KiB. */
static int advise_addresses(void *addr, uint64_t bytes)
{
	if (madvise(addr, bytes, MADV_DONTFORK) || madvise(addr, bytes, MADV_DONTDUMP))
		return -1;
	madvise(addr, bytes, MADV_NOHUGEPAGE); /* EINVAL: no THP in this kernel */
	return 0;
}

int soda_regions_map_anew(void *addr, size_t bytes, int prot)
{
	int saved = errno, ret = 0;

	/* Without access until it is registered: nobody sees the kernel's zeros. */
	if (mmap(addr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		 -1, 0) == MAP_FAILED ||
	    advise_addresses(addr, bytes))
		ret = -errno;
	if (!ret)
		ret = soda_uffd_register(addr, bytes);
	if (!ret && mprotect(addr, bytes, prot))
		ret = -errno;
	errno = saved;
	return ret;
}

int soda_regions_start(struct soda_why *why)
{
	int ret = reserve_addresses(why);

	if (ret)
		return ret;
	munlock(soda_agent.base, soda_agent.bytes); /* mlockall(MCL_FUTURE) may have come before */
	if (advise_addresses(soda_agent.base, soda_agent.bytes))
		return -errno;
	madvise(soda_agent.table,
		(soda_agent.bytes >> soda_agent.chunk_shift) * sizeof(struct soda_chunk),
		MADV_NOHUGEPAGE);
	ret = soda_uffd_register(soda_agent.base, soda_agent.bytes);
	if (ret)
		snprintf(why->text, sizeof(why->text), "userfaultfd refuses the address range: %s",
			 soda_strerror(ret));
	next_id = 1;
	return ret;
}

static void give_back(void *p, uint64_t bytes)
{
	if (p)
		munmap(p, bytes);
}

void soda_regions_undo(void)
{
	uint64_t chunks = soda_agent.bytes >> soda_agent.chunk_shift;

	soda_agent.bytes = 0; /* first: no address is ours */
	give_back(reserved.iov_base, reserved.iov_len);
	give_back(soda_agent.table, chunks * sizeof(struct soda_chunk));
	give_back(granules, granules_n * sizeof(*granules));
	reserved.iov_base = soda_agent.base = NULL;
	soda_agent.table = NULL;
	granules = NULL;
	granules_n = 0;
	soda_guess_undo(chunks);
	soda_owed_undo(chunks);
}

void soda_regions_end(void)
{
	/* Unmapped, not just dropped: the descriptor's end would turn it into zeros. */
	mmap(soda_agent.base, soda_agent.bytes, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/*
 * Descriptors are not malloc's: the heap's hooks come here, and the program's malloc() may be what
 * waits for them.  No more of the array is touched than there ever were objects at once.
 */
static struct soda_region descriptors[SODA_REGIONS_MAX];
static uint32_t descriptors_n;	   /* that were ever used; api_lock */
static struct soda_region *unused; /* of these; api_lock */

static void put_descriptor(struct soda_region *r)
{
	free(r->file);
	r->next = unused;
	unused = r;
}

/* Of zeros; NULL: all are in use. */
static struct soda_region *get_descriptor(void)
{
	struct soda_region *r;

	if (!unused && descriptors_n < SODA_REGIONS_MAX)
		put_descriptor(&descriptors[descriptors_n++]);
	r = unused;
	if (r) {
		unused = r->next;
		memset(r, 0, sizeof(*r));
	}
	return r;
}

void soda_regions_forget(void)
{
	for (uint32_t i = 1, end = atomic_load(&ids_end); i < end; i++) {
		struct soda_region *r = atomic_exchange(&objects[i], NULL);

		if (r) {
			soda_freeze_forget(r);
			put_descriptor(r);
		}
	}
}

struct soda_region *soda_region_of(uint32_t chunk)
{
	uint32_t g = chunk >> (SODA_GRANULE_SHIFT - soda_agent.chunk_shift);
	uint16_t id = g < granules_n ? atomic_load_explicit(&granules[g], memory_order_acquire) : 0;

	return id ? atomic_load_explicit(&objects[id], memory_order_acquire) : NULL;
}

struct soda_region *soda_region_at(const void *p)
{
	struct soda_region *r = soda_agent_owns(p) ? soda_region_of(soda_chunk_of(p)) : NULL;

	return r && soda_chunk_address(r->first) == p ? r : NULL;
}

struct soda_region *soda_region_range(const void *addr, uint64_t bytes, uint32_t *first_p,
				      uint32_t *last_p)
{
	struct soda_region *r = soda_agent_owns(addr) ? soda_region_of(soda_chunk_of(addr)) : NULL;
	uint64_t at;

	if (!r)
		return NULL;
	at = (uint64_t)((const char *)addr - soda_chunk_address(r->first));
	if (at >= r->span || bytes > r->span - at)
		return NULL;
	*first_p = soda_chunk_of(addr);
	*last_p = bytes ? soda_chunk_of((const char *)addr + bytes - 1) : *first_p;
	return r;
}

void soda_regions_lock(void)
{
	soda_lock_acquire(&table_lock);
}

void soda_regions_unlock(void)
{
	soda_lock_release(&table_lock);
}

int soda_regions_each(int (*fn)(struct soda_region *r, void *arg), void *arg)
{
	for (uint32_t i = 1, end = atomic_load(&ids_end); i < end; i++) {
		struct soda_region *r = atomic_load(&objects[i]);
		int ret = r ? fn(r, arg) : 0;

		if (ret)
			return ret;
	}
	return 0;
}

/* First fit from *next, where the last search ended. */
static int64_t find_granules(uint32_t n, uint32_t *next)
{
	for (int round = 0; round < 2; round++) {
		uint32_t run = 0;

		for (uint32_t g = round ? 0 : *next; g < granules_n; g++) {
			run = atomic_load_explicit(&granules[g], memory_order_relaxed) ? 0
										       : run + 1;
			if (run == n) {
				*next = g + 1;
				return (int64_t)g + 1 - n;
			}
		}
	}
	return -1;
}

static int find_id(void)
{
	for (uint32_t i = 0; i < SODA_REGIONS_MAX; i++) {
		uint16_t id = next_id++;

		if (!next_id)
			next_id = 1;
		if (!id || id == no_object || atomic_load(&objects[id]) ||
		    soda_session_owes_close(id))
			continue;
		if (id >= atomic_load(&ids_end))
			atomic_store(&ids_end, id + 1u);
		return id;
	}
	return -ENOSPC;
}

static void mark_granules(const struct soda_region *r, uint16_t id)
{
	uint32_t shift = SODA_GRANULE_SHIFT - soda_agent.chunk_shift;
	uint32_t g = r->first >> shift, n = (r->chunks + (1u << shift) - 1) >> shift;

	for (uint32_t i = 0; i < n; i++)
		atomic_store_explicit(&granules[g + i], id, memory_order_release);
}

/* The server's answer is known: sizes, addresses, states. */
static int place(struct soda_region *r, uint32_t *next, struct soda_why *why)
{
	uint64_t granule = 1ull << SODA_GRANULE_SHIFT, page = SODA_WIRE_PAGE;
	enum soda_chunk_state state = r->flags ? SODA_CHUNK_REMOTE : SODA_CHUNK_ZERO;
	uint32_t set = r->flags ? SODA_CW_BACKED : 0;
	int64_t g;

	r->span = (r->bytes + page - 1) & ~(page - 1);
	g = r->span < r->bytes || r->span > soda_agent.bytes
		    ? -1
		    : find_granules((uint32_t)((r->span + granule - 1) >> SODA_GRANULE_SHIFT),
				    next);
	if (g < 0) {
		snprintf(why->text, sizeof(why->text),
			 "no room for %llu bytes in the reserved address range of %llu GiB",
			 (unsigned long long)r->bytes,
			 (unsigned long long)(soda_agent.bytes >> 30));
		return -ENOMEM;
	}
	r->first = (uint32_t)g << (SODA_GRANULE_SHIFT - soda_agent.chunk_shift);
	r->chunks = (uint32_t)((r->span + soda_chunk_bytes() - 1) >> soda_agent.chunk_shift);
	if (mprotect(soda_chunk_address(r->first), r->span, soda_region_prot(r))) {
		snprintf(why->text, sizeof(why->text),
			 "the kernel gives no memory map: %s (vm.max_map_count)",
			 soda_strerror(errno));
		return -ENOMEM;
	}
	mark_granules(r, r->id);
	for (uint32_t i = 0; i < r->chunks; i++)
		soda_chunk_settle(&soda_agent.table[r->first + i], state, 0, set, 0);
	return 0;
}

/* On the server. */
static void close_region(struct soda_region *r, struct soda_why *why)
{
	struct soda_why said = { "" };
	int ret = soda_session_close_region(r, &said);

	if (!ret)
		return;
	snprintf(why->text, sizeof(why->text),
		 "%.60s is freed here, but %.60s keeps it until the program ends: %.75s",
		 r->name[0] ? r->name
		 : r->file  ? r->file
			    : "an object",
		 soda_session_peer(), said.text[0] ? said.text : soda_strerror(ret));
	soda_log_error("%s", why->text);
}

static int open_and_place(struct soda_region *r, uint32_t *next, struct soda_why *why)
{
	int ret = soda_session_open_region(r, why);

	if (ret)
		return ret;
	ret = place(r, next, why);
	if (ret)
		close_region(r, &(struct soda_why){ "" });
	return ret;
}

/*
 * From now on a recovery sees it.  False: there has been one already since it was opened, with a
 * server that does not have it.
 */
static bool publish(struct soda_region *r)
{
	bool good;

	soda_regions_lock();
	good = r->meeting == soda_recover_meeting();
	if (good) {
		atomic_store_explicit(&objects[r->id], r, memory_order_release);
	} else {
		mprotect(soda_chunk_address(r->first), r->span, PROT_NONE);
		mark_granules(r, 0);
	}
	soda_regions_unlock();
	return good;
}

int soda_region_create(const char *file, uint64_t bytes, uint32_t flags,
		       struct soda_region **region_p, struct soda_why *why)
{
	struct soda_region *r = get_descriptor();
	int ret = find_id();

	if (!r || ret < 0) {
		snprintf(why->text, sizeof(why->text), "65534 objects are allocated: free some");
		if (r)
			put_descriptor(r);
		return -ENOSPC;
	}
	r->id = (uint16_t)ret;
	r->flags = flags & ~(uint32_t)SODA_REGION_HEAP;
	r->file = file ? strdup(file) : NULL;
	do {
		r->bytes = bytes;
		ret = open_and_place(r, flags & SODA_REGION_HEAP ? &next_of_heap : &next_granule,
				     why);
	} while (!ret && !publish(r));
	if (ret) {
		put_descriptor(r);
		return ret;
	}
	atomic_fetch_add(&soda_agent.fam_bytes, r->span);
	*region_p = r;
	return 0;
}

void soda_region_destroy(struct soda_region *r, struct soda_why *why)
{
	char *base = soda_chunk_address(r->first);
	uint64_t page = SODA_WIRE_PAGE;
	uintptr_t entries = ((uintptr_t)&soda_agent.table[r->first] + page - 1) & ~(page - 1);
	uintptr_t end = (uintptr_t)&soda_agent.table[r->first + r->chunks] & ~(page - 1);
	int kept; /* not 0: nothing else may come to lie there, the addresses are used up */

	soda_freeze_end(r);
	kept = soda_retire_range(r->first, r->chunks);
	if (kept == -ETIMEDOUT) {
		soda_log_error(
			"%llu bytes of fabric memory cannot be freed: a part of them has been in "
			"use for longer than a fault and a reconnection may take",
			(unsigned long long)r->bytes);
		return;
	}
	soda_regions_lock();
	r->going = true;
	soda_regions_unlock();
	mprotect(base, r->span, PROT_NONE);
	if (soda_handler_mapped_over() && soda_regions_map_anew(base, r->span, PROT_NONE))
		kept = -ENOMEM;
	close_region(r, why);
	atomic_fetch_sub(&soda_agent.fam_bytes, r->span);
	soda_regions_lock();
	soda_recover_forget(r->first, r->chunks);
	atomic_store(&objects[r->id], NULL);
	mark_granules(r, kept ? no_object : 0);
	soda_regions_unlock();
	if (entries < end) /* whole pages of the table that nobody else uses */
		madvise((void *)entries, end - entries, MADV_DONTNEED);
	soda_guess_forget(r->first, r->chunks);
	soda_owed_forget(r->first, r->chunks);
	put_descriptor(r);
}
