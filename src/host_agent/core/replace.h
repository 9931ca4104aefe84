/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which resident chunk is evicted next.  userfaultfd hides the use of a resident page:
 * a policy sees when chunks arrive and return, nothing else.
 *
 * The resident chunks are spread over shards by their number, so that faulting threads do not all
 * wait for one lock.  A chunk is in exactly one list of its shard from soda_replace_insert to
 * soda_replace_take or soda_replace_remove. The lists are threaded through the chunk table: no
 * memory of their own.
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
	uint32_t clock;	   /* goes up with each chunk that arrives; from 1, as 0 means never */
	uint32_t capacity; /* chunks of the buffer that are this shard's share */
	uint32_t seed;
	_Atomic uint32_t resident; /* sum of count, readable without the lock */
} __attribute__((aligned(64)));

struct soda_policy {
	const char *name;
	/*
	 * Chunk id has become resident: put it into a list (soda_list_push). `credit` and `prev` of
	 * a chunk are the policy's own while the chunk is not resident.
	 */
	void (*insert)(struct soda_shard *s, uint32_t id);
	/* The next candidate for eviction; it stays in its list. SODA_NO_CHUNK: none. */
	uint32_t (*victim)(struct soda_shard *s);
	/*
	 * The candidate cannot be evicted now (held, pinned, busy): put it where victim() does not
	 * return it at once.
	 */
	void (*spare)(struct soda_shard *s, uint32_t id);
	/* Chunk id was taken out of its list, and will not be resident any more. */
	void (*evicted)(struct soda_shard *s, uint32_t id);
};

struct soda_replacer {
	const struct soda_policy *policy;
	struct soda_chunk *table;
	uint32_t shards; /* a power of two */
	struct soda_shard shard[SODA_REPLACE_SHARDS_MAX];
};

extern const struct soda_policy soda_policy_fifo, soda_policy_ghost;

/* The policy of that name; NULL: there is none, and why lists those that there are. */
const struct soda_policy *soda_policy_find(const char *name, struct soda_why *why);

/* capacity: of the buffer in chunks, from which the number of shards follows. */
void soda_replace_init(struct soda_replacer *r, const struct soda_policy *policy,
		       struct soda_chunk *table, uint64_t capacity);
/* The buffer's size has changed. */
void soda_replace_resize(struct soda_replacer *r, uint64_t capacity);

/* Chunk id has become resident. */
void soda_replace_insert(struct soda_replacer *r, uint32_t id);
/* Take a chunk out that is dropped for another reason (free, discard, cold). In no list: no-op. */
void soda_replace_remove(struct soda_replacer *r, uint32_t id);

/*
 * Offer chunks to `want`, in the policy's order, and take those out that it agrees to drop, up to
 * max; returns how many.  From the fullest shard, from others only while want has agreed to
 * nothing; at most max + 32 candidates of a shard.  want is called with the shard's lock held; it
 * makes the chunk BUSY or QUEUED by compare-and-swap, and answers SODA_TAKE_NO    neither: the
 * chunk stays in the shard SODA_TAKE_DROP  BUSY: the chunk is taken out, and its id is in ids
 *   SODA_TAKE_KEEP  QUEUED for write-back: the chunk stays in the shard
 */
enum soda_take { SODA_TAKE_NO, SODA_TAKE_DROP, SODA_TAKE_KEEP };
int soda_replace_take(struct soda_replacer *r, uint32_t *ids, int max,
		      enum soda_take (*want)(void *arg, uint32_t id), void *arg);

/*
 * For policies, with the shard's lock held: put a chunk at the end of a list; take it out of its
 * list.
 */
void soda_list_push(struct soda_shard *s, int list, uint32_t id);
void soda_list_remove(struct soda_shard *s, uint32_t id);
static inline struct soda_chunk *soda_shard_chunk(const struct soda_shard *s, uint32_t id)
{
	return &s->replacer->table[id];
}
/* For policies: a pseudo-random number. */
uint32_t soda_shard_random(struct soda_shard *s);

/* Whether the chunk is in a list. Takes its shard's lock. */
bool soda_replace_has(struct soda_replacer *r, uint32_t id);

/* For tests: recount all lists, and assert that the counts agree. Takes the shards' locks. */
void soda_replace_check(struct soda_replacer *r);

#endif
