/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of cached entries: which piece of which owner lies where in the arena.
 * It decides nothing (prefetch.h, policy.h) and moves no data.
 *
 *   EMPTY --fill_begin--> FILLING --fill_end--> READY --evict--> EMPTY
 *                          ^ | |                  |
 *                fill_part-+ | +---- fill_end, failed ------------------> LEAVING --> EMPTY
 *                            |                    |                         ^
 *                            +---- forget, every sector written to ---------+
 *
 * An entry is linked in the hash while FILLING or READY.  A LEAVING entry was
 * unlinked while a thread held a reference; its slot is EMPTY once the last reference is released.
 *
 * Sectors, 64ths of an entry, are each
 *
 *   awaited  of a FILLING entry: will be read; a request that meets one waits
 *   here     likewise, and its bytes have come (fill_part); or of a READY entry
 *   hidden   not read, or written to since: a request goes to the server
 *
 * and go from awaited to here, and from both to hidden.  A request is answered when all of its
 * sectors are here, whether the entry is FILLING or READY: it need not wait for the others.
 *
 * A FILLING entry may be queued at first (fill_queue): nothing of it is asked for until fill_start.
 * While others are before it in a line that stands still, a request for awaited sectors that nobody
 * waits for yet does not wait either: it goes to the server, and hides them, so that fill_start
 * does not ask for them again.
 *
 * An entry with a reference is never evicted, and its bytes do not change while it has one, but for
 * the fill itself.  (A WRITE to a range whose READ has not been answered races at the client; the
 * reader gets the older bytes.)
 *
 * Coherence.  The writer of a range calls soda_cache_written twice: when the agent
 * accepts the WRITE, and when the server has acknowledged it, before the agent stops
 * answering reads of that range from the accepted data.  The first call hides the
 * old bytes, the second hides what a fill has read from the server in between.
 * Validity is kept by sector, a 64th of an entry, so that the rest of an entry survives.
 * Updating in place instead would be a copy of the payload, under readers.
 *
 * Threads: every function may be called from any thread.  A hit takes one lock
 * of 64, for a few instructions; release takes none.
 */
#ifndef SODA_DPU_DYNAMIC_CACHE_H
#define SODA_DPU_DYNAMIC_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "soda_cache_policy.h"

#define SODA_CACHE_ENTRY_MIN (64u << 10)
#define SODA_CACHE_ENTRY_MAX (4u << 20) /* one READ */

struct soda_cache;

enum soda_cache_answer {
	SODA_CACHE_MISS,
	SODA_CACHE_HIT,
	SODA_CACHE_LATE, /* the entry is being filled: the waiter is called when its sectors are
			    here */
};

/* Where the bytes lie. A reference on the slot is the receiver's, for soda_cache_release. */
struct soda_cache_ref {
	const uint8_t *memory;
	uint32_t slot; /* LATE sets it too, without a reference */
	bool first;    /* this is the first request that meets the entry */
};

/*
 * A request that waits for sectors of an entry that is being filled; the caller's memory, part
 * of its request.  done is called once: with status 0 and a reference, from the thread that says
 * that the last of those sectors is here; or, from the one that ends the fill, with a negative
 * errno, and the caller sends the READ to the server (-ESTALE: the range was written to meanwhile).
 * done may call any function of the cache.
 */
struct soda_cache_waiter {
	void (*done)(struct soda_cache_waiter *waiter, int status,
		     const struct soda_cache_ref *ref);
	struct soda_cache_waiter *next; /* the cache's, as the three below */
	uint64_t sectors;
	uint32_t offset, bytes;
};

/* Bytes to be read for a fill: [at, at + bytes) of the entry. */
struct soda_cache_run {
	uint32_t at, bytes;
};
enum { SODA_CACHE_RUNS_MAX = 8 };

struct soda_cache_counts {
	uint64_t hits, late_hits, misses; /* requests */
	uint64_t bytes_hit, bytes_late, bytes_missed;
	uint64_t bypassed;			    /* requests that span entries: never cached */
	uint64_t fills, fills_failed, bytes_filled; /* ended; bytes of the successful ones */
	uint64_t evictions;
	uint64_t useless;	/* entries that went without having met a request */
	uint64_t bytes_useless; /* of sectors that went without having met a request */
	uint64_t writes;	/* WRITEs that met an entry */
	uint64_t entries;	/* linked now */
};

/* The fate of one owner's requests and entries, in bytes. A reader of a word may take it out. */
struct soda_cache_tally {
	_Atomic uint64_t asked;	 /* by programs */
	_Atomic uint64_t given;	 /* of them: hits, and late ones */
	_Atomic uint64_t failed; /* of the late ones: sent to the server after all */
	_Atomic uint64_t used;	 /* of what was filled: asked for the first time, by sectors */
	_Atomic uint64_t
		unused; /* of what was filled: gone without having been asked for; likewise */
};

/*
 * bytes: the arena, rounded down to whole entries, at least 2 of them; its memory is
 * taken from the system as it is used.  entry_bytes: a power of two, SODA_CACHE_ENTRY_MIN
 * to MAX.  0, -EINVAL, -ENOMEM.
 */
int soda_cache_create(uint64_t bytes, uint32_t entry_bytes, struct soda_cache **cache_p);
/* No reference, fill or waiter is left. NULL is a no-op. */
void soda_cache_destroy(struct soda_cache *cache);

/* From now on count in these, by owner id; they outlive the cache. Before the first request. */
void soda_cache_tell(struct soda_cache *cache, struct soda_cache_tally *tallies);

uint32_t soda_cache_slots(const struct soda_cache *cache);
uint32_t soda_cache_entry_bytes(const struct soda_cache *cache);
/* All memory of entries, for transports that register memory. */
uint8_t *soda_cache_arena(const struct soda_cache *cache, uint64_t *bytes_p);

/*
 * A READ of [offset, offset + bytes) of an owner, whole pages.
 * HIT: *ref_p.  LATE: waiter->done comes, maybe before this returns; ref_p->slot is set.
 * MISS: nothing to undo.  waiter NULL: MISS instead of LATE.
 */
enum soda_cache_answer soda_cache_acquire(struct soda_cache *cache, uint32_t owner, uint64_t offset,
					  uint32_t bytes, struct soda_cache_waiter *waiter,
					  struct soda_cache_ref *ref_p);
/* Lock-free. */
void soda_cache_release(struct soda_cache *cache, uint32_t slot);

/* The slot of an entry that is FILLING or READY, or SODA_CACHE_NONE. A hint. */
uint32_t soda_cache_find(struct soda_cache *cache, const struct soda_cache_key *key);

/*
 * What is to be read for the wanted 64ths of an entry that has `bytes` bytes (less than
 * entry_bytes at an owner's end): runs, neighbours together, and where they would be too
 * many, more than is wanted.  How many.
 */
uint32_t soda_cache_plan(const struct soda_cache *cache, uint32_t bytes, uint64_t wanted,
			 struct soda_cache_run runs[SODA_CACHE_RUNS_MAX]);
/*
 * Link an entry to an EMPTY slot of the caller's, FILLING; the runs will be read to
 * *memory_p, each at its place, and only they can be hit.  0, or -EEXIST: it is linked
 * already, the slot stays the caller's.
 */
int soda_cache_fill_begin(struct soda_cache *cache, uint32_t slot, const struct soda_cache_key *key,
			  const struct soda_cache_run *runs, uint32_t n, uint8_t **memory_p);
/* Where queued entries wait. */
struct soda_cache_line {
	_Atomic bool stands;	/* as many are under way as may be */
	_Atomic uint32_t first; /* slot of the entry that is next; with that */
};
/* The entry that fill_begin has linked is queued in the line, which outlives that. */
void soda_cache_fill_queue(struct soda_cache *cache, uint32_t slot,
			   const struct soda_cache_line *line);
/*
 * It is queued no more: runs[n], those of fill_begin, become those of what is still to be read, and
 * no more bytes than before.  How many runs; 0: nothing.
 */
uint32_t soda_cache_fill_start(struct soda_cache *cache, uint32_t slot,
			       struct soda_cache_run runs[SODA_CACHE_RUNS_MAX], uint32_t n);
/*
 * A part of a run, which begins and ends with sectors or ends with its run, is here: calls the
 * waiters that have all of theirs with it, and no other.  Before fill_end, from the thread that
 * calls that or in order with it.
 */
void soda_cache_fill_part(struct soda_cache *cache, uint32_t slot, uint32_t at, uint32_t bytes);
/* All bytes have arrived (status 0), or those that are not here will not come: calls the waiters.
 */
void soda_cache_fill_end(struct soda_cache *cache, uint32_t slot, int status);

/* Take the entry out; the slot is EMPTY and the caller's. -EBUSY: not evictable. */
int soda_cache_evict(struct soda_cache *cache, uint32_t slot);
/* Whether the slot is READY and without a reference at this moment. `cache` as in struct
 * soda_cache_setup. */
bool soda_cache_evictable(const void *cache, uint32_t slot);

/* See "Coherence" above. */
void soda_cache_written(struct soda_cache *cache, uint32_t owner, uint64_t offset, uint64_t bytes);
/* Nothing of this owner is found any more: its region was closed, its client is dead. */
void soda_cache_forget(struct soda_cache *cache, uint32_t owner);

/*
 * A slot that became EMPTY by itself (forgotten, written to, failed), or
 * SODA_CACHE_NONE.  It is the caller's.  At the start all slots come this way.
 * One caller at a time.
 */
uint32_t soda_cache_reclaim(struct soda_cache *cache);

/* Not an atomic snapshot. */
void soda_cache_count(struct soda_cache *cache, struct soda_cache_counts *counts_p);
/* Debug: recompute what is kept in two places; asserts. The cache is idle. */
void soda_cache_check(struct soda_cache *cache);

#endif
