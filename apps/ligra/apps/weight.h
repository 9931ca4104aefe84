/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Edge weights as the Ligra paper draws them: random integers from 1 to the
 * logarithm of the number of vertices.  A function of the edge's ends, the
 * same in both directions, so that they need no memory.
 */
#ifndef LIGRA_WEIGHT_H
#define LIGRA_WEIGHT_H

#include "ligra/apps/hash.h"

struct weights {
	uint32_t most;
};

static inline struct weights weights_of(uint64_t vertices)
{
	return (struct weights){ vertices < 4 ? 1 : 63 - (uint32_t)__builtin_clzll(vertices) };
}

static inline uint32_t weight(struct weights w, uint32_t a, uint32_t b)
{
	uint64_t low = a < b ? a : b, high = a < b ? b : a;

	return 1 + (uint32_t)((hash_mix(high << 32 | low) >> 32) * w.most >> 32);
}

#endif
