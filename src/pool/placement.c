/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool/pool.h"

/* The member at place `at`, from 0, of those that have the room. */
static int nth(const struct soda_candidate *members, uint32_t n, uint64_t bytes, uint64_t at)
{
	uint32_t i = 0;

	for (; i < n; i++)
		if (!members[i].refused && members[i].free_bytes >= bytes && at-- == 0)
			break;
	return (int)i;
}

static int with_most(const struct soda_candidate *members, uint32_t n)
{
	int best = -1;

	for (uint32_t i = 0; i < n; i++)
		if (!members[i].refused &&
		    (best < 0 || members[i].free_bytes > members[best].free_bytes))
			best = (int)i;
	return best;
}

int soda_placement_choose(const struct soda_candidate *members, uint32_t n, uint64_t bytes,
			  uint64_t random)
{
	uint64_t fit = 0, first, second;
	int a, b;

	for (uint32_t i = 0; i < n; i++)
		fit += !members[i].refused && members[i].free_bytes >= bytes;
	if (!fit)
		return with_most(members, n);
	first = (random & UINT32_MAX) % fit;
	second = fit > 1 ? (first + 1 + (random >> 32) % (fit - 1)) % fit : first;
	a = nth(members, n, bytes, first);
	b = nth(members, n, bytes, second);
	return members[b].free_bytes > members[a].free_bytes ? b : a;
}

void soda_placement_exclude(struct soda_candidate *members, uint32_t n, uint32_t domain)
{
	for (uint32_t i = 0; i < n; i++)
		if (members[i].domain == domain)
			members[i].refused = true;
}

uint32_t soda_placement_domains(const struct soda_candidate *members, uint32_t n)
{
	uint32_t domains = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool seen = members[i].refused;

		for (uint32_t k = 0; k < i && !seen; k++)
			seen = !members[k].refused && members[k].domain == members[i].domain;
		domains += !seen;
	}
	return domains;
}

uint64_t soda_placement_slab(uint64_t left, uint64_t most, uint64_t refused, uint64_t unit)
{
	uint64_t bytes = most;

	if (refused) {
		bytes = (refused / 2 + unit - 1) / unit * unit;
		if (bytes >= refused)
			return 0;
	}
	return bytes < left ? bytes : left;
}
