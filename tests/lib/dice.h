/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers that a seed decides, and content that names its place. */
#ifndef SODA_TEST_DICE_H
#define SODA_TEST_DICE_H

#include <stdint.h>

/* xorshift64*: the same sequence for the same seed, which is not 0. */
struct dice {
	uint64_t state;
};

static inline uint64_t dice_roll(struct dice *d)
{
	d->state ^= d->state >> 12;
	d->state ^= d->state << 25;
	d->state ^= d->state >> 27;
	return d->state * 0x2545f4914f6cdd1dull;
}

/* A number that names its position and a round. */
static inline uint64_t mix(uint64_t position, uint64_t round)
{
	struct dice d = { .state = position * 0x9e3779b97f4a7c15ull + round + 1 };

	return dice_roll(&d);
}

#endif
