/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host_agent/object/frozen.h"
#include "host_agent/object/sealing.h"

bool (*_Atomic soda_chunk_closed)(uint32_t id);

/* No object ever has this number; in the granule table it means: no object may be placed here. */
static const uint16_t no_object = SODA_REGIONS_MAX;

static struct soda_region *_Atomic objects[SODA_REGIONS_MAX + 1];
static _Atomic uint16_t *granules; /* object of each granule, 0: none; changed with api_lock */
static uint32_t granules_n;
static uint32_t next_granule;	 /* where the next search starts; api_lock */
static uint32_t next_of_heap;	 /* the same for the heap's objects: in the last eighth, at first */
static uint16_t next_id;	 /* numbers are reused as late as possible; api_lock */
static _Atomic uint32_t ids_end; /* no object ever had this number or a higher one; api_lock */
/* Guards changes of objects[], which is read without it. */
static struct soda_lock table_lock = SODA_LOCK_INIT(SODA_RANK_REGIONS);

int soda_regions_start(uint64_t bytes)
{
	void *p;

	granules_n = (uint32_t)(bytes >> SODA_GRANULE_SHIFT);
	next_of_heap = granules_n - granules_n / 8;
	next_id = 1;
	p = mmap(NULL, granules_n * sizeof(*granules), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	granules = p == MAP_FAILED ? NULL : p;
	return granules ? 0 : -ENOMEM;
}

void soda_regions_undo(void)
{
	if (granules)
		munmap(granules, granules_n * sizeof(*granules));
	granules = NULL;
	granules_n = 0;
}

/*
 * The structs of objects do not come from malloc(): the heap's hooks make objects while a malloc()
 * of the program waits for them.  No more of the array is touched than there ever were objects at
 * once.
 */
static struct soda_region descriptors[SODA_REGIONS_MAX];
static uint32_t descriptors_n;	   /* structs that were ever used; api_lock */
static struct soda_region *unused; /* structs that are free again; api_lock */

static void put_descriptor(struct soda_region *r)
{
	free(r->file);
	free(r->doubtful);
	r->next = unused;
	unused = r;
}

/* A struct that is zero but for the link; NULL: all are in use. */
static struct soda_region *get_descriptor(void)
{
	struct soda_region *r;

	if (!unused && descriptors_n < SODA_REGIONS_MAX)
		put_descriptor(&descriptors[descriptors_n++]);
	r = unused;
	if (r) {
		unused = r->next;
		memset(r, 0, sizeof(*r));
		r->link = &soda_agent.links[0];
	}
	return r;
}

void soda_regions_forget(void)
{
	for (uint32_t i = 1, end = atomic_load(&ids_end); i < end; i++) {
		struct soda_region *r = atomic_exchange(&objects[i], NULL);

		if (r) {
			soda_frozen_forget(r);
			soda_sealing_end(r);
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

	return r && !r->continues && soda_chunk_address(r->first) == p ? r : NULL;
}

struct soda_region *soda_region_range(const void *addr, uint64_t bytes, uint32_t *first_p,
				      uint32_t *last_p)
{
	struct soda_region *r = soda_agent_owns(addr) ? soda_region_of(soda_chunk_of(addr)) : NULL;
	uint64_t at, all = bytes;

	if (!r)
		return NULL;
	at = (uint64_t)((const char *)addr - soda_chunk_address(r->first));
	if (at >= r->span)
		return NULL;
	for (const struct soda_region *in = r; bytes > in->span - at; at = 0) {
		bytes -= in->span - at;
		in = in->rest;
		if (!in)
			return NULL;
	}
	bytes = all;
	*first_p = soda_chunk_of(addr);
	*last_p = bytes ? soda_chunk_of((const char *)addr + bytes - 1) : *first_p;
	return r;
}

bool soda_region_any_sealed(const void *addr, uint64_t bytes)
{
	const uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	const uintptr_t base = (uintptr_t)soda_agent.base;
	uintptr_t at = (uintptr_t)addr, end = bytes > UINTPTR_MAX - at ? UINTPTR_MAX : at + bytes;

	if (at < base)
		at = base;
	for (; at < end && soda_agent_owns((const void *)at);
	     at += granule - (at - base) % granule) {
		const struct soda_region *r = soda_region_of(soda_chunk_of((const void *)at));

		if (r && r->sealing)
			return true;
	}
	return false;
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

void soda_region_use(struct soda_region *r)
{
	atomic_fetch_add(&r->users, 1);
}

struct soda_region *soda_region_use_next(uint32_t *id_p)
{
	for (uint32_t end = atomic_load(&ids_end); *id_p < end;) {
		struct soda_region *r = atomic_load(&objects[(*id_p)++]);

		if (r) {
			soda_region_use(r);
			return r;
		}
	}
	return NULL;
}

void soda_region_unuse(struct soda_region *r)
{
	if (atomic_fetch_sub(&r->users, 1) == 1)
		soda_futex_wake(&r->users, INT32_MAX);
}

static int find_used(struct soda_region *r, void *arg)
{
	struct soda_region **used_p = arg;

	if (atomic_load(&r->users))
		*used_p = r;
	return *used_p != NULL;
}

static struct soda_region *used_of(struct soda_region *r)
{
	struct soda_region *used = NULL;

	if (!r)
		soda_regions_each(find_used, &used);
	for (; r && !used; r = r->rest)
		find_used(r, &used);
	return used;
}

bool soda_region_await_unused(struct soda_region *r)
{
	struct soda_region *used = used_of(r);
	uint32_t users;

	if (!used)
		return true;
	users = atomic_load(&used->users);
	soda_lock_release(&soda_agent.api_lock);
	if (users) /* its struct is never unmapped, whatever becomes of the object now */
		soda_futex_wait(&used->users, users, SODA_MS_NS * 1000);
	soda_lock_acquire(&soda_agent.api_lock);
	return false;
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

static void mark_granules(const struct soda_region *r, uint16_t id)
{
	uint32_t shift = SODA_GRANULE_SHIFT - soda_agent.chunk_shift;
	uint32_t g = r->first >> shift, n = (r->chunks + (1u << shift) - 1) >> shift;

	for (uint32_t i = 0; i < n; i++)
		atomic_store_explicit(&granules[g + i], id, memory_order_release);
}

/* A bit for each number that was kept (soda_region_id_keep) and not yet released. */
static _Atomic uint64_t kept_ids[SODA_REGIONS_MAX / 64 + 1];

/* For which server. */
static _Atomic uint8_t kept_for[SODA_REGIONS_MAX + 1];

void soda_region_id_keep(uint16_t id, uint32_t server)
{
	atomic_store(&kept_for[id], (uint8_t)server);
	atomic_fetch_or(&kept_ids[id / 64], 1ull << id % 64);
}

bool soda_region_id_is_kept(uint16_t id)
{
	return atomic_load(&kept_ids[id / 64]) >> id % 64 & 1;
}

bool soda_region_id_is_kept_by(uint16_t id, uint32_t server)
{
	return soda_region_id_is_kept(id) && atomic_load(&kept_for[id]) == server;
}

void soda_region_id_release(uint16_t id)
{
	atomic_fetch_and(&kept_ids[id / 64], ~(1ull << id % 64));
}

void soda_region_ids_release(uint32_t server)
{
	for (uint32_t i = 0; i < sizeof(kept_ids) / sizeof(kept_ids[0]); i++)
		for (uint64_t w = atomic_load(&kept_ids[i]); w; w &= w - 1) {
			uint16_t id = (uint16_t)(i * 64 + (uint32_t)__builtin_ctzll(w));

			if (atomic_load(&kept_for[id]) == server)
				soda_region_id_release(id);
		}
}

/* A bit for each number that a copy of a slab has. */
static _Atomic uint64_t copy_ids[SODA_REGIONS_MAX / 64 + 1];

static bool is_copy(uint16_t id)
{
	return atomic_load(&copy_ids[id / 64]) >> id % 64 & 1;
}

static int find_id(void)
{
	for (uint32_t i = 0; i < SODA_REGIONS_MAX; i++) {
		uint16_t id = next_id++;

		if (!next_id)
			next_id = 1;
		if (!id || id == no_object || atomic_load(&objects[id]) ||
		    soda_region_id_is_kept(id) || is_copy(id))
			continue;
		if (id >= atomic_load(&ids_end))
			atomic_store(&ids_end, id + 1u);
		return id;
	}
	return -ENOSPC;
}

struct soda_region *soda_region_take(void)
{
	int id = find_id();
	struct soda_region *r = id < 0 ? NULL : get_descriptor();

	if (r)
		r->id = (uint16_t)id;
	return r;
}

void soda_region_put(struct soda_region *r)
{
	put_descriptor(r);
}

struct soda_region *soda_region_take_copy(void)
{
	struct soda_region *r = soda_region_take();

	if (r)
		atomic_fetch_or(&copy_ids[r->id / 64], 1ull << r->id % 64);
	return r;
}

struct soda_region *soda_region_take_twin(const struct soda_region *r)
{
	struct soda_region *twin = get_descriptor();

	if (twin) {
		twin->id = r->id;
		twin->twin = true;
	}
	return twin;
}

void soda_region_put_copy(struct soda_region *r)
{
	if (!r->twin) /* else the number is, or was, another region's */
		atomic_fetch_and(&copy_ids[r->id / 64], ~(1ull << r->id % 64));
	put_descriptor(r);
}

bool soda_retired_due(const struct soda_retired *retired)
{
	return (retired->young || retired->old) &&
	       soda_now_ns() - retired->aged_ns > SODA_REBUILD_RETIRED_MS * SODA_MS_NS;
}

void soda_retired_age(struct soda_retired *retired)
{
	for (struct soda_region *r = retired->old, *next; r; r = next) {
		next = r->next;
		soda_region_put_copy(r);
	}
	*retired = (struct soda_retired){ .old = retired->young, .aged_ns = soda_now_ns() };
}

bool soda_region_find_room(struct soda_region *r, bool of_heap)
{
	uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	int64_t g = find_granules((uint32_t)((r->span + granule - 1) >> SODA_GRANULE_SHIFT),
				  of_heap ? &next_of_heap : &next_granule);

	if (g < 0)
		return false;
	r->first = (uint32_t)g << (SODA_GRANULE_SHIFT - soda_agent.chunk_shift);
	soda_region_count_chunks(r);
	return true;
}

void soda_region_count_chunks(struct soda_region *r)
{
	r->chunks = (uint32_t)((r->span + soda_chunk_bytes() - 1) >> soda_agent.chunk_shift);
}

void soda_region_occupy(const struct soda_region *r)
{
	mark_granules(r, r->id);
}

void soda_region_show_locked(struct soda_region *r)
{
	atomic_store_explicit(&objects[r->id], r, memory_order_release);
}

void soda_region_vacate(const struct soda_region *r)
{
	mark_granules(r, 0);
}

void soda_region_hide_locked(const struct soda_region *r, bool used_up)
{
	atomic_store(&objects[r->id], NULL);
	mark_granules(r, used_up ? no_object : 0);
}
