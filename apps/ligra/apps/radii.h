/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_RADII_H
#define LIGRA_RADII_H

#include "ligra/apps/hash.h"

#include <stdbool.h>

#define RADII_SAMPLES 64

/* The vertices that the searches begin at: pseudo-random, different; returns how many. */
static inline unsigned radii_samples(uint64_t vertices, uint32_t samples[RADII_SAMPLES])
{
	unsigned count = 0;

	for (uint64_t i = 0; count < RADII_SAMPLES && count < vertices; i++) {
		uint32_t v = (uint32_t)(hash_mix(i) % vertices);
		bool known = false;

		for (unsigned k = 0; k < count; k++)
			known |= samples[k] == v;
		if (!known)
			samples[count++] = v;
	}
	return count;
}

#endif
