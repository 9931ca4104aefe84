/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the policy `stream` remembers of requests, by entry, cached or not: sixty-four times as
 * many entries as the cache has slots, the oldest of a set of four making room.  Its memory is a
 * part of the policy's state; no locks.
 *
 * Time is counted in requests.  Halving age: what was wanted counts half as much, each time as
 * many requests have gone by as thirty-two caches have slots.
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
	uint64_t has;	/* its client, when it asked last; 0: not told */
	uint32_t owner;
	uint32_t slot;	 /* that held it when it was last asked for; a hint */
	uint32_t when;	 /* of the last request */
	uint16_t wanted; /* requests; halved with age */
	uint8_t repeats; /* requests that brought nothing new into mask */
	bool dense;	 /* density, not a stream, asked for it */
};

struct soda_stream_history {
	struct soda_stream_record *records;
	uint32_t sets; /* a power of two */
	uint32_t clock;
	uint32_t halving;
};

/* What it takes beside a cache of so many slots. */
size_t soda_stream_history_bytes(uint32_t slots);
/* memory: zeroed, of that size. */
void soda_stream_history_init(struct soda_stream_history *h, uint32_t slots, void *memory);

/* NULL: nothing is known of it. */
struct soda_stream_record *soda_stream_find(const struct soda_stream_history *h, uint32_t owner,
					    uint64_t entry);
/* A request has come; its entry's record. *again_p: the entry was left for long. */
struct soda_stream_record *soda_stream_note(struct soda_stream_history *h,
					    const struct soda_cache_key *key, bool *again_p);
/* It was for these sectors. again: they begin a new lap, as they do once all were asked for. */
void soda_stream_mark(struct soda_stream_record *r, uint64_t sectors, bool again);

/* How often it was wanted lately. */
uint32_t soda_stream_wanted(const struct soda_stream_history *h,
			    const struct soda_stream_record *r);
/* Whether it was asked for a moment ago; NULL: it was not. */
bool soda_stream_lately(const struct soda_stream_history *h, const struct soda_stream_record *r);
/*
 * Read through, three quarters of it (of what was asked for last time, where that is known;
 * what the client has it need not ask for), each part once: scattered requests repeat themselves.
 */
bool soda_stream_read_through(const struct soda_stream_record *r);

#endif
