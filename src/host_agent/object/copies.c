/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/copies.h"

#include <stddef.h>

static _Atomic uint64_t dropped; /* current copies */

int soda_copy_on(const struct soda_region *r, const struct soda_link *link)
{
	for (uint32_t k = 0; k < soda_copy_places(r); k++)
		if (!soda_copy_place_free(r, k) && soda_copy_link(r, k) == link)
			return (int)k;
	return -1;
}

struct soda_region *soda_copy_with(struct soda_region *r, const struct soda_link *link,
				   uint64_t bit)
{
	int k = soda_copy_on(r, link);
	struct soda_region *copy;

	if (bit == SODA_COPIES_CURRENT && atomic_load(&r->nowhere))
		return NULL;
	if (k < 0 || !(soda_copies(r) & bit << k))
		return NULL;
	copy = r->copy[k];
	return copy && copy->link == link ? copy : NULL;
}

/* With erasure codes: one that is UP, if enough are; else one to wait for. */
static struct soda_link *choose_of_pieces(const struct soda_region *r, uint32_t current)
{
	struct soda_link *up = NULL, *away = NULL;
	uint32_t found = 0;

	for (uint32_t rest = current; rest; rest &= rest - 1) {
		struct soda_link *link = soda_copy_link(r, (uint32_t)__builtin_ctz(rest));

		if (soda_server_up(&link->server)) {
			up = link;
			found |= rest & -rest;
		} else {
			away = link;
		}
	}
	return soda_copies_current(r, found) >= r->pieces || !away ? up : away;
}

struct soda_link *soda_copies_choose(const struct soda_region *r, const struct soda_link *avoid,
				     uint32_t turn)
{
	uint32_t current = (uint32_t)soda_copies(r);
	struct soda_link *best = NULL;
	int most = -1;

	if (r->pieces)
		return choose_of_pieces(r, current);

	for (uint32_t rest = current; rest; rest &= rest - 1) {
		uint32_t k = (uint32_t)__builtin_ctz(rest);
		struct soda_link *link = soda_copy_link(r, k);
		int score;

		score = (soda_server_up(&link->server) ? 8 : 0) + (link != avoid ? 4 : 0) +
			(atomic_load_explicit(&link->late, memory_order_relaxed) ? 0 : 2) +
			(k % 2 == turn % 2);
		if (score > most) {
			most = score;
			best = link;
		}
	}
	return best;
}

int soda_copies_next(const struct soda_region *r, uint32_t done)
{
	uint32_t written;

	/* pairs with the fence of soda_copies_begin() */
	atomic_thread_fence(memory_order_seq_cst);
	written = (uint32_t)(soda_copies(r) / SODA_COPIES_WRITTEN) & ~done;
	return written ? __builtin_ctz(written) : -1;
}

bool soda_copies_leave(struct soda_region *r, uint32_t k)
{
	uint64_t both = (SODA_COPIES_CURRENT | SODA_COPIES_WRITTEN) << k;
	uint64_t copies = soda_copies(r);

	do {
		if (soda_copies_current(r, copies & ~both) < soda_copies_needed(r))
			return false;
	} while (!atomic_compare_exchange_weak(&r->copies, &copies, copies & ~both));
	return true;
}

bool soda_copies_drop(struct soda_region *r, uint32_t k)
{
	bool current = soda_copy_is_current(soda_copies(r), k);

	if (!soda_copies_leave(r, k))
		return false;
	if (current) /* two threads may count one copy: statistics */
		atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
	return true;
}

uint64_t soda_copies_dropped(void)
{
	return atomic_load_explicit(&dropped, memory_order_relaxed);
}

void soda_copies_begin(struct soda_region *r, uint32_t k)
{
	atomic_fetch_or(&r->copies, SODA_COPIES_WRITTEN << k);
	atomic_thread_fence(memory_order_seq_cst);
}

bool soda_copies_complete(struct soda_region *r, uint32_t k)
{
	uint64_t copies = soda_copies(r);

	do {
		if (!soda_copy_is_written(copies, k))
			return false;
	} while (!atomic_compare_exchange_weak(&r->copies, &copies,
					       copies | SODA_COPIES_CURRENT << k));
	return true;
}
