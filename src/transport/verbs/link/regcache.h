/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration cache: what a device has registered of a daemon's memory (memory.h).  It has
 * one protection domain a device, for all connections that send from that memory or receive into
 * it, on both sides of a DPU agent.  A peer can reach nothing of it: the keys are local ones.
 */
#ifndef SODA_REGCACHE_H
#define SODA_REGCACHE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soda_regcache {
	struct soda_regcache *next; /* guarded by soda_memory_lock, and so refs */
	unsigned refs;
	struct ibv_pd *pd;
};

/* The device's, with a reference. 0; -ENOMEM and other errors. */
int soda_regcache_get(struct ibv_context *device, struct soda_regcache **cache_p);
/* The last one ends its keys. NULL is a no-op. */
void soda_regcache_put(struct soda_regcache *cache);
/* The key of memory that was told of.  False: it was not, or cannot be registered. */
bool soda_regcache_lkey(struct soda_regcache *cache, const void *memory, uint64_t bytes,
			uint32_t *lkey_p);

#endif
