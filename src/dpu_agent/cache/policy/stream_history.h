/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the policy `stream` remembers of requests, by entry, cached or not: sixty-four times as
 * many entries as the cache has slots, the oldest of a set of four making room.  Its memory is a
 * part of the policy's state; no locks.
 *
 * Time is counted in requests.  With age: `wanted` is halved each time as many requests have gone
 * by as thirty-two caches have slots.
 */
#ifndef SODA_DPU_STREAM_HISTORY_H
#define SODA_DPU_STREAM_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soda_cache_policy.h"

enum { SODA_STREAM_HALF = 32 }; /* sectors, of 64 */

struct soda_stream_record {
	uint64_t entry; /* + 1; 0: free */
	uint64_t mask;	/* sectors, of 64, in this lap */
	uint64_t last;	/* the same in the lap before; 0: there was none */
	uint64_t has;	/* sectors that the client had when it asked last; 0: not told */
	uint32_t owner;
	uint32_t slot;	 /* where the entry lay when it was last asked for; a hint */
	uint32_t when;	 /* of the last request */
	uint16_t wanted; /* requests; halved with age */
	uint8_t repeats; /* requests that brought nothing new into mask */
	bool dense;	 /* fetched because many requests fall into it, not for a stream */
};

struct soda_stream_history {
	struct soda_stream_record *records;
	uint32_t sets; /* a power of two */
	uint32_t clock;
	uint32_t halving;
};

/* Bytes that the history takes beside a cache of so many slots. */
size_t soda_stream_history_bytes(uint32_t slots);
/* memory: zeroed, of that size. */
void soda_stream_history_init(struct soda_stream_history *h, uint32_t slots, void *memory);

/* The entry's record; NULL: there is none. */
struct soda_stream_record *soda_stream_find(const struct soda_stream_history *h, uint32_t owner,
					    uint64_t entry);
/* A request has come; its entry's record. *again_p: the entry was left for long. */
struct soda_stream_record *soda_stream_note(struct soda_stream_history *h,
					    const struct soda_cache_key *key, bool *again_p);
/* The request was for these sectors. again: they begin a new lap; one begins, too, once all sectors
 * were asked for. */
void soda_stream_mark(struct soda_stream_record *r, uint64_t sectors, bool again);

/* How often the entry was wanted lately. */
uint32_t soda_stream_wanted(const struct soda_stream_history *h,
			    const struct soda_stream_record *r);
/* Whether the entry was asked for a moment ago; false of NULL. */
bool soda_stream_lately(const struct soda_stream_history *h, const struct soda_stream_record *r);
/*
 * Whether the entry is being read through: three quarters of it were asked for (of what was asked
 * for in the lap before, where that is known; sectors that the client has count as asked for), each
 * part once, while scattered requests repeat themselves.
 */
bool soda_stream_read_through(const struct soda_stream_record *r);

#endif
