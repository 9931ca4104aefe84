/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device reaches of a daemon's memory (memory.h): one protection domain a device,
 * for all connections that send from that memory or receive into it, on both sides of a
 * DPU agent.  Nothing of it can be reached by a peer: the keys are local ones.
 */
#ifndef SODA_VERBS_REACH_H
#define SODA_VERBS_REACH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soda_verbs_reach {
	struct soda_verbs_reach *next; /* guarded by soda_memory_lock, and so refs */
	unsigned refs;
	struct ibv_pd *pd;
};

/* The device's, with a reference. 0; -ENOMEM and other errors. */
int soda_verbs_reach_get(struct ibv_context *device, struct soda_verbs_reach **reach_p);
/* The last one ends its keys. NULL is a no-op. */
void soda_verbs_reach_put(struct soda_verbs_reach *reach);
/* The key of memory that was told of.  False: it was not, or cannot be registered. */
bool soda_verbs_reach_key(struct soda_verbs_reach *reach, const void *memory, uint64_t bytes,
			  uint32_t *lkey_p);

#endif
