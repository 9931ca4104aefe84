/* SPDX-License-Identifier: BSD-3-Clause */
/* Of the prefetcher's view the node's store knows what is there, and what programs have touched. */
#include "dpu_agent/cache/dynamic/budget.h"
#include "dpu_agent/paging/store.h"

uint64_t soda_view_lacks(void *view, uint64_t offset, uint64_t bytes)
{
	return soda_node_lacks(view, offset, bytes);
}

uint32_t soda_view_touched(void *view, uint64_t *offsets, uint32_t max)
{
	return soda_node_touched(view, offsets, max);
}

void soda_view_news(void *view, struct soda_budget_news *news_p)
{
	struct soda_node_news news;

	soda_node_take_news(view, &news);
	*news_p = (struct soda_budget_news){
		.asked = news.asked, .given = news.used, .used = news.used, .unused = news.unused
	};
}
