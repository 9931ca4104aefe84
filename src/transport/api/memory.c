/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of memory.h, sorted by address; and the count of what is copied. */
#include "transport/api/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

pthread_rwlock_t soda_memory_lock = PTHREAD_RWLOCK_INITIALIZER;

static struct {
	struct soda_memory_part *parts; /* guarded by soda_memory_lock */
	size_t n, room;
	void (*forget)(struct soda_memory_part *part);
} all;

static _Atomic bool any;
static _Atomic uint64_t copied;

/* The first part that ends behind the address. */
static size_t behind_locked(const uint8_t *at)
{
	size_t low = 0, high = all.n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (all.parts[mid].memory + all.parts[mid].bytes <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int make_room_locked(size_t more)
{
	size_t room = all.room ? all.room : 64;
	struct soda_memory_part *parts;

	while (room < all.n + more)
		room *= 2;
	if (room == all.room)
		return 0;
	parts = reallocarray(all.parts, room, sizeof(*parts));
	if (!parts)
		return -ENOMEM;
	all.parts = parts;
	all.room = room;
	return 0;
}

int soda_memory_add(void *memory, uint64_t bytes)
{
	size_t more = (size_t)((bytes + SODA_MEMORY_PART - 1) / SODA_MEMORY_PART), at;
	int ret;

	pthread_rwlock_wrlock(&soda_memory_lock);
	ret = make_room_locked(more);
	if (ret == 0) {
		at = behind_locked(memory);
		memmove(all.parts + at + more, all.parts + at, (all.n - at) * sizeof(*all.parts));
		for (size_t i = 0; i < more; i++) {
			uint64_t begin = i * SODA_MEMORY_PART, left = bytes - begin;

			all.parts[at + i] = (struct soda_memory_part){
				.memory = (uint8_t *)memory + begin,
				.bytes = left < SODA_MEMORY_PART ? left : SODA_MEMORY_PART,
			};
		}
		all.n += more;
		atomic_store_explicit(&any, true, memory_order_relaxed);
	}
	pthread_rwlock_unlock(&soda_memory_lock);
	return ret;
}

void soda_memory_remove(void *memory, uint64_t bytes)
{
	const uint8_t *end = (uint8_t *)memory + bytes;
	size_t at, n = 0;

	pthread_rwlock_wrlock(&soda_memory_lock);
	at = behind_locked(memory);
	for (; at + n < all.n && all.parts[at + n].memory < end; n++)
		if (all.parts[at + n].keys)
			all.forget(&all.parts[at + n]);
	if (n)
		memmove(all.parts + at, all.parts + at + n, (all.n - at - n) * sizeof(*all.parts));
	all.n -= n;
	if (!all.n) {
		free(all.parts);
		all.parts = NULL;
		all.room = 0;
	}
	pthread_rwlock_unlock(&soda_memory_lock);
}

bool soda_memory_any(void)
{
	return atomic_load_explicit(&any, memory_order_relaxed);
}

struct soda_memory_part *soda_memory_find_locked(const void *memory, uint64_t bytes)
{
	const uint8_t *begin = memory;
	size_t at = behind_locked(begin);
	struct soda_memory_part *part;

	if (at == all.n)
		return NULL;
	part = &all.parts[at];
	if (begin < part->memory || bytes > part->bytes - (uint64_t)(begin - part->memory))
		return NULL;
	return part;
}

void soda_memory_each_locked(void (*each)(struct soda_memory_part *part, void *arg), void *arg)
{
	for (size_t i = 0; i < all.n; i++)
		each(&all.parts[i], arg);
}

void soda_memory_set_forget(void (*forget)(struct soda_memory_part *part))
{
	pthread_rwlock_wrlock(&soda_memory_lock);
	all.forget = forget;
	pthread_rwlock_unlock(&soda_memory_lock);
}

void soda_payload_copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	atomic_fetch_add_explicit(&copied, bytes, memory_order_relaxed);
}

uint64_t soda_payload_copied(void)
{
	return atomic_load_explicit(&copied, memory_order_relaxed);
}
