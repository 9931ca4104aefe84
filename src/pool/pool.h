/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of memory servers: its members, from a list that the user gives, tcp://a:7001,tcp://b:7001
 * (members.c; one address is a pool of one), and on which of them a slab is placed (placement.c).
 */
#ifndef SODA_POOL_H
#define SODA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "transport/api/transport.h"

/* Longest list: bytes without its end. */
enum { SODA_MEMBERS_TEXT_MAX = SODA_MEMBERS_MAX * (SODA_ADDRESS_MAX + 1) };

struct soda_members {
	uint32_t n;
	char address[SODA_MEMBERS_MAX][SODA_ADDRESS_MAX + 1];
};

/*
 * Take the list apart.  -EINVAL, with the reason in *why: an empty place, an address that is too
 * long, the same address twice, or more than SODA_MEMBERS_MAX; of a list of several also an address
 * without a transport (tcp://).
 */
int soda_members_parse(const char *list, struct soda_members *out, struct soda_why *why);
bool soda_members_has(const struct soda_members *m, const char *address);
/* The list of it, with commas between, ended; room: SODA_MEMBERS_TEXT_MAX + 1. */
void soda_members_list(const struct soda_members *m, char *list);
/*
 * The tag that names a member in a HELLO to the agent before the pool, never 0: a hash of its
 * address alone, so that it is the same wherever the member stands in whatever list.
 */
uint16_t soda_members_hash(const char *address);
/* Whether no two members have one tag: -EINVAL, with the two in *why. */
int soda_members_differ(const struct soda_members *m, struct soda_why *why);

/*
 * What is known of a member's free memory may be old, as other programs use it, too: the server
 * itself decides, and one that refuses is marked so and not chosen again for this slab.
 */
struct soda_candidate {
	uint64_t free_bytes;
	bool refused;
	uint32_t domain; /* equal numbers: the same failure domain */
};

/*
 * The index of the member for a slab of so many bytes; -1: all have refused.  Of two members that
 * seem to have the room, drawn with `random`, the one with more of it: programs that start together
 * do not all go to the same server.  Where none seems to have it, the one with most.
 */
int soda_placement_choose(const struct soda_candidate *members, uint32_t n, uint64_t bytes,
			  uint64_t random);
/*
 * The slab has a copy in that failure domain: its members are not chosen for another one. A server
 * that fails with others, with a rack's power or its switch, has none of what they have.
 */
void soda_placement_exclude(struct soda_candidate *members, uint32_t n, uint32_t domain);
/* In how many failure domains the members lie that have not refused. */
uint32_t soda_placement_domains(const struct soda_candidate *members, uint32_t n);
/*
 * The size of the next slab of an object of which `left` bytes are not placed, where no member has
 * taken one of `refused` bytes (0: none was refused yet); 0: no smaller one makes sense.  A
 * multiple of `unit` unless it is the last one.
 */
uint64_t soda_placement_slab(uint64_t left, uint64_t most, uint64_t refused, uint64_t unit);

#endif
