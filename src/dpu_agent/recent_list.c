/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/recent_list.h"

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
