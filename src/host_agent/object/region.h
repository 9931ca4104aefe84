/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects: what the agent knows of each, and how it finds the object of an address.  An object is
 * a range of the reserved addresses here and a region at the server; life/object.h makes and frees
 * objects.  Addresses are given out in granules of 2 MiB; the granule table leads from a chunk to
 * its object without a search.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_REGION_H
#define SODA_HOST_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "host_agent/core/agent.h"
#include "transport/api/transport.h"

enum { SODA_GRANULE_SHIFT = 21 };
/* A flag beside those of soda_alloc_file(), and on the wire: the file is a published object. */
enum { SODA_REGION_PUBLISHED = 0x10 };

struct soda_shared;
struct soda_sealing;
struct soda_file_copies;

struct soda_region {
	uint16_t id; /* on the wire, and index of the table; never 0 */
	/*
	 * An object on a pool of servers is cut into slabs, each a region of its own, one after the
	 * other in the address space: the next slab (NULL: there is none), whether this one is not
	 * the first, and how many bytes of the object lie before it.  Set before the object is
	 * given to the program, then constant.
	 */
	struct soda_region *rest;
	bool continues;
	uint64_t before;
	struct soda_link *link; /* to the server that has it */
	/*
	 * A slab with redundancy is no region on the wire itself: its copies are, one on each of
	 * two servers (object/copies.h).  copies: SODA_COPIES_CURRENT...; 0: without redundancy. Of
	 * a copy, first, chunks, bytes and span are those of its slab.
	 */
	_Atomic uint64_t copies;
	struct soda_region *_Atomic copy[SODA_COPY_PLACES];
	/* 1 + the index of the link to its server; stays when the place is free, copy NULL, again
	 */
	_Atomic uint8_t copy_on[SODA_COPY_PLACES];
	uint32_t copies_wanted; /* how many current ones; set before `copies` */
	/*
	 * With erasure codes (object/stripe.h): how many pieces of data a chunk has, and of parity;
	 * 0: a copy has whole chunks.  Which piece a place has: soda_copy_piece().  Of a copy as of
	 * its slab.
	 */
	uint8_t pieces, parities;
	bool twin;		 /* of a copy: its number is that of its slab */
	_Atomic uint32_t losses; /* how often the last current copy was lost */
	_Atomic bool leaving;	 /* the slab is being freed: nothing rebuilds it */
	/*
	 * The copies of a READ_ONLY file on a pool (pool/files.h), else NULL; set before anybody
	 * finds the object.  nowhere: the server of its last current copy has started anew, without
	 * it: nothing is read until another one has been made; changed with soda_regions_lock.
	 */
	struct soda_file_copies *content;
	_Atomic bool nowhere;
	/* Of soda_alloc_file, and SODA_REGION_PUBLISHED; 0: anonymous, until soda_publish. */
	_Atomic uint32_t flags;
	uint32_t first, chunks;	      /* ids */
	uint64_t bytes;		      /* as asked for */
	uint64_t span;		      /* bytes in whole pages */
	uint64_t file_id, generation; /* as file, changed with the lock of soda_regions_lock */
	struct soda_shared *shared;   /* its place in the node's store, or NULL: pages/shared.h; set
					 before anybody finds the object */
	/*
	 * Its key, and the versions and tags of its blocks (object/sealing.h); NULL: its content
	 * travels in clear.  Set before anybody finds the object.
	 */
	struct soda_sealing *sealing;
	/*
	 * Of a sealed file (wire/sealed_file.h): the server's region has a header and a table, too:
	 * its bytes, 0 while they are not known, and where the object begins in it.
	 */
	bool sealed_file;
	uint64_t file_bytes, data_at;
	char *_Atomic file;	 /* name on the server, or NULL */
	char *doubtful;		 /* the name that an unanswered soda_publish may have given it, or
				    NULL; changed with api_lock */
	_Atomic bool sealed;	 /* nobody stores to it any more, and what was stored is on the
				    server: life/publish.h */
	char name[256];		 /* soda_set_name */
	struct soda_mr mr;	 /* changes at reconnection only, under the channels' locks */
	_Atomic uint32_t advice; /* SODA_NORMAL, SEQUENTIAL or RANDOM */

	/*
	 * For reconnections (pool/recover.h); of an object shown, changed with soda_regions_lock.
	 */
	_Atomic bool lost;   /* no chunk of it is fetched: refused, undecided or given_up is set */
	_Atomic int refused; /* why the server does not have the object; 0: the server has it */
	uint32_t undecided;  /* chunks that recover.c waits for */
	bool given_up;	     /* there were too many undecided chunks */
	uint32_t meeting;    /* soda_link_meeting(link) when the object was opened or refused, */
	uint32_t decided;    /* and when chunks that only an earlier server had became LOST */
	bool asked;	     /* the server may have done an OPEN whose answer did not come */
	uint64_t mark;	     /* of a WRITABLE file: what the server leaves with it; 0: none yet */
	bool marked;	     /* the server has */
	bool going;	     /* soda_free has begun: the object is not opened again */
	_Atomic bool told_kept; /* the log has what lies beside the page buffer for that (kept.h) */
	_Atomic bool abandoned; /* SODA_ABANDON: nothing of it is written back at its end */
	/* How often a server that had refused the object has opened it; told before `refused`. */
	_Atomic uint32_t taken;

	struct soda_frozen *frozen; /* in the agent's static cache; changed with api_lock and the
				       lock of soda_regions_lock */
	_Atomic bool damaged;	    /* of a sealed one: something else came than was sent there */
	/* How often a peer ended with the object's data, and of how many soda_sync has told. */
	_Atomic uint32_t unwritten, told;
	_Atomic int unsent_error; /* why the last chunk that failed could not be written back */
	_Atomic uint32_t unsent;  /* how many could not; counted after unsent_error is set */
	_Atomic bool keeps;	  /* the server refuses DISCARDs of the object */
	_Atomic bool stale;	  /* DISCARD has left old content of ZERO chunks on the server */

	/* Do stores to a chunk go to few of its pages?  See pages/protect.h. */
	_Atomic uint32_t sparse_score;
	_Atomic uint32_t store_turn;
	_Atomic uint32_t probe_shift;

	/* Does the program store to chunks that a load has fetched?  See object/guess.h. */
	_Atomic uint32_t store_odds;
	_Atomic uint32_t load_turn;
	_Atomic bool guessed; /* some chunks have fingerprints */

	/*
	 * How many calls work on it that have let api_lock go: it is not freed meanwhile.  A futex;
	 * incremented with api_lock.
	 */
	_Atomic uint32_t users;
	struct soda_region *next; /* in the list of unused structs; guarded by api_lock */
};

/*
 * Which object has the chunk, starts at p, or has all of [addr, addr + bytes): NULL: none.  The
 * pointer stays valid until the program frees the object, which it must not do while it has the
 * library work on the object. AS.
 */
struct soda_region *soda_region_of(uint32_t chunk);
struct soda_region *soda_region_at(const void *p);
/*
 * Also says the first and the last chunk that the bytes lie in.  Of an object in slabs: the slab
 * with the first byte; all bytes lie in it and in those that follow.
 */
struct soda_region *soda_region_range(const void *addr, uint64_t bytes, uint32_t *first_p,
				      uint32_t *last_p);
/* Whether any of the bytes, of which some or all may be no FAM, lie in a sealed object. AS. */
bool soda_region_any_sealed(const void *addr, uint64_t bytes);

/* The bytes of the whole object, of which r is the first slab, in whole pages. */
static inline uint64_t soda_region_object_span(const struct soda_region *r)
{
	uint64_t bytes = 0;

	for (; r; r = r->rest)
		bytes += r->span;
	return bytes;
}

/* How many bytes of the chunk belong to the object: the last chunk may be a part. AS. */
static inline uint32_t soda_region_chunk_bytes(const struct soda_region *r, uint32_t chunk)
{
	uint64_t at = (uint64_t)(chunk - r->first) << soda_agent.chunk_shift;
	uint64_t left = r->span - at;

	return (uint32_t)(left < soda_chunk_bytes() ? left : soda_chunk_bytes());
}

/* How many of the n chunks from `first` on, which lies in the region, do. AS. */
static inline uint32_t soda_region_has(const struct soda_region *r, uint32_t first, uint32_t n)
{
	uint32_t left = r->first + r->chunks - first;

	return left < n ? left : n;
}

/* The protection of the object's addresses. */
static inline int soda_region_prot(const struct soda_region *r)
{
	return r->flags & SODA_READ_ONLY || r->sealed ? PROT_READ : PROT_READ | PROT_WRITE;
}

/* Where the chunk begins in the object, in bytes. */
static inline uint64_t soda_region_offset(const struct soda_region *r, uint32_t chunk)
{
	return (uint64_t)(chunk - r->first) << soda_agent.chunk_shift;
}

/*
 * Whether the program has made chunk id PROT_NONE: then fetching it ahead has no use, and no thread
 * could read it to write it back.  The library that sets this function, before it carries such an
 * mprotect() out, first makes the function say so, then waits until the chunk is not FETCHING, then
 * drops it where it is resident.  NULL: no chunk is PROT_NONE. Must be async-signal-safe.
 */
extern bool (*_Atomic soda_chunk_closed)(uint32_t id);

static inline bool soda_chunk_is_closed(uint32_t id)
{
	bool (*closed)(uint32_t) = atomic_load_explicit(&soda_chunk_closed, memory_order_relaxed);

	return closed && closed(id);
}

/* Before the first object: make the granule table for so many bytes of addresses. 0, -ENOMEM. */
int soda_regions_start(uint64_t bytes);
/* Free the granule table. */
void soda_regions_undo(void);
/* Free all objects, at the runtime's end. */
void soda_regions_forget(void);

/*
 * The steps of an object's life, called by life/object.c; api_lock held.  Take an unused number
 * with a struct that is zero but for id and link (NULL: all are in use), and give both back.
 */
struct soda_region *soda_region_take(void);
void soda_region_put(struct soda_region *r);
/*
 * The same for a copy of a slab, whose number leads to no object; and for one that has the slab's
 * own region, and number.
 */
struct soda_region *soda_region_take_copy(void);
struct soda_region *soda_region_take_twin(const struct soda_region *r);
void soda_region_put_copy(struct soda_region *r);

/*
 * Regions that copies had.  A thread may have found one and be about to post to it, so that its
 * struct may be another region's a minute later, and two at the most.  Zeroed at first; guarded by
 * what guards its owner.
 */
struct soda_retired {
	struct soda_region *young, *old;
	uint64_t aged_ns; /* when those that are old were young last */
};
static inline void soda_region_retire(struct soda_retired *to, struct soda_region *copy)
{
	copy->next = to->young;
	to->young = copy;
}
/* Whether it is time to give structs back; soda_retired_age() does, with api_lock. */
bool soda_retired_due(const struct soda_retired *retired);
void soda_retired_age(struct soda_retired *retired);
/*
 * Set r->first and r->chunks for r->span; of_heap: where other objects rarely are.  false: there is
 * no room.
 */
bool soda_region_find_room(struct soda_region *r, bool of_heap);
/* Set r->chunks, for r->span; r->first is set. */
void soda_region_count_chunks(struct soda_region *r);
/* Mark the room that soda_region_find_room() found as the object's. */
void soda_region_occupy(const struct soda_region *r);
/* Mark the room of an object that was never shown as free again. */
void soda_region_vacate(const struct soda_region *r);
/* From now on soda_region_of() finds the object. soda_regions_lock held. */
void soda_region_show_locked(struct soda_region *r);
/*
 * From now on soda_region_of() does not find the object.  Its room is free again; used_up: no
 * object is ever placed there again. soda_regions_lock held.
 */
void soda_region_hide_locked(const struct soda_region *r, bool used_up);

/*
 * Numbers of objects that were freed here and that the server (index of its link) may still have
 * open: a kept number is
 * not used again before it is released. Any thread.
 */
void soda_region_id_keep(uint16_t id, uint32_t server);
bool soda_region_id_is_kept(uint16_t id);
bool soda_region_id_is_kept_by(uint16_t id, uint32_t server);
void soda_region_id_release(uint16_t id);
/* Release all numbers that were kept for that server. */
void soda_region_ids_release(uint32_t server);

/*
 * Between these two calls no object appears or goes.  They are for the keeper, which must not wait
 * for api_lock.
 */
void soda_regions_lock(void);
void soda_regions_unlock(void);

/*
 * Call fn for each object until fn returns non-zero; returns that, or 0. api_lock or
 * soda_regions_lock is held.
 */
int soda_regions_each(int (*fn)(struct soda_region *r, void *arg), void *arg);

/*
 * For work that waits for a server: use keeps the object from being freed when api_lock, with which
 * it is called, is let go, and unuse ends that.  The next one with a number of *id_p or more, used;
 * *id_p becomes the number behind it.  NULL: there is none.  Of all slabs, that of r alone.
 */
void soda_region_use(struct soda_region *r);
struct soda_region *soda_region_use_next(uint32_t *id_p);
void soda_region_unuse(struct soda_region *r);
/*
 * Before the object, with its slabs, is freed, or NULL: all of them: wait until nobody uses it,
 * without api_lock, which is held, meanwhile.  true: so it was at once, and api_lock was never let
 * go.
 */
bool soda_region_await_unused(struct soda_region *r);

#endif
