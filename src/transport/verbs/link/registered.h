/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that a device may read and write.  The kernel pins it, and so it counts within the limit
 * of locked memory.
 */
#ifndef SODA_VERBS_REGISTERED_H
#define SODA_VERBS_REGISTERED_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/api/transport_impl.h"

/*
 * Register memory; iova 0: remote addresses are offsets.  The limit of locked memory is
 * looked at before. 0; -ENOMEM and other errors, with why.
 */
int soda_verbs_register(struct ibv_pd *pd, void *memory, uint64_t bytes, int access,
			struct ibv_mr **mr_p, struct soda_why *why);
/*
 * For reads by a peer alone, at the addresses that it has here: not only whole pages.  -EFAULT: it
 * is not there, or not to be written to.
 */
int soda_verbs_expose(struct ibv_pd *pd, void *memory, uint64_t bytes, struct ibv_mr **mr_p,
		      struct soda_why *why);
void soda_verbs_unregister(struct ibv_mr *mr);
/*
 * Memory of a connection's own: zeroed, of whole pages, not in children, near the device
 * (soda_node_near). NULL: none.
 */
void *soda_verbs_map(const struct ibv_context *device, uint64_t bytes);
/* The device's NUMA node, or SODA_NODE_ANY. */
int soda_verbs_node(const struct ibv_context *device);

/*
 * The registration cache: what a device has registered of a daemon's memory (memory.h).  It has
 * one protection domain a device, for all connections that send from that memory or receive into
 * it, on both sides of a DPU agent.  A peer can reach nothing of it: the keys are local ones.
 */
struct soda_regcache {
	struct soda_regcache *next; /* guarded by soda_memory_lock, and so refs */
	unsigned refs;
	bool own; /* its domain is another's, and it is in no list */
	struct ibv_pd *pd;
};

/* The device's, with a reference. 0; -ENOMEM and other errors. */
int soda_regcache_get(struct ibv_context *device, struct soda_regcache **cache_p);
/*
 * One of its own, in a domain of the caller's, which stays until soda_regcache_put(): for the
 * memory that a control connection reads the peer's into. NULL: no memory.
 */
struct soda_regcache *soda_regcache_own(struct ibv_pd *pd);
/* The last one ends its keys. NULL is a no-op. */
void soda_regcache_put(struct soda_regcache *cache);
/* The key of memory that was told of.  False: it was not, or cannot be registered. */
bool soda_regcache_lkey(struct soda_regcache *cache, const void *memory, uint64_t bytes,
			uint32_t *lkey_p);

#endif
