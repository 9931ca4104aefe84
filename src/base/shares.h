/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places of which there are so many, or memory of so many bytes, which tenants share: clients,
 * connections, regions, caches, an agent's memory for movement, messages, READs and WRITEs.  Half
 * of it is kept, in equal parts, for each tenant: so much no other tenant ever takes, whether it is
 * used or not.  The other half is for those who come first. A single tenant may have all.
 *
 *   |  kept for A  |  kept for B  |  kept for C  |  those who come first  |
 *
 * Holders are the tenants' numbers, counted from 1; 0 is everybody, in a daemon that has none. No
 * lock: the owner's guards it.
 */
#ifndef SODA_BASE_SHARES_H
#define SODA_BASE_SHARES_H

#include <stdbool.h>
#include <stdint.h>

struct soda_shares {
	uint64_t all;	 /* taken */
	uint64_t *taken; /* by each holder but 0 */
	uint32_t n;	 /* holders below this number have an entry */
};

/* Whose it is, and among how many: tenants that the daemon has now. */
struct soda_holder {
	uint32_t number, of;
};

/* How much of `total` is kept for each of `of` tenants; 0: there is less than one for each. */
uint64_t soda_shares_kept(uint64_t total, uint32_t of);
/* How much the holder has; 0: nobody counts. */
uint64_t soda_shares_of(const struct soda_shares *shares, uint32_t number);
/* Whether the holder has less than is kept for it; which, as tenants come, others may still have.
 */
bool soda_shares_owed(const struct soda_shares *shares, uint64_t total, struct soda_holder holder);
/*
 * Whether the holder may have n more of `total`.  back: so much is left for others besides, unless
 * the holder has less than is kept for it.
 */
bool soda_shares_room(const struct soda_shares *shares, uint64_t total, struct soda_holder holder,
		      uint64_t n, uint64_t back);
/* The largest n for which there is room, with back 0. */
uint64_t soda_shares_left(const struct soda_shares *shares, uint64_t total,
			  struct soda_holder holder);
/* A later soda_shares_take() of this holder does not fail. 0; -ENOMEM. */
int soda_shares_prepare(struct soda_shares *shares, uint32_t number);
/* n are taken, whether there is room or not. 0; -ENOMEM: they are not. */
int soda_shares_take(struct soda_shares *shares, uint32_t number, uint64_t n);
/* They are given back. */
void soda_shares_put(struct soda_shares *shares, uint32_t number, uint64_t n);
/* When nothing is taken any more, or at the end. */
void soda_shares_free(struct soda_shares *shares);

#endif
