/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/ghost.h"

#include <stdlib.h>
#include <string.h>

enum { WAYS = 4 };

struct soda_ghost {
	uint32_t sets;	/* a power of two; 0: one bit an entry instead */
	uint32_t words; /* of table */
	uint32_t count;
	uint64_t dice;
	uint64_t table[]; /* entry + 1; 0: free */
};

/* Words of the table, and how many sets of WAYS they are. */
static uint64_t shape(uint32_t slots, uint64_t entries, uint32_t *sets_p)
{
	uint32_t sets = 1;

	*sets_p = 0;
	if (entries <= slots)
		return (entries + 63) / 64;
	while (sets * 2 * WAYS <= slots)
		sets *= 2;
	*sets_p = sets;
	return (uint64_t)sets * WAYS;
}

size_t soda_ghost_bytes(uint32_t slots, uint64_t entries)
{
	uint32_t sets;

	return sizeof(struct soda_ghost) + shape(slots, entries, &sets) * sizeof(uint64_t);
}

struct soda_ghost *soda_ghost_create(uint32_t slots, uint64_t entries, uint64_t seed)
{
	struct soda_ghost *ghost = calloc(1, soda_ghost_bytes(slots, entries));

	if (!ghost)
		return NULL;
	ghost->words = (uint32_t)shape(slots, entries, &ghost->sets);
	ghost->dice = seed | 1;
	return ghost;
}

void soda_ghost_destroy(struct soda_ghost *ghost)
{
	free(ghost);
}

static uint64_t *set_of(const struct soda_ghost *ghost, uint64_t entry)
{
	uint64_t hash = entry * 0x9e3779b97f4a7c15ull;

	return (uint64_t *)&ghost->table[(hash >> 32 & (ghost->sets - 1)) * WAYS];
}

bool soda_ghost_has(const struct soda_ghost *ghost, uint64_t entry)
{
	const uint64_t *set;

	if (!ghost->sets)
		return ghost->table[entry / 64] >> entry % 64 & 1;
	set = set_of(ghost, entry);
	for (int i = 0; i < WAYS; i++)
		if (set[i] == entry + 1)
			return true;
	return false;
}

void soda_ghost_insert(struct soda_ghost *ghost, uint64_t entry)
{
	uint64_t *set;

	ghost->count++;
	if (!ghost->sets) {
		ghost->table[entry / 64] |= 1ull << entry % 64;
		return;
	}
	set = set_of(ghost, entry);
	for (int i = 0; i < WAYS; i++)
		if (!set[i]) {
			set[i] = entry + 1;
			return;
		}
	ghost->dice ^= ghost->dice << 13;
	ghost->dice ^= ghost->dice >> 7;
	ghost->dice ^= ghost->dice << 17;
	set[ghost->dice >> 40 & (WAYS - 1)] = entry + 1;
	ghost->count--;
}

uint32_t soda_ghost_count(const struct soda_ghost *ghost)
{
	return ghost->count;
}

void soda_ghost_clear(struct soda_ghost *ghost)
{
	memset(ghost->table, 0, ghost->words * sizeof(uint64_t));
	ghost->count = 0;
}
