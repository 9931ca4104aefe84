/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which resident chunk goes next.  userfaultfd hides the use of a resident page:
 * a policy sees arrivals and returns, nothing else.
 *
 * The resident chunks are spread over shards by their number, so that threads
 * that fault do not meet at one lock.  A chunk is in exactly one list of its shard
 * from soda_replace_insert to soda_replace_take or soda_replace_remove.
 * The lists are threaded through the chunk table: no memory of their own.
 */
#ifndef SODA_HOST_REPLACE_H
#define SODA_HOST_REPLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "host_agent/core/chunk.h"
#include "transport/api/transport.h"

#define SODA_NO_CHUNK UINT32_MAX

enum { SODA_REPLACE_SHARDS_MAX = 16, SODA_REPLACE_LISTS = 3 };

struct soda_shard {
	struct soda_lock lock;
	struct soda_replacer *replacer;
	/* guarded by lock; list 0 is not used, so that 0 in a chunk says "in no list" */
	uint32_t head[SODA_REPLACE_LISTS], tail[SODA_REPLACE_LISTS], count[SODA_REPLACE_LISTS];
	uint32_t clock;	   /* arrivals so far; starts at 1, 0 means never */
	uint32_t capacity; /* chunks of the buffer that are this shard's share */
	uint32_t seed;
	_Atomic uint32_t resident; /* sum of count, readable without the lock */
} __attribute__((aligned(64)));

struct soda_policy {
	const char *name;
	/* A chunk has arrived: put it into a list (soda_list_push). `credit` and `prev` of a
	   chunk are the policy's own while the chunk is away. */
	void (*insert)(struct soda_shard *s, uint32_t id);
	/* The next candidate, still in its list; SODA_NO_CHUNK: none. */
	uint32_t (*victim)(struct soda_shard *s);
	/* The candidate could not be taken (held, pinned, busy): put it where it is not met at
	 * once. */
	void (*spare)(struct soda_shard *s, uint32_t id);
	/* It was taken, is in no list any more and will be away. */
	void (*evicted)(struct soda_shard *s, uint32_t id);
};

struct soda_replacer {
	const struct soda_policy *policy;
	struct soda_chunk *table;
	uint32_t shards; /* a power of two */
	struct soda_shard shard[SODA_REPLACE_SHARDS_MAX];
};

extern const struct soda_policy soda_policy_fifo, soda_policy_ghost;

/* By name; NULL: unknown, and which there are in why. */
const struct soda_policy *soda_policy_find(const char *name, struct soda_why *why);

/* capacity: of the buffer in chunks; decides how many shards make sense. */
void soda_replace_init(struct soda_replacer *r, const struct soda_policy *policy,
		       struct soda_chunk *table, uint64_t capacity);
/* The buffer's size has changed. */
void soda_replace_resize(struct soda_replacer *r, uint64_t capacity);

void soda_replace_insert(struct soda_replacer *r, uint32_t id);
/* Forget a chunk that goes for another reason (free, discard, cold). In no list: no-op. */
void soda_replace_remove(struct soda_replacer *r, uint32_t id);

/*
 * Take up to max chunks that `want` agrees to out of the fullest shard, in the
 * policy's order; looks at no more than max + 32 candidates.  want is called with
 * the shard's lock held and decides by compare-and-swap on the chunk:
 *   SODA_TAKE_NO    leave it in its list
 *   SODA_TAKE_DROP  it goes now; it is taken out, its id is in ids
 *   SODA_TAKE_KEEP  it was dealt with (queued for write-back): it is moved on
 */
enum soda_take { SODA_TAKE_NO, SODA_TAKE_DROP, SODA_TAKE_KEEP };
int soda_replace_take(struct soda_replacer *r, uint32_t *ids, int max,
		      enum soda_take (*want)(void *arg, uint32_t id), void *arg);

/* For policies. */
void soda_list_push(struct soda_shard *s, int list, uint32_t id);
void soda_list_remove(struct soda_shard *s, uint32_t id);
static inline struct soda_chunk *soda_shard_chunk(const struct soda_shard *s, uint32_t id)
{
	return &s->replacer->table[id];
}
uint32_t soda_shard_random(struct soda_shard *s);

/* Whether it is in a list. Takes its shard's lock. */
bool soda_replace_has(struct soda_replacer *r, uint32_t id);

/* Debug: recompute every count; asserts. Takes the locks. */
void soda_replace_check(struct soda_replacer *r);

#endif
