/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrival order: the chunk that came first is evicted first. A baseline for measurements. */
#include "host_agent/core/replace.h"

enum { ALL = 1 };

static void fifo_insert(struct soda_shard *s, uint32_t id)
{
	soda_list_push(s, ALL, id);
}

static uint32_t fifo_victim(struct soda_shard *s)
{
	return s->head[ALL];
}

static void fifo_spare(struct soda_shard *s, uint32_t id)
{
	soda_list_remove(s, id);
	soda_list_push(s, ALL, id);
}

static void fifo_evicted(struct soda_shard *s, uint32_t id)
{
}

const struct soda_policy soda_policy_fifo = {
	.name = "fifo",
	.insert = fifo_insert,
	.victim = fifo_victim,
	.spare = fifo_spare,
	.evicted = fifo_evicted,
};
