/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/dynamic_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"

#define HUGE_PAGE (2ull << 20)

enum { SHARDS = 64, SECTORS = 64 };
enum entry_state { EMPTY, FILLING, READY, LEAVING };

/* A bit of `use`, beside the number of references: the thread that brings `use` to 0 frees the
 * slot. */
#define UNLINKED (1u << 31)

struct entry {
	struct soda_cache_key key; /* guarded by the shard's lock, as all that is not atomic */
	uint32_t next;		   /* of the same bucket */
	uint32_t bytes;
	_Atomic uint32_t use; /* grows under the shard's lock only, shrinks without */
	_Atomic uint32_t state;
	uint64_t valid, used; /* sectors that are not hidden; those that have met a request */
	uint64_t here;	      /* while FILLING: those whose bytes have come */
	const struct soda_cache_line *line; /* likewise, while it is queued; else NULL */
	bool touched;
	struct soda_cache_waiter *waiters;
	uint32_t next_empty; /* of `emptied` */
};

struct shard {
	struct soda_lock lock;
	struct soda_cache_counts counts; /* guarded by lock */
} __attribute__((aligned(64)));

struct soda_cache {
	uint8_t *arena;
	struct entry *entries;
	uint32_t *buckets; /* a bucket's shard is its low bits */
	uint32_t slots, bucket_mask;
	uint32_t entry_shift, sector_shift;
	uint64_t arena_bytes;
	_Atomic uint32_t emptied; /* stack; taken as a whole */
	uint32_t reclaimed; /* slots taken off `emptied`; guarded by soda_cache_reclaim's caller */
	struct soda_cache_tally *tallies; /* by owner, or NULL; set before start, then constant */
	struct shard shards[SHARDS];
};

/* An EMPTY slot, for soda_cache_reclaim. */
static void push_emptied(struct soda_cache *cache, uint32_t slot)
{
	struct entry *e = &cache->entries[slot];
	uint32_t head = atomic_load_explicit(&cache->emptied, memory_order_relaxed);

	do
		e->next_empty = head;
	/* release: pairs with the exchange in soda_cache_reclaim */
	while (!atomic_compare_exchange_weak_explicit(&cache->emptied, &head, slot,
						      memory_order_release, memory_order_relaxed));
}

/* The tables and the arena */

/* The arena begins on a huge page's edge, so that the kernel can back it by huge pages. */
static uint8_t *map_arena(uint64_t bytes)
{
	uint8_t *map = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t skip;

	if (map == MAP_FAILED)
		return NULL;
	skip = -(uintptr_t)map & (HUGE_PAGE - 1);
	if (skip)
		munmap(map, skip);
	munmap(map + skip + bytes, HUGE_PAGE - skip);
	/* Without huge pages the cache is slower, not wrong. */
	madvise(map + skip, bytes, MADV_HUGEPAGE);
	madvise(map + skip, bytes, MADV_DONTDUMP);
	return map + skip;
}

static void init_tables(struct soda_cache *cache)
{
	for (uint32_t i = 0; i <= cache->bucket_mask; i++)
		cache->buckets[i] = SODA_CACHE_NONE;
	for (int i = 0; i < SHARDS; i++)
		soda_lock_init(&cache->shards[i].lock, SODA_RANK_DPU_CACHE);
	atomic_init(&cache->emptied, SODA_CACHE_NONE);
	cache->reclaimed = SODA_CACHE_NONE;
	for (uint32_t slot = cache->slots; slot-- > 0;)
		push_emptied(cache, slot);
}

static struct soda_cache *allocate(uint32_t slots, uint32_t buckets)
{
	struct soda_cache *cache = aligned_alloc(64, sizeof(*cache));

	if (!cache)
		return NULL;
	memset(cache, 0, sizeof(*cache));
	cache->slots = slots;
	cache->bucket_mask = buckets - 1;
	cache->entries = calloc(slots, sizeof(*cache->entries));
	cache->buckets = malloc(buckets * sizeof(*cache->buckets));
	if (cache->entries && cache->buckets)
		return cache;
	soda_cache_destroy(cache);
	return NULL;
}

int soda_cache_create(uint64_t bytes, uint32_t entry_bytes, struct soda_cache **cache_p)
{
	uint64_t slots = entry_bytes ? bytes / entry_bytes : 0;
	uint32_t buckets = SHARDS;
	struct soda_cache *cache;

	if (entry_bytes < SODA_CACHE_ENTRY_MIN || entry_bytes > SODA_CACHE_ENTRY_MAX ||
	    (entry_bytes & (entry_bytes - 1)) || slots < 2 || slots > 1u << 24)
		return -EINVAL;
	while (buckets < 2 * slots)
		buckets *= 2;
	cache = allocate((uint32_t)slots, buckets);
	if (!cache)
		return -ENOMEM;
	cache->entry_shift = (uint32_t)__builtin_ctz(entry_bytes);
	cache->sector_shift = (uint32_t)__builtin_ctz(entry_bytes / SECTORS);
	if (cache->sector_shift < 12)
		cache->sector_shift = 12;
	cache->arena_bytes = (slots * entry_bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	cache->arena = map_arena(cache->arena_bytes);
	if (!cache->arena) {
		soda_cache_destroy(cache);
		return -ENOMEM;
	}
	init_tables(cache);
	*cache_p = cache;
	return 0;
}

void soda_cache_destroy(struct soda_cache *cache)
{
	if (!cache)
		return;
	if (cache->arena)
		munmap(cache->arena, cache->arena_bytes);
	free(cache->entries);
	free(cache->buckets);
	free(cache);
}

uint32_t soda_cache_slots(const struct soda_cache *cache)
{
	return cache->slots;
}

uint32_t soda_cache_entry_bytes(const struct soda_cache *cache)
{
	return 1u << cache->entry_shift;
}

uint8_t *soda_cache_arena(const struct soda_cache *cache, uint64_t *bytes_p)
{
	*bytes_p = cache->arena_bytes;
	return cache->arena;
}

void soda_cache_tell(struct soda_cache *cache, struct soda_cache_tally *tallies)
{
	cache->tallies = tallies;
}

/* Tallies: sums, which order nothing. */
static void tell(_Atomic uint64_t *sum, uint64_t bytes)
{
	if (bytes)
		atomic_fetch_add_explicit(sum, bytes, memory_order_relaxed);
}

static void tell_of_request(struct soda_cache *cache, uint32_t owner, uint64_t asked,
			    uint64_t given, uint64_t used)
{
	if (!cache->tallies)
		return;
	tell(&cache->tallies[owner].asked, asked);
	tell(&cache->tallies[owner].given, given);
	tell(&cache->tallies[owner].used, used);
}

/* Entries */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

static uint32_t *bucket_of(const struct soda_cache *cache, const struct soda_cache_key *key,
			   struct shard **shard_p)
{
	uint64_t hash = mix(key->entry + mix(key->owner + 1ull));

	*shard_p = (struct shard *)&cache->shards[hash % SHARDS];
	return &cache->buckets[hash & cache->bucket_mask];
}

static bool same(const struct soda_cache_key *a, const struct soda_cache_key *b)
{
	return a->owner == b->owner && a->entry == b->entry;
}

static uint32_t find_locked(const struct soda_cache *cache, const uint32_t *bucket,
			    const struct soda_cache_key *key)
{
	uint32_t slot = *bucket;

	while (slot != SODA_CACHE_NONE && !same(&cache->entries[slot].key, key))
		slot = cache->entries[slot].next;
	return slot;
}

/* The sectors that a range touches. */
static uint64_t sectors_of(const struct soda_cache *cache, uint32_t offset, uint64_t bytes)
{
	uint32_t first = offset >> cache->sector_shift;
	uint32_t last = (uint32_t)((offset + bytes - 1) >> cache->sector_shift);

	return (UINT64_MAX >> (SECTORS - 1 - (last - first))) << first;
}

static uint64_t sector_bytes(const struct soda_cache *cache, uint64_t sectors)
{
	return (uint64_t)__builtin_popcountll(sectors) << cache->sector_shift;
}

static uint8_t *memory_of(const struct soda_cache *cache, uint32_t slot)
{
	return cache->arena + ((uint64_t)slot << cache->entry_shift);
}

static void set_state(struct entry *e, enum entry_state state)
{
	/* release: with the acquire in soda_cache_evictable, which looks without a lock */
	atomic_store_explicit(&e->state, state, memory_order_release);
}

static enum entry_state get_state(const struct entry *e)
{
	return (enum entry_state)atomic_load_explicit(&e->state, memory_order_acquire);
}

static void reference(struct entry *e)
{
	atomic_fetch_add_explicit(&e->use, 1, memory_order_relaxed);
}

static void count_unused_locked(struct soda_cache *cache, struct shard *s, const struct entry *e,
				uint64_t sectors)
{
	uint64_t bytes = sector_bytes(cache, sectors);

	s->counts.bytes_useless += bytes;
	if (cache->tallies)
		tell(&cache->tallies[e->key.owner].unused, bytes);
}

static void count_useless_locked(struct soda_cache *cache, struct shard *s, const struct entry *e)
{
	if (!e->touched)
		s->counts.useless++;
	count_unused_locked(cache, s, e, e->valid & ~e->used);
}

/* Whether the entry is queued behind others, and nobody waits for any of these sectors. */
static bool is_behind_locked(const struct soda_cache *cache, const struct entry *e,
			     uint64_t sectors)
{
	if (!e->line || !atomic_load_explicit(&e->line->stands, memory_order_relaxed) ||
	    &cache->entries[atomic_load_explicit(&e->line->first, memory_order_relaxed)] == e)
		return false;
	for (const struct soda_cache_waiter *w = e->waiters; w; w = w->next)
		if (w->sectors & sectors)
			return false;
	return true;
}

/* What a request of these sectors finds in an entry. */
static enum soda_cache_answer meet_locked(struct soda_cache *cache, struct entry *e,
					  uint64_t sectors, struct soda_cache_waiter *waiter)
{
	if ((e->valid & sectors) != sectors)
		return SODA_CACHE_MISS;
	if (get_state(e) == READY || (e->here & sectors) == sectors) {
		reference(e);
		return SODA_CACHE_HIT;
	}
	if (!waiter)
		return SODA_CACHE_MISS;
	/* One sector stays: an entry that has none is in no table. */
	if (is_behind_locked(cache, e, sectors) && e->valid != sectors) {
		e->valid &= ~sectors;
		return SODA_CACHE_MISS;
	}
	waiter->next = e->waiters;
	waiter->sectors = sectors;
	e->waiters = waiter;
	return SODA_CACHE_LATE;
}

static void count_answer_locked(struct shard *s, enum soda_cache_answer answer, uint32_t bytes)
{
	struct soda_cache_counts *n = &s->counts;

	*(answer == SODA_CACHE_HIT    ? &n->hits
	  : answer == SODA_CACHE_LATE ? &n->late_hits
				      : &n->misses) += 1;
	*(answer == SODA_CACHE_HIT    ? &n->bytes_hit
	  : answer == SODA_CACHE_LATE ? &n->bytes_late
				      : &n->bytes_missed) += bytes;
}

static enum soda_cache_answer bypass(struct soda_cache *cache, uint32_t owner, struct shard *s,
				     uint32_t bytes)
{
	tell_of_request(cache, owner, bytes, 0, 0);
	soda_lock_acquire(&s->lock);
	s->counts.bypassed++;
	count_answer_locked(s, SODA_CACHE_MISS, bytes);
	soda_lock_release(&s->lock);
	return SODA_CACHE_MISS;
}

enum soda_cache_answer soda_cache_acquire(struct soda_cache *cache, uint32_t owner, uint64_t offset,
					  uint32_t bytes, struct soda_cache_waiter *waiter,
					  struct soda_cache_ref *ref_p)
{
	struct soda_cache_key key = { .owner = owner, .entry = offset >> cache->entry_shift };
	uint32_t at = (uint32_t)(offset & ((1u << cache->entry_shift) - 1)), slot;
	enum soda_cache_answer answer = SODA_CACHE_MISS;
	struct soda_cache_ref ref;
	struct shard *s;
	uint32_t *bucket = bucket_of(cache, &key, &s);
	uint64_t used = 0;

	if (!bytes || bytes > (1u << cache->entry_shift) - at)
		return bypass(cache, owner, s, bytes);
	if (waiter) {
		waiter->offset = at;
		waiter->bytes = bytes;
	}
	soda_lock_acquire(&s->lock);
	slot = find_locked(cache, bucket, &key);
	if (slot != SODA_CACHE_NONE) {
		struct entry *e = &cache->entries[slot];
		uint64_t sectors = sectors_of(cache, at, bytes);

		answer = meet_locked(cache, e, sectors, waiter);
		if (answer != SODA_CACHE_MISS) {
			ref = (struct soda_cache_ref){ .memory = memory_of(cache, slot) + at,
						       .slot = slot,
						       .first = !e->touched };
			*ref_p = ref;
			e->touched = true;
			used = sector_bytes(cache, sectors & ~e->used);
			e->used |= sectors;
		}
	}
	count_answer_locked(s, answer, bytes);
	soda_lock_release(&s->lock);
	tell_of_request(cache, owner, bytes, answer == SODA_CACHE_MISS ? 0 : bytes, used);
	return answer;
}

void soda_cache_release(struct soda_cache *cache, uint32_t slot)
{
	struct entry *e = &cache->entries[slot];
	/* release: our use of the bytes comes before the next fill; acquire: with the releases
	   of the others, where we are the last */
	uint32_t before = atomic_fetch_sub_explicit(&e->use, 1, memory_order_acq_rel);

	assert((before & ~UNLINKED) > 0);
	if (before != (UNLINKED | 1))
		return;
	/* The entry is not in the hash and has no reference: only this thread can reach it. */
	set_state(e, EMPTY);
	atomic_store_explicit(&e->use, 0, memory_order_relaxed);
	push_emptied(cache, slot);
}

uint32_t soda_cache_find(struct soda_cache *cache, const struct soda_cache_key *key)
{
	struct shard *s;
	uint32_t *bucket = bucket_of(cache, key, &s), slot;

	soda_lock_acquire(&s->lock);
	slot = find_locked(cache, bucket, key);
	soda_lock_release(&s->lock);
	return slot;
}

/* Join the two runs with the smallest gap: the bytes between them are read, too. */
static uint32_t join_two(struct soda_cache_run *runs, uint32_t n)
{
	uint32_t best = 1, least = UINT32_MAX;

	for (uint32_t i = 1; i < n; i++) {
		uint32_t gap = runs[i].at - (runs[i - 1].at + runs[i - 1].bytes);

		if (gap < least) {
			least = gap;
			best = i;
		}
	}
	runs[best - 1].bytes = runs[best].at + runs[best].bytes - runs[best - 1].at;
	for (uint32_t i = best; i + 1 < n; i++)
		runs[i] = runs[i + 1];
	return n - 1;
}

uint32_t soda_cache_plan(const struct soda_cache *cache, uint32_t bytes, uint64_t wanted,
			 struct soda_cache_run runs[SODA_CACHE_RUNS_MAX])
{
	struct soda_cache_run all[SECTORS / 2 + 1];
	uint32_t step = 1u << cache->sector_shift, n = 0;
	/* Small entries have less than 64 sectors, of a page each. */
	uint32_t parts = step >> (cache->entry_shift - 6);

	for (uint32_t at = 0, i = 0; at < bytes; at += step, i += parts) {
		uint64_t part = (UINT64_MAX >> (64 - parts)) << i;

		if (!(wanted & part))
			continue;
		if (n && all[n - 1].at + all[n - 1].bytes == at)
			all[n - 1].bytes += step;
		else
			all[n++] = (struct soda_cache_run){ at, step };
	}
	if (!n) /* only sectors behind the owner's end were wanted: read its last part */
		all[n++] = (struct soda_cache_run){ (bytes - 1) & ~(step - 1), step };
	if (all[n - 1].at + all[n - 1].bytes > bytes)
		all[n - 1].bytes = bytes - all[n - 1].at;
	while (n > SODA_CACHE_RUNS_MAX)
		n = join_two(all, n);
	memcpy(runs, all, n * sizeof(*runs));
	return n;
}

int soda_cache_fill_begin(struct soda_cache *cache, uint32_t slot, const struct soda_cache_key *key,
			  const struct soda_cache_run *runs, uint32_t n, uint8_t **memory_p)
{
	struct entry *e = &cache->entries[slot];
	struct shard *s;
	uint32_t *bucket = bucket_of(cache, key, &s);

	assert(get_state(e) == EMPTY && n);
	soda_lock_acquire(&s->lock);
	if (find_locked(cache, bucket, key) != SODA_CACHE_NONE) {
		soda_lock_release(&s->lock);
		return -EEXIST;
	}
	e->key = *key;
	e->bytes = 0;
	e->valid = e->here = 0;
	for (uint32_t i = 0; i < n; i++) {
		e->bytes += runs[i].bytes;
		e->valid |= sectors_of(cache, runs[i].at, runs[i].bytes);
	}
	e->used = 0;
	e->touched = false;
	e->line = NULL;
	e->waiters = NULL;
	atomic_store_explicit(&e->use, 1, memory_order_relaxed); /* the fill's own */
	set_state(e, FILLING);
	e->next = *bucket;
	*bucket = slot;
	s->counts.entries++;
	soda_lock_release(&s->lock);
	*memory_p = memory_of(cache, slot);
	return 0;
}

void soda_cache_fill_queue(struct soda_cache *cache, uint32_t slot,
			   const struct soda_cache_line *line)
{
	struct entry *e = &cache->entries[slot];
	struct shard *s;

	bucket_of(cache, &e->key, &s); /* constant: the fill has a reference */
	soda_lock_acquire(&s->lock);
	e->line = line;
	soda_lock_release(&s->lock);
}

/* The same in 64ths of an entry: small entries have less sectors, of a page each. */
static uint64_t in_parts(const struct soda_cache *cache, uint64_t sectors)
{
	uint32_t parts = 1u << (cache->sector_shift + 6 - cache->entry_shift);
	uint64_t wanted = 0;

	for (uint32_t i = 0; i * parts < SECTORS; i++)
		if (sectors >> i & 1)
			wanted |= (UINT64_MAX >> (SECTORS - parts)) << i * parts;
	return wanted;
}

uint32_t soda_cache_fill_start(struct soda_cache *cache, uint32_t slot,
			       struct soda_cache_run runs[SODA_CACHE_RUNS_MAX], uint32_t n)
{
	struct entry *e = &cache->entries[slot];
	uint32_t end = runs[n - 1].at + runs[n - 1].bytes, bytes = 0;
	uint64_t awaited;
	struct shard *s;

	bucket_of(cache, &e->key, &s);
	soda_lock_acquire(&s->lock);
	e->line = NULL;
	awaited = get_state(e) == FILLING ? e->valid : 0;
	if (awaited) {
		n = soda_cache_plan(cache, end, in_parts(cache, awaited), runs);
		for (uint32_t i = 0; i < n; i++)
			bytes += runs[i].bytes;
		e->bytes = bytes;
	}
	soda_lock_release(&s->lock);
	return awaited ? n : 0;
}

/* Take the entry out of the hash.  True: its slot is empty, and the caller's; else the last
 * reference frees it. */
static bool unlink_locked(struct soda_cache *cache, struct shard *s, uint32_t *bucket,
			  uint32_t slot)
{
	struct entry *e = &cache->entries[slot];
	uint32_t *link = bucket;

	while (*link != slot)
		link = &cache->entries[*link].next;
	*link = e->next;
	s->counts.entries--;
	count_useless_locked(cache, s, e);
	e->valid = 0;
	set_state(e, LEAVING);
	/* acquire: the uses that have ended come before the slot's next fill */
	if (atomic_fetch_or_explicit(&e->use, UNLINKED, memory_order_acq_rel) != 0)
		return false;
	atomic_store_explicit(&e->use, 0, memory_order_relaxed);
	set_state(e, EMPTY);
	return true;
}

/* Take out the waiters all of whose sectors are here: each gets a reference. */
static struct soda_cache_waiter *take_served_locked(struct entry *e)
{
	struct soda_cache_waiter **link = &e->waiters, *served = NULL;

	while (*link) {
		struct soda_cache_waiter *w = *link;

		if ((e->here & e->valid & w->sectors) != w->sectors) {
			link = &w->next;
			continue;
		}
		*link = w->next;
		w->next = served;
		served = w;
		reference(e);
	}
	return served;
}

void soda_cache_fill_part(struct soda_cache *cache, uint32_t slot, uint32_t at, uint32_t bytes)
{
	struct entry *e = &cache->entries[slot];
	struct soda_cache_ref ref = { .slot = slot };
	struct soda_cache_waiter *w = NULL, *next;
	struct shard *s;

	bucket_of(cache, &e->key, &s); /* constant: the fill has a reference */
	assert(!(at & ((1u << cache->sector_shift) - 1)));
	soda_lock_acquire(&s->lock);
	if (get_state(e) == FILLING) {
		e->here |= sectors_of(cache, at, bytes);
		w = take_served_locked(e);
	}
	soda_lock_release(&s->lock);
	for (; w; w = next) {
		next = w->next; /* done() may free the waiter */
		ref.memory = memory_of(cache, slot) + w->offset;
		w->done(w, 0, &ref);
	}
}

/* Each waiter that gets bytes gets a reference; status for the others. */
static struct soda_cache_waiter *end_locked(struct soda_cache *cache, struct shard *s,
					    uint32_t *bucket, uint32_t slot, int status)
{
	struct entry *e = &cache->entries[slot];
	struct soda_cache_waiter *waiters = e->waiters;

	e->waiters = NULL;
	s->counts.fills++;
	if (status)
		s->counts.fills_failed++;
	else
		s->counts.bytes_filled += e->bytes;
	if (get_state(e) == LEAVING)
		return waiters;
	if (status) {
		e->valid = 0;
		e->touched = true; /* an entry whose fill failed is not counted as useless */
		unlink_locked(cache, s, bucket, slot);
		return waiters;
	}
	set_state(e, READY);
	for (struct soda_cache_waiter *w = waiters; w; w = w->next)
		if ((e->valid & w->sectors) == w->sectors)
			reference(e);
		else
			w->sectors = 0;
	return waiters;
}

void soda_cache_fill_end(struct soda_cache *cache, uint32_t slot, int status)
{
	struct entry *e = &cache->entries[slot];
	struct soda_cache_ref ref = { .slot = slot };
	struct soda_cache_waiter *w, *next;
	struct shard *s;
	uint32_t *bucket = bucket_of(cache, &e->key, &s);
	bool good;

	soda_lock_acquire(&s->lock);
	w = end_locked(cache, s, bucket, slot, status);
	good = get_state(e) == READY;
	soda_lock_release(&s->lock);
	for (; w; w = next) {
		next = w->next; /* done() may free the waiter */
		ref.memory = memory_of(cache, slot) + w->offset;
		if (good && w->sectors) {
			w->done(w, 0, &ref);
		} else {
			if (cache->tallies)
				tell(&cache->tallies[e->key.owner].failed, w->bytes);
			w->done(w, status ? status : -ESTALE, NULL);
		}
	}
	soda_cache_release(cache, slot);
}

int soda_cache_evict(struct soda_cache *cache, uint32_t slot)
{
	struct entry *e = &cache->entries[slot];
	struct shard *s;
	uint32_t *bucket;
	int ret = -EBUSY;

	if (!soda_cache_evictable(cache, slot))
		return -EBUSY;
	/* The key is constant until the slot is reclaimed, which only our caller does. */
	bucket = bucket_of(cache, &e->key, &s);
	soda_lock_acquire(&s->lock);
	/* References appear under this lock only: none now, none later. */
	if (get_state(e) == READY && !atomic_load_explicit(&e->use, memory_order_acquire)) {
		s->counts.evictions++;
		unlink_locked(cache, s, bucket, slot);
		ret = 0;
	}
	soda_lock_release(&s->lock);
	return ret;
}

bool soda_cache_evictable(const void *arg, uint32_t slot)
{
	const struct soda_cache *cache = arg;
	const struct entry *e;

	if (slot >= cache->slots)
		return false;
	e = &cache->entries[slot];
	return get_state(e) == READY && !atomic_load_explicit(&e->use, memory_order_relaxed);
}

static void written_entry(struct soda_cache *cache, const struct soda_cache_key *key,
			  uint32_t offset, uint64_t bytes)
{
	struct shard *s;
	uint32_t *bucket = bucket_of(cache, key, &s), slot;
	bool emptied = false;

	soda_lock_acquire(&s->lock);
	slot = find_locked(cache, bucket, key);
	if (slot != SODA_CACHE_NONE) {
		struct entry *e = &cache->entries[slot];
		uint64_t sectors = sectors_of(cache, offset, bytes), gone = e->valid & sectors;

		s->counts.writes++;
		count_unused_locked(cache, s, e, gone & ~e->used);
		e->valid &= ~sectors;
		if (!e->valid)
			emptied = unlink_locked(cache, s, bucket, slot);
	}
	soda_lock_release(&s->lock);
	if (emptied)
		push_emptied(cache, slot);
}

void soda_cache_written(struct soda_cache *cache, uint32_t owner, uint64_t offset, uint64_t bytes)
{
	uint64_t size = 1ull << cache->entry_shift;

	while (bytes) {
		struct soda_cache_key key = { .owner = owner,
					      .entry = offset >> cache->entry_shift };
		uint64_t at = offset & (size - 1), part = size - at;

		part = part < bytes ? part : bytes;
		written_entry(cache, &key, (uint32_t)at, part);
		offset += part;
		bytes -= part;
	}
}

/* Looks at all slots: rare, and a slot is 96 bytes of an entry's million. */
void soda_cache_forget(struct soda_cache *cache, uint32_t owner)
{
	for (uint32_t i = 0; i <= cache->bucket_mask; i++) {
		struct shard *s = &cache->shards[i % SHARDS];
		uint32_t slot, next;

		soda_lock_acquire(&s->lock);
		for (slot = cache->buckets[i]; slot != SODA_CACHE_NONE; slot = next) {
			next = cache->entries[slot].next;
			if (cache->entries[slot].key.owner == owner &&
			    unlink_locked(cache, s, &cache->buckets[i], slot))
				push_emptied(cache, slot);
		}
		soda_lock_release(&s->lock);
	}
}

uint32_t soda_cache_reclaim(struct soda_cache *cache)
{
	uint32_t slot;

	if (cache->reclaimed == SODA_CACHE_NONE)
		/* acquire: pairs with the release in push_emptied */
		cache->reclaimed = atomic_exchange_explicit(&cache->emptied, SODA_CACHE_NONE,
							    memory_order_acquire);
	slot = cache->reclaimed;
	if (slot != SODA_CACHE_NONE)
		cache->reclaimed = cache->entries[slot].next_empty;
	return slot;
}

void soda_cache_count(struct soda_cache *cache, struct soda_cache_counts *counts_p)
{
	uint64_t *sum = (uint64_t *)counts_p;

	_Static_assert(sizeof(*counts_p) % sizeof(uint64_t) == 0, "counts are uint64_t");
	memset(counts_p, 0, sizeof(*counts_p));
	for (int i = 0; i < SHARDS; i++) {
		const uint64_t *one = (const uint64_t *)&cache->shards[i].counts;

		soda_lock_acquire(&cache->shards[i].lock);
		for (size_t k = 0; k < sizeof(*counts_p) / sizeof(uint64_t); k++)
			sum[k] += one[k];
		soda_lock_release(&cache->shards[i].lock);
	}
}

void soda_cache_check(struct soda_cache *cache)
{
	struct soda_cache_counts counts;
	uint64_t linked = 0;

	soda_cache_count(cache, &counts);
	for (uint32_t i = 0; i <= cache->bucket_mask; i++)
		for (uint32_t slot = cache->buckets[i]; slot != SODA_CACHE_NONE;
		     slot = cache->entries[slot].next) {
			const struct entry *e = &cache->entries[slot];
			struct shard *s;

			assert(bucket_of(cache, &e->key, &s) == &cache->buckets[i]);
			assert(get_state(e) == READY || get_state(e) == FILLING);
			assert(e->valid && !(e->use & UNLINKED));
			assert(++linked <= cache->slots);
		}
	for (uint32_t slot = 0; slot < cache->slots; slot++)
		if (get_state(&cache->entries[slot]) == EMPTY)
			assert(cache->entries[slot].use == 0 && !cache->entries[slot].waiters);
	assert(linked == counts.entries);
}
