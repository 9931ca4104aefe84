/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fault/has.h"

#include "host_agent/core/chunk.h"

/* Resident, under way, or zeros that nobody wrote. */
static uint64_t has(uint32_t id)
{
	enum soda_chunk_state state = soda_chunk_state(soda_chunk_load(&soda_agent.table[id]));

	return state != SODA_CHUNK_REMOTE && state != SODA_CHUNK_LOST;
}

void soda_has_around(const struct soda_region *r, uint32_t id, struct soda_wire_has *has_p)
{
	uint32_t behind = r->first + r->chunks - 1 - id, before = id - r->first;

	*has_p = (struct soda_wire_has){ 0 };
	for (uint32_t i = 0; i < 64 && i < behind; i++)
		has_p->after |= has(id + 1 + i) << i;
	for (uint32_t i = 0; i < 64 && i < before; i++)
		has_p->before |= has(id - 1 - i) << i;
}
