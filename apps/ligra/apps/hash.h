/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_HASH_H
#define LIGRA_HASH_H

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter to random bits. */
static inline uint64_t hash_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

#endif
