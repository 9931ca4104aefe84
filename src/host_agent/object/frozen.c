/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/frozen.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A bit for each chunk, set where its range is FROZEN or THAWING; made with the first range. */
static struct {
	_Atomic uint64_t *_Atomic bits;
	uint64_t bytes;
} bitmap;

bool soda_frozen_has(uint32_t id)
{
	_Atomic uint64_t *bits = atomic_load(&bitmap.bits);

	return bits && atomic_load(&bits[id / 64]) >> id % 64 & 1;
}

int soda_frozen_reserve(void)
{
	uint64_t bytes = ((soda_agent.bytes >> soda_agent.chunk_shift) + 63) / 64 * 8;
	void *p;

	if (bitmap.bytes >= bytes)
		return 0;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	if (bitmap.bits)
		munmap((void *)bitmap.bits, bitmap.bytes);
	bitmap.bytes = bytes;
	atomic_store(&bitmap.bits, p);
	return 0;
}

void soda_frozen_mark(const struct soda_frozen *f, bool on)
{
	_Atomic uint64_t *bits = atomic_load(&bitmap.bits);

	for (uint64_t id = f->first; id <= f->last; id++)
		if (on)
			atomic_fetch_or(&bits[id / 64], 1ull << id % 64);
		else
			atomic_fetch_and(&bits[id / 64], ~(1ull << id % 64));
}

void soda_frozen_forget(struct soda_region *r)
{
	while (r->frozen) {
		struct soda_frozen *f = r->frozen;

		if (f->state == SODA_FROZEN || f->state == SODA_THAWING)
			soda_frozen_mark(f, false);
		r->frozen = f->next;
		free(f);
	}
}
