/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/areas.h"

#include <errno.h>
#include <stdio.h>

#include "dpu_agent/movement/memory.h"

/* With the page of the word behind the data. */
static uint64_t whole(uint64_t bytes)
{
	return soda_move_area_tail_at(bytes) + SODA_MOVE_AREA_TAIL_BYTES;
}

static struct soda_move_area_tail *tail(const struct soda_area *a)
{
	return (struct soda_move_area_tail *)(void *)(a->memory + a->bytes);
}

int soda_area_make(struct soda_buffers *all, uint64_t bytes, uint32_t tenant,
		   struct soda_area *area_p, struct soda_why *why)
{
	struct soda_area a = { .bytes = soda_move_area_tail_at(bytes), .tenant = tenant };
	int ret;

	if (!bytes || bytes > SODA_MOVE_BYTES_MAX) {
		snprintf(why->text, sizeof(why->text), "memory that is shared has 1 to %llu bytes",
			 SODA_MOVE_BYTES_MAX);
		return -EINVAL;
	}
	ret = soda_buffers_take(all, tenant, whole(bytes), why);
	if (ret < 0)
		return ret;
	ret = soda_memory_make("soda-move-area", whole(bytes), SODA_MEMORY_MAPPED, &a.fd, &a.memory,
			       why);
	if (ret < 0) {
		soda_buffers_give(all, tenant, whole(bytes));
		return ret;
	}
	atomic_store_explicit(&tail(&a)->stands, 1, memory_order_relaxed); /* nobody has it yet */
	*area_p = a;
	return 0;
}

void soda_area_unmake(struct soda_buffers *all, struct soda_area *a)
{
	if (!a->memory)
		return;
	soda_memory_unmake(a->fd, a->memory, whole(a->bytes));
	soda_buffers_give(all, a->tenant, whole(a->bytes));
	*a = (struct soda_area){ .memory = NULL };
}

int soda_areas_resolve(const struct soda_areas *areas, struct soda_wire_piece *pieces, size_t n,
		       uint64_t *used_p, uint64_t *bytes_p, const char **what_p)
{
	*used_p = *bytes_p = 0;
	for (struct soda_wire_piece *p = pieces; p < pieces + n; p++) {
		const struct soda_area *a;

		if (!soda_wire_piece_in_area(p))
			continue;
		a = &areas->at[p->fill - SODA_WIRE_PIECE_AREA];
		*what_p = "a piece lies in shared memory that is not there";
		if (!a->memory)
			return -EINVAL;
		*what_p = "a piece ends behind the shared memory that it lies in";
		/* no sum overflows: the list has been checked */
		if (p->from + (p->count - 1) * p->stride + p->bytes > a->bytes)
			return -EINVAL;
		p->from += (uintptr_t)a->memory;
		*used_p |= 1ull << (p->fill - SODA_WIRE_PIECE_AREA);
		*bytes_p += p->bytes * p->count;
	}
	return 0;
}

bool soda_areas_stand(const struct soda_areas *areas, uint64_t used)
{
	/*
	 * What has been copied before was loaded before these words: the library exchanges them for
	 * 0 before the program can store anything new (its areas.c).
	 */
	atomic_thread_fence(memory_order_acquire);
	for (; used; used &= used - 1) {
		const struct soda_area *a = &areas->at[__builtin_ctzll(used)];

		if (atomic_load_explicit(&tail(a)->stands, memory_order_relaxed) != 1)
			return false;
	}
	return true;
}
