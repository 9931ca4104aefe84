/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/recent_list.h"

static bool has_chunk(const struct soda_recent *item, uint64_t chunk)
{
	uint64_t own = item->residency.at / item->residency.chunk_bytes;

	if (chunk > own)
		return chunk - own <= 64 && item->residency.near.after >> (chunk - own - 1) & 1;
	if (chunk < own)
		return own - chunk <= 64 && item->residency.near.before >> (own - chunk - 1) & 1;
	return true; /* it is on its way to the client */
}

uint64_t soda_recent_resident(const struct soda_recent *item, uint64_t at, uint32_t part_bytes)
{
	uint32_t chunk = item->residency.chunk_bytes;
	uint64_t parts = 0;

	if (!chunk)
		return 0;
	for (int i = 0; i < 64; i++, at += part_bytes) {
		uint64_t last = (at + part_bytes - 1) / chunk, k = at / chunk;

		while (k <= last && has_chunk(item, k))
			k++;
		parts |= (uint64_t)(k > last) << i;
	}
	return parts;
}

static bool tells_of(const struct soda_recent *later, const struct soda_recent *item)
{
	uint64_t apart = later->offset > item->offset ? later->offset - item->offset
						      : item->offset - later->offset;

	return later->owner == item->owner && later->residency.chunk_bytes &&
	       apart <= 64ull * later->residency.chunk_bytes;
}

void soda_recent_refresh(struct soda_recent *items, uint32_t n)
{
	for (uint32_t i = 0; i + 1 < n; i++)
		for (uint32_t k = n - 1; k > i && items[i].residency.chunk_bytes; k--)
			if (tells_of(&items[k], &items[i])) {
				items[i].residency = items[k].residency;
				break;
			}
}

void soda_recent_init(struct soda_recent_list *list)
{
	*list = (struct soda_recent_list){ .head = 0 };
	soda_lock_init(&list->lock, SODA_RANK_DPU_RECENT);
}

uint32_t soda_recent_push(struct soda_recent_list *list, const struct soda_recent *item)
{
	uint32_t n;

	soda_lock_acquire(&list->lock);
	list->ring[list->head++ % SODA_RECENT_MAX] = *item;
	if (list->head - list->tail > SODA_RECENT_MAX) {
		list->tail++;
		list->lost++;
	}
	n = (uint32_t)(list->head - list->tail);
	soda_lock_release(&list->lock);
	return n;
}

uint32_t soda_recent_take(struct soda_recent_list *list, struct soda_recent *items, uint32_t max)
{
	uint32_t n = 0;

	soda_lock_acquire(&list->lock);
	while (n < max && list->tail < list->head)
		items[n++] = list->ring[list->tail++ % SODA_RECENT_MAX];
	soda_lock_release(&list->lock);
	return n;
}
