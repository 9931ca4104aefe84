/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of requests that wait in the agent, of all sessions: half of --buffers for WRITEs, the
 * other half for READs.  Tenants have shares of it (base/shares.h).  A tenant may have the part
 * that is kept for it also where others have more than there is, as each client may always have a
 * little.
 *
 * Threads: any.  The lock is a leaf, and nobody takes it in an agent without tenants.
 */
#ifndef SODA_DPU_AGENT_ALLOTMENT_H
#define SODA_DPU_AGENT_ALLOTMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/shares.h"

struct soda_allotment {
	uint64_t total;		/* bytes; set before use, then constant */
	_Atomic uint64_t taken; /* relaxed: a sum orders nothing */
	pthread_mutex_t lock;
	struct soda_shares shares; /* guarded by lock; all of it is `taken`, of tenants */
};

void soda_allotment_init(struct soda_allotment *a, uint64_t total);
/* At the end; threads that have been left behind may still give back their part. */
void soda_allotment_destroy(struct soda_allotment *a);
/* Before the first of this tenant (0: nobody's) is counted. 0; -ENOMEM. */
int soda_allotment_prepare(struct soda_allotment *a, uint32_t tenant);
/* So many bytes more are the tenant's, or (negative) fewer; whether there is room or not. */
void soda_allotment_count(struct soda_allotment *a, uint32_t tenant, int64_t bytes);
/* How many bytes more the tenant may have. */
uint64_t soda_allotment_left(struct soda_allotment *a, struct soda_holder holder);

#endif
