/* SPDX-License-Identifier: BSD-3-Clause */
/* What the statistics say of the caches. */
#ifndef SODA_DPU_AGENT_CACHE_STATS_H
#define SODA_DPU_AGENT_CACHE_STATS_H

#include <jansson.h>
#include <stdbool.h>

struct soda_dpu;

/* Into the agent's object; owners: with the list of them, which may be long. */
void soda_caches_describe(struct soda_dpu *dpu, json_t *object, bool owners);

#endif
