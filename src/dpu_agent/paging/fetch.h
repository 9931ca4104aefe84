/* SPDX-License-Identifier: BSD-3-Clause */
/* READs that the caches send to the server, and wait for. */
#ifndef SODA_DPU_AGENT_CACHE_FETCH_H
#define SODA_DPU_AGENT_CACHE_FETCH_H

#include "dpu_agent/paging/caches.h"

/* Who loads a range of the static cache: `source` of soda_cache_load. */
struct soda_loader {
	struct soda_session *session;
	struct soda_region *region; /* held */
};

/* As soda_prefetch_ops.fill; arg: the caches. Any region of the owner that is up will do. */
void soda_cache_fetch(void *arg, struct soda_fill *fill);
/* As soda_static_load. */
int soda_cache_load(void *source, uint64_t offset, uint8_t *memory, uint64_t bytes);

#endif
