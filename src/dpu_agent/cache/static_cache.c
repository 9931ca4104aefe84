/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/static_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "base/wait.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

enum { PATTERN_MAX = 256 };
enum range_state { LOADING, LOADED, FAILED };

struct soda_static_range {
	struct soda_hold hold;
	struct soda_static *cache;
	struct soda_owner_name owner;
	uint64_t offset, bytes;
	uint8_t *memory; /* read-only once it is loaded */
	int fd;
	/* guarded by the cache's lock */
	enum range_state state;
	uint64_t charged; /* what it takes of the capacity: bytes, or 0 once its load has failed */
	uint64_t refs;	  /* sets and readers */
	struct soda_static_range *next;
};

struct soda_static {
	soda_static_told told;	/* or NULL */
	pthread_mutex_t lock;	/* guards all below */
	pthread_cond_t settled; /* a range is no longer LOADING */
	struct soda_static_range *ranges;
	struct soda_shares shares; /* of the capacity; all of it is stats.used */
	struct soda_static_stats stats;
};

int soda_static_create(uint64_t capacity, soda_static_told told, struct soda_static **cache_p)
{
	struct soda_static *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	cache->stats.capacity = capacity;
	cache->told = told;
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->settled, NULL);
	*cache_p = cache;
	return 0;
}

void soda_static_destroy(struct soda_static *cache)
{
	if (!cache)
		return;
	pthread_cond_destroy(&cache->settled);
	pthread_mutex_destroy(&cache->lock);
	soda_shares_free(&cache->shares);
	free(cache);
}

static void tell(const struct soda_static_range *r, bool there)
{
	if (r->cache->told)
		r->cache->told(r->memory, r->bytes, there);
}

static void unmap(struct soda_static_range *r)
{
	if (r->memory) {
		tell(r, false);
		munmap(r->memory, r->bytes);
	}
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}

static void unmap_all(struct soda_static_range *dead)
{
	struct soda_static_range *next;

	for (; dead; dead = next) {
		next = dead->next;
		unmap(dead);
	}
}

static void uncharge_locked(struct soda_static *cache, struct soda_static_range *r)
{
	cache->stats.used -= r->charged;
	soda_shares_put(&cache->shares, r->owner.holder.number, r->charged);
	r->charged = 0;
}

/* Release a reference; with the last one the range leaves the list, and the caller unmaps it
 * without the lock. */
static struct soda_static_range *put_locked(struct soda_static *cache, struct soda_static_range *r)
{
	struct soda_static_range **link = &cache->ranges;

	if (--r->refs)
		return NULL;
	while (*link != r)
		link = &(*link)->next;
	*link = r->next;
	uncharge_locked(cache, r);
	cache->stats.ranges--;
	return r;
}

void soda_static_release(struct soda_static *cache, struct soda_static_range *range)
{
	pthread_mutex_lock(&cache->lock);
	range = put_locked(cache, range);
	pthread_mutex_unlock(&cache->lock);
	if (range)
		unmap(range);
}

static void put_hold(struct soda_hold *hold)
{
	struct soda_static_range *r = (struct soda_static_range *)hold;

	soda_static_release(r->cache, r);
}

struct soda_hold *soda_static_hold(struct soda_static_range *range)
{
	return &range->hold;
}

static bool covers(const struct soda_static_range *r, uint64_t offset, uint64_t bytes)
{
	return offset >= r->offset && bytes <= r->bytes && offset - r->offset <= r->bytes - bytes;
}

static bool same_owner(const struct soda_owner_name *a, const struct soda_owner_name *b)
{
	return a->file == b->file && a->id[0] == b->id[0] && a->id[1] == b->id[1] &&
	       a->server == b->server;
}

/* Of another region it is loaded, or will be, or fails under our eyes. */
static struct soda_static_range *find_locked(struct soda_static *cache,
					     const struct soda_owner_name *owner, uint64_t offset,
					     uint64_t bytes)
{
	struct soda_static_range *r = cache->ranges;

	while (r &&
	       (!same_owner(&r->owner, owner) || !covers(r, offset, bytes) || r->state == FAILED))
		r = r->next;
	return r;
}

/*
 * Take a reference and wait, without the lock, until the range is no longer LOADING; whether it is
 * loaded.  False: the thread that loaded it has failed.
 */
static bool join_locked(struct soda_static *cache, struct soda_static_range *r)
{
	struct soda_wait wait;

	r->refs++;
	cache->stats.shared++;
	if (r->state != LOADING)
		return r->state == LOADED;
	soda_wait_begin(&wait, "another client's load of a range of the static cache");
	while (r->state == LOADING)
		soda_wait_turn(&wait, &cache->settled, &cache->lock);
	pthread_mutex_unlock(&cache->lock); /* our reference keeps the range in the list */
	soda_wait_end(&wait);
	pthread_mutex_lock(&cache->lock);
	return r->state == LOADED;
}

static int refuse_locked(struct soda_static *cache, uint64_t bytes, struct soda_why *why)
{
	char wanted[16], left[16], capacity[16];

	cache->stats.refused++;
	snprintf(why->text, sizeof(why->text),
		 "static cache: %s wanted, but only %s of %s are free%s: choose less, or start the"
		 " agent with a larger --static-bytes",
		 soda_format_size(bytes, wanted),
		 soda_format_size(cache->stats.capacity - cache->stats.used, left),
		 soda_format_size(cache->stats.capacity, capacity),
		 bytes <= cache->stats.capacity - cache->stats.used
			 ? ", and a part of that is kept for other tenants"
			 : "");
	return -ENOSPC;
}

/* Add a range to the list: LOADING, its capacity reserved, with one reference. */
static int reserve_locked(struct soda_static *cache, const struct soda_owner_name *owner,
			  uint64_t offset, uint64_t bytes, struct soda_static_range **range_p,
			  struct soda_why *why)
{
	struct soda_static_range *r;

	if (!soda_shares_room(&cache->shares, cache->stats.capacity, owner->holder, bytes, 0))
		return refuse_locked(cache, bytes, why);
	r = calloc(1, sizeof(*r));
	if (!r || soda_shares_prepare(&cache->shares, owner->holder.number)) {
		free(r);
		return -ENOMEM;
	}
	*r = (struct soda_static_range){ .hold.put = put_hold,
					 .cache = cache,
					 .owner = *owner,
					 .offset = offset,
					 .bytes = bytes,
					 .charged = bytes,
					 .fd = -1,
					 .state = LOADING,
					 .refs = 1,
					 .next = cache->ranges };
	cache->ranges = r;
	cache->stats.used += bytes;
	soda_shares_take(&cache->shares, owner->holder.number, bytes); /* prepared */
	cache->stats.ranges++;
	*range_p = r;
	return 0;
}

/* Make the range's memfd with all its pages, and map it. */
static int allocate(struct soda_static_range *r)
{
	void *map;

	r->fd = memfd_create("soda-static", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (r->fd < 0 || fallocate(r->fd, 0, 0, (off_t)r->bytes))
		return -errno;
	map = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	r->memory = map;
	tell(r, true);
	return 0;
}

/*
 * Seal the memfd: from now on no process can map it for writing.  Our own mapping becomes read-only
 * and stays the one that was made before the seal: kernels before 6.2 register no other with an
 * RDMA device.
 */
static int seal(struct soda_static_range *r)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

	if (mprotect(r->memory, r->bytes, PROT_READ) || fcntl(r->fd, F_ADD_SEALS, seals))
		return -errno;
	return 0;
}

static int fill(struct soda_static_range *r, soda_static_load load, void *source,
		struct soda_why *why)
{
	int ret = allocate(r);

	if (ret) {
		snprintf(why->text, sizeof(why->text), "static cache: no memory for %llu bytes: %s",
			 (unsigned long long)r->bytes, soda_strerror(ret));
		return ret;
	}
	ret = load(source, r->offset, r->memory, r->bytes);
	if (ret) {
		snprintf(why->text, sizeof(why->text),
			 "static cache: loading %llu bytes at %llu: %s",
			 (unsigned long long)r->bytes, (unsigned long long)r->offset,
			 soda_strerror(ret));
		return ret;
	}
	return seal(r);
}

/* End a load that this thread began, and wake the threads that wait for it. */
static void settle(struct soda_static *cache, struct soda_static_range *r, int ret)
{
	pthread_mutex_lock(&cache->lock);
	if (ret) {
		r->state = FAILED;
		cache->stats.loads_failed++;
		uncharge_locked(cache, r); /* a thread that loads it again needs the room */
	} else {
		r->state = LOADED;
		cache->stats.bytes_loaded += r->bytes;
	}
	pthread_cond_broadcast(&cache->settled);
	pthread_mutex_unlock(&cache->lock);
}

/*
 * Find the loaded range, or load it: 0 with a reference in *range_p.  Where another client's load
 * fails, this client loads the range itself: the other client's connection may have failed.
 */
static int obtain(struct soda_static *cache, const struct soda_owner_name *owner, uint64_t offset,
		  uint64_t bytes, soda_static_load load, void *source,
		  struct soda_static_range **range_p, struct soda_why *why)
{
	struct soda_static_range *r, *failed, *dead = NULL;
	bool loads;
	int ret = 0;

	pthread_mutex_lock(&cache->lock);
	while ((r = find_locked(cache, owner, offset, bytes)) && !join_locked(cache, r)) {
		failed = put_locked(cache, r);
		if (!failed)
			continue;
		failed->next = dead;
		dead = failed;
	}
	loads = !r;
	if (loads)
		ret = reserve_locked(cache, owner, offset, bytes, &r, why);
	pthread_mutex_unlock(&cache->lock);
	unmap_all(dead);
	if (ret)
		return ret;
	if (loads) {
		ret = fill(r, load, source, why);
		settle(cache, r, ret);
	}
	if (ret)
		soda_static_release(cache, r);
	else
		*range_p = r;
	return ret;
}

/* Put the range into the set, with the caller's reference. 0; -EEXIST: it is there already;
 * -ENOMEM. */
static int insert_locked(struct soda_static_set *set, struct soda_static_range *r)
{
	struct soda_static_range **grown;

	for (uint32_t i = 0; i < set->n; i++)
		if (set->ranges[i] == r)
			return -EEXIST;
	grown = reallocarray(set->ranges, set->n + 1, sizeof(struct soda_static_range *));
	if (!grown)
		return -ENOMEM;
	set->ranges = grown;
	set->ranges[set->n++] = r;
	atomic_store_explicit(&set->seen, set->n, memory_order_release);
	return 0;
}

int soda_static_add(struct soda_static *cache, struct soda_static_set *set,
		    const struct soda_owner_name *owner, uint64_t offset, uint64_t bytes,
		    soda_static_load load, void *source, struct soda_static_range **range_p,
		    struct soda_why *why)
{
	struct soda_static_range *r = NULL;
	int ret;

	if (!bytes || offset % SODA_WIRE_PAGE || bytes % SODA_WIRE_PAGE || offset > owner->bytes ||
	    bytes > owner->bytes - offset) {
		snprintf(why->text, sizeof(why->text),
			 "static cache: %llu bytes at %llu are not"
			 " whole pages of an object of %llu bytes",
			 (unsigned long long)bytes, (unsigned long long)offset,
			 (unsigned long long)owner->bytes);
		return -EINVAL;
	}
	ret = obtain(cache, owner, offset, bytes, load, source, &r, why);
	if (ret)
		return ret;
	pthread_mutex_lock(&cache->lock);
	ret = insert_locked(set, r);
	pthread_mutex_unlock(&cache->lock);
	if (ret)
		soda_static_release(cache, r);
	if (ret == -ENOMEM)
		return ret;
	*range_p = r;
	return 0;
}

/* Take the ranges that lie inside out of the set; returns the chain of ranges to be unmapped. */
static struct soda_static_range *take_locked(struct soda_static *cache, struct soda_static_set *set,
					     uint64_t offset, uint64_t bytes, int *taken_p)
{
	struct soda_static_range *dead = NULL;
	uint32_t kept = 0;

	*taken_p = 0;
	for (uint32_t i = 0; i < set->n; i++) {
		struct soda_static_range *r = set->ranges[i];

		if (r->offset < offset || r->offset - offset >= bytes) {
			set->ranges[kept++] = r;
			continue;
		}
		++*taken_p;
		r = put_locked(cache, r);
		if (r) {
			r->next = dead;
			dead = r;
		}
	}
	set->n = kept;
	atomic_store_explicit(&set->seen, kept, memory_order_release);
	return dead;
}

static bool overlaps(const struct soda_static_range *r, uint64_t offset, uint64_t bytes)
{
	return offset < r->offset + r->bytes && r->offset < offset + bytes;
}

int soda_static_remove(struct soda_static *cache, struct soda_static_set *set, uint64_t offset,
		       uint64_t bytes)
{
	struct soda_static_range *dead = NULL;
	int taken = 0;

	pthread_mutex_lock(&cache->lock);
	for (uint32_t i = 0; i < set->n && !taken; i++) {
		const struct soda_static_range *r = set->ranges[i];

		if (overlaps(r, offset, bytes) &&
		    (r->offset < offset || r->offset + r->bytes > offset + bytes))
			taken = -EBUSY;
	}
	if (!taken)
		dead = take_locked(cache, set, offset, bytes, &taken);
	pthread_mutex_unlock(&cache->lock);
	unmap_all(dead);
	return taken;
}

void soda_static_clear(struct soda_static *cache, struct soda_static_set *set)
{
	struct soda_static_range *dead;
	int taken;

	pthread_mutex_lock(&cache->lock);
	dead = take_locked(cache, set, 0, UINT64_MAX, &taken);
	free(set->ranges);
	set->ranges = NULL;
	pthread_mutex_unlock(&cache->lock);
	unmap_all(dead);
}

/* Most regions have no range: for these no lock is taken. */
static bool is_empty(const struct soda_static_set *set)
{
	return !atomic_load_explicit(&set->seen, memory_order_acquire);
}

const uint8_t *soda_static_acquire(struct soda_static *cache, struct soda_static_set *set,
				   uint64_t offset, uint32_t bytes,
				   struct soda_static_range **range_p)
{
	const uint8_t *memory = NULL;

	if (is_empty(set))
		return NULL;
	pthread_mutex_lock(&cache->lock);
	for (uint32_t i = 0; i < set->n && !memory; i++) {
		struct soda_static_range *r = set->ranges[i];

		if (!covers(r, offset, bytes))
			continue;
		r->refs++;
		cache->stats.hits++;
		cache->stats.bytes_hit += bytes;
		memory = r->memory + (offset - r->offset);
		*range_p = r;
	}
	pthread_mutex_unlock(&cache->lock);
	return memory;
}

bool soda_static_frozen(struct soda_static *cache, const struct soda_static_set *set,
			uint64_t offset, uint64_t bytes)
{
	bool frozen = false;

	if (is_empty(set))
		return false;
	pthread_mutex_lock(&cache->lock);
	for (uint32_t i = 0; i < set->n && !frozen; i++)
		frozen = overlaps(set->ranges[i], offset, bytes);
	pthread_mutex_unlock(&cache->lock);
	return frozen;
}

void soda_static_share(const struct soda_static_range *range, struct soda_share *share_p)
{
	*share_p = (struct soda_share){ .fd = range->fd,
					.offset = range->offset,
					.bytes = range->bytes,
					.memory = range->memory };
}

void soda_static_stats(struct soda_static *cache, struct soda_static_stats *stats_p)
{
	pthread_mutex_lock(&cache->lock);
	*stats_p = cache->stats;
	pthread_mutex_unlock(&cache->lock);
}

bool soda_static_rule(const char *patterns, const char *name)
{
	char one[PATTERN_MAX];

	while (patterns && *patterns) {
		size_t n = strcspn(patterns, ",");

		if (n && n < sizeof(one)) {
			memcpy(one, patterns, n);
			one[n] = '\0';
			if (fnmatch(one, name, 0) == 0)
				return true;
		}
		patterns += n + (patterns[n] == ',');
	}
	return false;
}
