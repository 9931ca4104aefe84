/* SPDX-License-Identifier: BSD-3-Clause */
/* What an application and its check agree on beforehand: where it begins, what edges weigh, what a
 * result says. */
#ifndef LIGRA_AGREED_H
#define LIGRA_AGREED_H

#include <stdbool.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter to random bits. */
static inline uint64_t hash_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

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

/*
 * Edge weights, for graphs without, as the Ligra paper draws them: random integers from 1 to the
 * logarithm of the number of vertices.  A function of the edge's ends, the
 * same in both directions, so that they need no memory.
 */
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

/* bc counts shortest paths as doubles, and divides by how many there are: 1 / 2^1022 is the
 * smallest number that has all digits. */
#define BC_PATHS_MAX 0x1p1022

/* What the result of mis says of a vertex. */
enum { MIS_IN, MIS_OUT };

#endif
