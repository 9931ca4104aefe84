/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On which member of a pool a slab is placed.  What is known of a member's free memory may be old,
 * as other programs use it, too: the server itself decides, and one that refuses is marked so and
 * not chosen again for this slab.
 */
#ifndef SODA_POOL_PLACEMENT_H
#define SODA_POOL_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

struct soda_candidate {
	uint64_t free_bytes;
	bool refused;
};

/*
 * The index of the member for a slab of so many bytes; -1: all have refused.  Of two members that
 * seem to have the room, drawn with `random`, the one with more of it: programs that start together
 * do not all go to the same server.  Where none seems to have it, the one with most.
 */
int soda_placement_choose(const struct soda_candidate *members, uint32_t n, uint64_t bytes,
			  uint64_t random);
/*
 * The size of the next slab of an object of which `left` bytes are not placed, where no member has
 * taken one of `refused` bytes (0: none was refused yet); 0: no smaller one makes sense.  A
 * multiple of `unit` unless it is the last one.
 */
uint64_t soda_placement_slab(uint64_t left, uint64_t most, uint64_t refused, uint64_t unit);

#endif
