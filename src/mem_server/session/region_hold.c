/* SPDX-License-Identifier: BSD-3-Clause */
/* The data path: from a request to memory, and the holds that keep it there. */
#include "mem_server/session/region_hold.h"

#include <errno.h>
#include <time.h>

#include "mem_server/base/counters.h"

#define OPEN 0x80000000u

struct soda_region *soda_region_slot_get(const struct soda_region_slot *slot)
{
	return atomic_load(&slot->state) & OPEN ? slot->region : NULL;
}

void soda_region_slot_open(struct soda_region_slot *slot, struct soda_region *region)
{
	slot->region = region;
	/* release: pairs with the acquire in take() */
	atomic_fetch_or_explicit(&slot->state, OPEN, memory_order_release);
}

static void drop(struct soda_region_set *set, struct soda_region_slot *slot)
{
	/* release: pairs with the acquire in soda_region_slot_close */
	uint32_t before = atomic_fetch_sub_explicit(&slot->state, 1, memory_order_release);

	if (before != 1)
		return;
	/* Closed, and the last: its closer may be waiting. */
	pthread_mutex_lock(&set->lock);
	pthread_cond_broadcast(&set->released);
	pthread_mutex_unlock(&set->lock);
}

static struct soda_region *take(struct soda_region_set *set, struct soda_region_slot *slot)
{
	if (atomic_fetch_add_explicit(&slot->state, 1, memory_order_acquire) & OPEN)
		return slot->region;
	drop(set, slot);
	return NULL;
}

static struct timespec deadline(uint32_t ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += (long)(ms % 1000) * 1000000;
	if (at.tv_nsec >= 1000000000) {
		at.tv_nsec -= 1000000000;
		at.tv_sec++;
	}
	return at;
}

int soda_region_slot_close(struct soda_region_set *set, struct soda_region_slot *slot)
{
	struct timespec until = deadline(set->pool->close_ms);
	int r = 0;

	atomic_fetch_and(&slot->state, ~OPEN);
	pthread_mutex_lock(&set->lock);
	while (!r && atomic_load_explicit(&slot->state, memory_order_acquire))
		r = -pthread_cond_timedwait(&set->released, &set->lock, &until);
	if (!atomic_load_explicit(&slot->state, memory_order_acquire))
		r = 0;
	pthread_mutex_unlock(&set->lock);
	return r ? -EBUSY : 0;
}

int soda_region_acquire(struct soda_region_set *set, bool write, uint16_t id, uint64_t page_offset,
			uint32_t size, struct soda_span *span_p)
{
	struct soda_region_slot *slot = &set->slots[id];
	struct soda_region *region = take(set, slot);
	const struct soda_memory *memory;
	int r = -EINVAL;

	if (!region)
		return r;
	memory = region->file ? &region->file->memory : &region->own;
	if (write && !region->writable)
		r = -EACCES;
	else if (!soda_wire_check_range(page_offset, size, memory->backing_bytes))
		r = 0;
	if (r) {
		drop(set, slot);
		return r;
	}
	span_p->offset = page_offset * SODA_WIRE_PAGE;
	span_p->memory = memory->map + span_p->offset;
	span_p->bytes = size;
	span_p->hold = slot;
	return 0;
}

void soda_region_release(struct soda_region_set *set, const struct soda_span *span, bool landed)
{
	struct soda_region_slot *slot = span->hold;
	const struct soda_file *file = slot->region->file;

	if (landed && file && file->memory.dirty) {
		uint64_t last = (span->offset + span->bytes - 1) / SODA_DIRTY_UNIT;

		/* release: after the data; pairs with take_dirty in file_sync.c */
		for (uint64_t i = span->offset / SODA_DIRTY_UNIT; i <= last; i++)
			__atomic_store_n(&file->memory.dirty[i], 1, __ATOMIC_RELEASE);
	}
	drop(set, slot);
}
