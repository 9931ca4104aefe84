/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The chunks of slabs with erasure codes (ec:K+M) or in stripes (stripe:K, where M is 0): each is a
 * stripe of its own, of K pieces of data and M of parity (pool/erasure.h), and piece i lies on the
 * server of the slab's copy i, at the chunk's number times a piece's size.  What lies behind a
 * slab's end is zeros.
 *
 * Memory for stripes is reserved at the start: a fault, and a sender, take a place of it.
 *
 * AS: async-signal-safe. All but soda_stripes_start are.
 */
#ifndef SODA_HOST_STRIPE_H
#define SODA_HOST_STRIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/agent.h"
#include "host_agent/object/region.h"

static inline uint32_t soda_stripe_piece_bytes(const struct soda_region *r)
{
	return (uint32_t)(soda_chunk_bytes() / r->pieces);
}

/* What of the chunk lies on one server, without redundancy or a copy: the chunk; else a piece. */
static inline uint32_t soda_stripe_bytes_of(const struct soda_region *r, uint32_t id)
{
	return r->pieces ? soda_stripe_piece_bytes(r) : soda_region_chunk_bytes(r, id);
}

/* And where it begins there. */
static inline uint64_t soda_stripe_offset_of(const struct soda_region *r, uint32_t id)
{
	uint64_t offset = soda_region_offset(r, id);

	return r->pieces ? offset / r->pieces : offset + r->data_at;
}

/* How large the region of one copy of the slab is, or of one of its pieces. */
uint64_t soda_stripe_region_bytes(const struct soda_region *r);

/*
 * Reserve the memory, unless it is there; before the first object in pieces, with api_lock.  0 or
 * -ENOMEM.
 */
int soda_stripes_start(void);

/* Who takes a place: a fault, or the sender to that server. */
enum { SODA_STRIPE_READER = SODA_MEMBERS_MAX };
/* A place for all pieces of a stripe; NULL: all are taken. */
void *soda_stripe_take(uint32_t who);
void soda_stripe_give(void *place);

/* What the chunk's pages hold now, to the place. 0; -EFAULT: the program has closed some. */
int soda_stripe_read(const struct soda_region *r, uint32_t id, void *place);
/* The same from a copy of the chunk. */
void soda_stripe_copy(const struct soda_region *r, uint32_t id, const void *copy, void *place);
/* Piece i of a stripe whose data are there: parity is computed. */
void *soda_stripe_piece(const struct soda_region *r, uint32_t i, void *place);

/* The chunk's blocks among those in the mask that lie in piece i; all are in a piece of parity. */
uint32_t soda_stripe_blocks(const struct soda_region *r, uint32_t i, uint32_t mask);

#endif
