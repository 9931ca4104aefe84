/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The recent list of the paper: a ring of the last 128 requests.  Requests go in
 * on the path of a READ, the prefetch workers take them out; when they come too
 * fast the oldest are overwritten, which costs predictions, nothing else.
 */
#ifndef SODA_DPU_RECENT_LIST_H
#define SODA_DPU_RECENT_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "dpu_agent/cache/dynamic/dynamic_cache.h"
#include "wire/wire.h"

enum { SODA_RECENT_MAX = 128 };

/* Which chunks around `at` the client of a request has (wire.h); chunk_bytes is the client's, 0:
 * the client has not told. */
struct soda_recent_residency {
	struct soda_wire_residency near;
	uint64_t at;
	uint32_t chunk_bytes;
};

struct soda_recent {
	uint64_t offset; /* in the owner */
	uint32_t bytes, owner;
	uint32_t slot; /* SODA_CACHE_NONE: a miss */
	enum soda_cache_answer answer;
	struct soda_recent_residency residency;
};

struct soda_recent_list {
	struct soda_lock lock;
	uint64_t head, tail; /* guarded by lock, as all below; head - tail <= SODA_RECENT_MAX */
	uint64_t lost;	     /* overwritten before they were taken */
	struct soda_recent ring[SODA_RECENT_MAX];
};

/*
 * Which of the 64 parts of part_bytes from `at` on the client of the request has, each as a
 * whole.  `at`: in the owner, a multiple of part_bytes.
 */
uint64_t soda_recent_resident(const struct soda_recent *item, uint64_t at, uint32_t part_bytes);

/* Give each request the latest residency that its client has told of that place. */
void soda_recent_refresh(struct soda_recent *items, uint32_t n);

void soda_recent_init(struct soda_recent_list *list);
/* How many are in the list now. */
uint32_t soda_recent_push(struct soda_recent_list *list, const struct soda_recent *item);
/* Take the oldest, up to max; how many. */
uint32_t soda_recent_take(struct soda_recent_list *list, struct soda_recent *items, uint32_t max);

#endif
