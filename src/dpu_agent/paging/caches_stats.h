/* SPDX-License-Identifier: BSD-3-Clause */
/* What the statistics say of the caches. */
#ifndef SODA_DPU_AGENT_CACHE_STATS_H
#define SODA_DPU_AGENT_CACHE_STATS_H

#include "daemon/metrics.h"

struct soda_dpu;

/* Part of soda_dpu_walk: the caches, and the list of what is cached for whom. */
void soda_caches_walk(struct soda_dpu *dpu, struct soda_metrics *m);

#endif
