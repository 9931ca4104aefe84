/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copies of a slab with redundancy (mirror:2): two regions on the wire, each on a server of its
 * own.  One word says of each copy whether it is
 *
 *   WRITTEN   write-backs and DISCARDs of the slab go to it
 *   CURRENT   it has the content of each chunk that is not resident; it may be read
 *
 *   both ---- its server is away too long, has none of its memory, or refuses a write ----> stale
 *   stale --- a new region is opened for it, and it is rebuilt (pool/rebuild.c) -> WRITTEN -> both
 *
 * A current copy is always written, and a slab always has a current copy: the last one never
 * becomes stale; when its server loses it, chunks are LOST as without redundancy.
 *
 * A write-back takes a chunk to the written copies one after the other (move/sender.c).  The chunk
 * stays resident and SENDING until the last has acknowledged, so that at most one WRITE of a chunk
 * is under way, and a copy that missed one never counts as current.
 *
 * There are more places than copies, so that one whose server is drained (soda pool drain) stays
 * current until another has been made, as a rebuild does it, in a place that is free. A slab
 * without redundancy gets a single copy for that, its region, and keeps to it.
 *
 * With erasure codes (ec:K+M, object/stripe.h) a copy is what has one piece of each chunk: there
 * are K + M of them, a chunk is read from K, and the last K current ones never become stale.  Each
 * piece has two places, k and k + K + M, and moves from the one to the other.  A slab in stripes
 * (stripe:K) has no parity: all K are needed, and none ever becomes stale.
 *
 * AS: async-signal-safe; all functions here are.
 */
#ifndef SODA_HOST_COPIES_H
#define SODA_HOST_COPIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/agent.h"
#include "host_agent/object/region.h"

static const uint64_t SODA_COPIES_CURRENT = 1;		/* << the copy's place */
static const uint64_t SODA_COPIES_WRITTEN = 1ull << 32; /* likewise */

/* Of a new slab: those in the first n places, current and written. */
static inline uint64_t soda_copies_first(uint32_t n)
{
	return ((1ull << n) - 1) * (SODA_COPIES_CURRENT | SODA_COPIES_WRITTEN);
}

/* Whether each is to survive the others' failure domains: those of a stripe are no copies. */
static inline bool soda_copies_apart(const struct soda_region *r)
{
	return r->parities || !r->pieces;
}

/* How many current ones the slab cannot be read without. */
static inline uint32_t soda_copies_needed(const struct soda_region *r)
{
	return r->pieces ? r->pieces : 1;
}

/*
 * Whether there may be slabs that have copies: silent servers are missed, and what is late is asked
 * for elsewhere.  True from the first object with redundancy on (soda_rebuild_start).
 */
static inline bool soda_redundant(void)
{
	return atomic_load_explicit(&soda_agent.redundant, memory_order_relaxed);
}

static inline uint64_t soda_copies(const struct soda_region *r)
{
	return atomic_load_explicit(&r->copies, memory_order_acquire);
}

static inline bool soda_copy_is_current(uint64_t copies, uint32_t k)
{
	return copies >> k & SODA_COPIES_CURRENT;
}

/* How many places the slab may use. */
static inline uint32_t soda_copy_places(const struct soda_region *r)
{
	return 2u * (r->pieces ? r->pieces + r->parities : SODA_COPIES);
}

/* With erasure codes: the piece that a copy in that place has. */
static inline uint32_t soda_copy_piece(const struct soda_region *r, uint32_t k)
{
	return k % (r->pieces + r->parities);
}

/* The other place of the same piece, where it goes when it moves. */
static inline uint32_t soda_copy_other_place(const struct soda_region *r, uint32_t k)
{
	return (k + r->pieces + r->parities) % soda_copy_places(r);
}

/* The pieces, a bit each, that the places in the mask have. */
static inline uint32_t soda_copy_pieces(const struct soda_region *r, uint32_t places)
{
	uint32_t n = r->pieces + r->parities;

	return (places | places >> n) & ((1u << n) - 1);
}

/* How many are current; a piece that is current in both of its places counts once. */
static inline uint32_t soda_copies_current(const struct soda_region *r, uint64_t copies)
{
	uint32_t current = (uint32_t)copies;

	return (uint32_t)__builtin_popcount(r->pieces ? soda_copy_pieces(r, current) : current);
}

static inline bool soda_copy_is_written(uint64_t copies, uint32_t k)
{
	return copies >> k & SODA_COPIES_WRITTEN;
}

/* Of a place that has, or had, a copy. */
static inline struct soda_link *soda_copy_link(const struct soda_region *r, uint32_t k)
{
	return &soda_agent.links[atomic_load_explicit(&r->copy_on[k], memory_order_relaxed) - 1];
}

static inline bool soda_copy_place_free(const struct soda_region *r, uint32_t k)
{
	return !atomic_load_explicit(&r->copy[k], memory_order_relaxed);
}

/* Which copy of the slab lies on that server; -1: none. */
int soda_copy_on(const struct soda_region *r, const struct soda_link *link);

/*
 * The slab's copy on that server, where it has the bit; else NULL.  A place may get a copy on
 * another server between the looks at its server and at its bits: then NULL.
 */
struct soda_region *soda_copy_with(struct soda_region *r, const struct soda_link *link,
				   uint64_t bit);
/*
 * The region on the wire that a READ of the slab over a channel to that server means: r itself
 * without redundancy; else its copy there, if that is current; else NULL.  To be asked with the
 * channel's lock: a copy becomes stale before its server's channels get new connections.
 */
static inline struct soda_region *soda_copy_to_read(struct soda_region *r,
						    const struct soda_link *link)
{
	return soda_copies(r) ? soda_copy_with(r, link, SODA_COPIES_CURRENT) : r;
}

/* The same for a WRITE: a copy that is written. */
static inline struct soda_region *soda_copy_to_write(struct soda_region *r,
						     const struct soda_link *link)
{
	return soda_copies(r) ? soda_copy_with(r, link, SODA_COPIES_WRITTEN) : r;
}

/*
 * soda_copies_source() of a slab that has copies.  turn: of copies that are equally good that in an
 * even or an odd place.
 */
struct soda_link *soda_copies_choose(const struct soda_region *r, const struct soda_link *avoid,
				     uint32_t turn);
/*
 * To which server a READ of the slab goes: one that is UP and has a current copy, if possible not
 * `avoid` (NULL: any), and not one that is late; where none is UP the one to wait for.
 */
static inline struct soda_link *soda_copies_source(const struct soda_region *r,
						   const struct soda_link *avoid)
{
	return soda_copies(r) ? soda_copies_choose(r, avoid, 0) : r->link;
}

/* The same for a READ of that chunk: those of a file, of one slab, are shared by its servers. */
static inline struct soda_link *soda_copies_source_of(const struct soda_region *r, uint32_t id,
						      const struct soda_link *avoid)
{
	if (!soda_copies(r))
		return r->link;
	return soda_copies_choose(
		r, avoid, r->content ? id >> (SODA_GRANULE_SHIFT - soda_agent.chunk_shift) : 0);
}

/* Whether a server that the slab can be read from is UP. */
static inline bool soda_copies_reachable(const struct soda_region *r)
{
	if (!soda_copies(r))
		return soda_server_up(&r->link->server);
	return soda_server_up(&soda_copies_choose(r, NULL, 0)->server) && !atomic_load(&r->nowhere);
}

/*
 * The first written copy that is not in the mask `done` (bit: index); -1: there is none.  Of a slab
 * with copies.  The chunk's word was changed before: then either soda_copies_begin()'s caller sees
 * that change, or this function sees the copy that began to be written.
 */
int soda_copies_next(const struct soda_region *r, uint32_t done);

/* The copy is not read or written any more.  false: it is the last current one, and stays. */
bool soda_copies_drop(struct soda_region *r, uint32_t k);
/* How many current copies were given up so, of all slabs. */
uint64_t soda_copies_dropped(void);
/* The same of one that leaves a server, and is not counted as given up. */
bool soda_copies_leave(struct soda_region *r, uint32_t k);
/* Whether a copy of the slab may become stale: it has another one. */
static inline bool soda_copies_spare(const struct soda_region *r)
{
	return soda_copies_current(r, soda_copies(r)) > soda_copies_needed(r);
}
/* A stale copy is written from now on, with a new region. */
void soda_copies_begin(struct soda_region *r, uint32_t k);
/* A written copy has all content.  false: it has become stale meanwhile. */
bool soda_copies_complete(struct soda_region *r, uint32_t k);

/* Whether the slab has redundancy, and fewer current copies than it should; a file never. */
static inline bool soda_copies_missing(const struct soda_region *r)
{
	uint64_t copies = soda_copies(r);

	return copies && !r->content && soda_copies_current(r, copies) < r->copies_wanted;
}

#endif
