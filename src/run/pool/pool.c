/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages for mappings.  A mapping starts at a chunk and has whole chunks; a bitmap says which of
 * their pages are mapped, because the program may unmap any of them.
 * A chunk of which no page is mapped is discarded, and free.  It cannot be discarded while a silent
 * server has it under way: then it is *left*, with its old content, and none of its pages is given
 * to a new mapping before a later discard has succeeded.
 *
 * A chunk that is discarded here is still in the server's memory, if it was written back before: it
 * is *stale*.  A second after the program has unmapped something a thread, "soda-return", tells the
 * server to give the memory behind stale chunks of which no page is mapped back to its system, and
 * tries again to discard what was left.  Until the server has answered no mapping gets the chunks
 * that it was told of.
 */
#include "run/core/run.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/wait.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/life/advise.h"
#include "host_agent/life/object.h"
#include "host_agent/life/start.h"
#include "host_agent/move/calls.h"

enum { POOLS_MAX = 1024, PAGE = 4096 };

static const uint64_t pool_least = 32ull << 20, pool_most = 1ull << 30;

/* The server is told of so many bytes at once; meanwhile it answers no other call of the program.
 */
static const uint64_t return_most = 64ull << 20;

struct pool {
	char *base;
	uint32_t chunks, next; /* next: where the next search starts */
	/*
	 * for each chunk, how many of its pages are mapped; changed with `lock`, read without it,
	 * too
	 */
	_Atomic uint16_t *mapped;
	uint64_t *pages; /* a bit for each page: it is mapped */
	uint64_t *left;	 /* a bit for each chunk: it is left */
	uint32_t left_n; /* chunks that are */
	uint64_t *stale; /* a bit for each chunk: it is stale */
	struct soda_region *region;
};

/* All guarded by `lock`; a pool is never freed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[POOLS_MAX];
static _Atomic uint32_t pools_n; /* faults read the pools before it without the lock */
static uint64_t total;		 /* bytes of all pools */

/* Chunks that the server is being told of, by the thread without the lock; n 0: none. */
struct range {
	struct pool *pool;
	uint32_t first, n;
};

/* The thread that gives back; guarded by `lock`, too. */
static struct returning {
	pthread_t thread;
	bool runs, stops;
	bool wanted;	       /* something may be left or stale, and not mapped */
	uint64_t under_way_ns; /* since when something that is left is under way; 0: nothing is */
	struct range told;
	pthread_cond_t changed; /* wanted, stops or told has */
} returning = { .changed = PTHREAD_COND_INITIALIZER };

static void *local(size_t bytes)
{
	void *p = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void set_protection(char *addr, size_t bytes, int prot)
{
	if (bytes)
		syscall(SYS_mprotect, addr, bytes, prot);
}

static struct pool *new_pool_sized(uint64_t bytes)
{
	uint32_t chunks = (uint32_t)(bytes >> soda_agent.chunk_shift);
	struct pool *pool = &pools[pools_n];
	struct soda_why why = { "" };
	struct soda_region *r = NULL;
	int ret;

	pool->mapped = local(chunks * sizeof(*pool->mapped));
	pool->pages = local(bytes / PAGE / 8 + 8);
	pool->left = local(chunks / 8 + 8);
	pool->stale = local(chunks / 8 + 8);
	if (!pool->mapped || !pool->pages || !pool->left || !pool->stale)
		return NULL;
	soda_lock_acquire(&soda_agent.api_lock);
	ret = soda_object_create_locked(NULL, bytes, 0, &r, &why);
	soda_lock_release(&soda_agent.api_lock);
	if (ret)
		return NULL;
	for (struct soda_region *slab = r; slab; slab = slab->rest)
		strcpy(slab->name, "mmap");
	pool->region = r;
	pool->base = soda_chunk_address(r->first);
	pool->chunks = chunks;
	total += bytes;
	pools_n++;
	return pool;
}

static struct pool *new_pool(uint64_t least)
{
	const uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	uint64_t want = total < pool_least ? pool_least : total > pool_most ? pool_most : total;
	struct pool *pool = NULL;

	if (pools_n == POOLS_MAX || least + granule < least)
		return NULL;
	least = (least + granule - 1) & ~(granule - 1);
	want = (want + granule - 1) & ~(granule - 1);
	if (want > least)
		pool = new_pool_sized(want);
	return pool ? pool : new_pool_sized(least);
}

static struct pool *pool_of(const char *addr)
{
	for (uint32_t i = 0; i < pools_n; i++)
		if (addr >= pools[i].base &&
		    addr < pools[i].base + ((uint64_t)pools[i].chunks << soda_agent.chunk_shift))
			return &pools[i];
	return NULL;
}

bool run_pool_has(const void *addr)
{
	return pool_of(addr);
}

static bool is_mapped(const struct pool *pool, uint64_t page)
{
	return pool->pages[page / 64] >> page % 64 & 1;
}

static void mark(struct pool *pool, uint64_t page, uint64_t n, bool on)
{
	uint32_t shift = soda_agent.chunk_shift - 12;

	for (uint64_t end = page + n; page < end; page++) {
		if (is_mapped(pool, page) == on)
			continue;
		pool->pages[page / 64] ^= 1ull << page % 64;
		pool->mapped[page >> shift] += on ? 1 : -1;
	}
}

static bool is_left(const struct pool *pool, uint32_t c)
{
	return pool->left[c / 64] >> c % 64 & 1;
}

static void leave(struct pool *pool, uint32_t first, uint32_t n, bool on)
{
	for (uint32_t c = first; c < first + n; c++) {
		if (is_left(pool, c) == on)
			continue;
		pool->left[c / 64] ^= 1ull << c % 64;
		pool->left_n += on ? 1 : -1;
	}
}

bool run_pool_holds_nothing(const void *addr)
{
	const struct pool *pool = pool_of(addr);

	return pool &&
	       !pool->mapped[(uint64_t)((const char *)addr - pool->base) >> soda_agent.chunk_shift];
}

static bool is_stale(const struct pool *pool, uint32_t c)
{
	return pool->stale[c / 64] >> c % 64 & 1;
}

static void set_stale(struct pool *pool, uint32_t first, uint32_t n, bool on)
{
	for (uint32_t c = first; c < first + n; c++)
		if (is_stale(pool, c) != on)
			pool->stale[c / 64] ^= 1ull << c % 64;
}

static bool any_is_stale(const struct pool *pool, uint32_t first, uint32_t n)
{
	for (uint32_t c = first; c < first + n; c++)
		if (is_stale(pool, c))
			return true;
	return false;
}

/* Whether the server is being told of one of these chunks. */
static bool any_is_told(const struct pool *pool, uint32_t first, uint32_t n)
{
	const struct range *told = &returning.told;

	return told->n && told->pool == pool && first < told->first + told->n &&
	       told->first < first + n;
}

/* The first of n free chunks in a row, or -1. */
static int64_t find_run(struct pool *pool, uint32_t n)
{
	for (int round = 0; round < 2; round++) {
		uint32_t run = 0;

		for (uint32_t c = round ? 0 : pool->next; c < pool->chunks; c++) {
			bool taken = pool->mapped[c] || is_left(pool, c) || any_is_told(pool, c, 1);

			run = taken ? 0 : run + 1;
			if (run == n) {
				pool->next = c + 1;
				return (int64_t)c + 1 - n;
			}
		}
	}
	return -1;
}

static void return_later(void);

/* Discard whole chunks and make them PROT_NONE; if they cannot be discarded they are left. */
static void discard(struct pool *pool, char *from, char *to)
{
	uint32_t first = (uint32_t)((uint64_t)(from - pool->base) >> soda_agent.chunk_shift);
	uint32_t n = (uint32_t)((uint64_t)(to - from) >> soda_agent.chunk_shift);
	struct soda_backed backed = { 0 };
	static bool said;
	struct soda_why why;
	int ret;

	if (from >= to)
		return;
	soda_advise_range(pool->region, from, (size_t)(to - from), SODA_UNPIN, &why);
	ret = soda_advise_discard(pool->region, from, (size_t)(to - from), &backed);
	set_stale(pool, backed.first - pool->region->first, backed.n, true);
	leave(pool, first, n, ret != 0);
	/* chunks that are left may be dirty, and are read to be written back */
	set_protection(from, (size_t)(to - from), ret ? PROT_READ : PROT_NONE);
	if (ret && !said)
		soda_log_warning("soda run: what the program has unmapped cannot be given back "
				 "while %s does not answer (%s): it is kept until then",
				 soda_agent.links[0].server.address, soda_strerror(ret));
	said |= ret != 0;
	if (ret || any_is_stale(pool, first, n))
		return_later();
}

/* No READ or WRITE of the chunk is under way, so its DISCARD need not wait for an answer. */
static bool at_rest(uint32_t id)
{
	uint32_t w = soda_chunk_load(&soda_agent.table[id]);
	enum soda_chunk_state s = soda_chunk_state(w);

	return !(w & SODA_CW_SENDING) && s != SODA_CHUNK_FETCHING && s != SODA_CHUNK_BUSY;
}

/* Discard chunks that were left, if that does not take long. True: one is still under way. */
static bool reclaim(struct pool *pool)
{
	bool under_way = false;

	for (uint32_t c = 0; c < pool->chunks && pool->left_n; c++) {
		char *p = pool->base + ((uint64_t)c << soda_agent.chunk_shift);

		if (!is_left(pool, c) || pool->mapped[c])
			continue;
		if (at_rest(soda_chunk_of(p)))
			discard(pool, p, p + soda_chunk_bytes());
		else
			under_way = true;
	}
	return under_way;
}

/* The next chunks from c on that are stale, and neither left nor mapped; n 0: there are none. */
static struct range next_stale(struct pool *pool, uint32_t c)
{
	const uint32_t most = (uint32_t)(return_most >> soda_agent.chunk_shift);
	struct range r = { pool, c, 0 };

	for (; c < pool->chunks && r.n < most; c++) {
		if (is_stale(pool, c) && !pool->mapped[c] && !is_left(pool, c))
			r.n++;
		else if (r.n)
			break;
		else
			r.first = c + 1;
	}
	return r;
}

/* Tell the server of these chunks, without the lock meanwhile.  False: it could not be told. */
static bool tell(const struct range *stale)
{
	struct soda_region *region = stale->pool->region;
	int ret;

	returning.told = *stale;
	pthread_mutex_unlock(&lock);
	ret = soda_calls_discard(region, region->first + stale->first, stale->n);
	pthread_mutex_lock(&lock);
	returning.told.n = 0;
	pthread_cond_broadcast(&returning.changed);
	if (!ret)
		set_stale(stale->pool, stale->first, stale->n, false);
	return !ret;
}

/* False: something remains, for the next time.  *under_way_p becomes true as reclaim() says. */
static bool return_of(struct pool *pool, bool *under_way_p)
{
	struct range stale = { pool, 0, 0 };

	*under_way_p |= reclaim(pool);
	while (!returning.stops && (stale = next_stale(pool, stale.first + stale.n)).n)
		if (!tell(&stale))
			return false;
	return !pool->left_n;
}

/*
 * What is left has been under way since the last call, or not.  If for longer than a fault may take
 * the server counts as silent: its connections are made anew, which ends READs and WRITEs.  Nobody
 * else waits for these.
 */
static void judge(bool under_way)
{
	uint64_t now = soda_now_ns(), most = soda_agent.settings.fault_timeout_ms * SODA_MS_NS;

	if (!under_way || !returning.under_way_ns) {
		returning.under_way_ns = under_way ? now : 0;
	} else if (now - returning.under_way_ns > most) {
		for (uint32_t i = 0; i < soda_members(); i++)
			soda_link_silent(&soda_agent.links[i]);
		returning.under_way_ns = now;
	}
}

/* Wait for a second, or until the thread shall end. */
static void pause_locked(void)
{
	struct timespec until;
	int ret = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += SODA_RUN_RETURN_S;
	while (!returning.stops && !ret)
		ret = pthread_cond_clockwait(&returning.changed, &lock, CLOCK_MONOTONIC, &until);
}

static void *return_all(void *arg)
{
	run_inside++;
	soda_thread_internal();
	pthread_mutex_lock(&lock);
	while (!returning.stops) {
		bool all = true, under_way = false;

		if (!returning.wanted) {
			pthread_cond_wait(&returning.changed, &lock);
			continue;
		}
		pause_locked();
		returning.wanted = false;
		for (uint32_t i = 0; i < pools_n && !returning.stops; i++)
			all &= return_of(&pools[i], &under_way);
		returning.wanted |= !all;
		judge(under_way);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Before the runtime ends: what the thread uses is about to go. */
static void stop_returning(void)
{
	bool runs;

	pthread_mutex_lock(&lock);
	returning.stops = true;
	runs = returning.runs;
	returning.runs = false;
	pthread_cond_broadcast(&returning.changed);
	pthread_mutex_unlock(&lock);
	if (runs)
		soda_wait_join(returning.thread, "the thread that gives back pages to end");
}

/* With the lock held.  If the thread cannot be started, the next call tries again. */
static void return_later(void)
{
	if (returning.stops)
		return;
	if (!returning.runs) {
		atomic_store(&soda_agent_stops, stop_returning);
		returning.runs =
			!soda_helper_start(&returning.thread, "soda-return", return_all, NULL);
	}
	if (!returning.wanted)
		pthread_cond_broadcast(&returning.changed);
	returning.wanted = true;
}

static void *map_locked(size_t bytes)
{
	uint32_t n = (uint32_t)((bytes + soda_chunk_bytes() - 1) >> soda_agent.chunk_shift);
	int64_t at = -1;
	struct pool *pool;
	char *p;
	uint32_t i;

	for (i = 0; i < pools_n && at < 0; i++) {
		if (pools[i].left_n)
			reclaim(&pools[i]);
		at = find_run(&pools[i], n);
	}
	if (at >= 0)
		pool = &pools[i - 1];
	else if ((pool = new_pool((uint64_t)n << soda_agent.chunk_shift)))
		at = find_run(pool, n);
	if (!pool || at < 0)
		return NULL;
	p = pool->base + ((uint64_t)at << soda_agent.chunk_shift);
	/* before mark(): a chunk that is marked may be filled, and is read to be written back */
	set_protection(p, (uint64_t)n << soda_agent.chunk_shift, PROT_READ | PROT_WRITE);
	mark(pool, (uint64_t)(p - pool->base) / PAGE, (bytes + PAGE - 1) / PAGE, true);
	return p;
}

void *run_pool_map(size_t bytes)
{
	void *p = NULL;

	run_inside++;
	pthread_mutex_lock(&lock);
	if (bytes && bytes < soda_agent.bytes)
		p = map_locked(bytes);
	pthread_mutex_unlock(&lock);
	run_inside--;
	return p;
}

/* Make pages zeros, readable and writable. */
static void erase(char *addr, size_t bytes)
{
	if (!bytes)
		return;
	set_protection(addr, bytes, PROT_READ | PROT_WRITE);
	memset(addr, 0, bytes);
}

static void unmap_locked(struct pool *pool, char *addr, size_t bytes)
{
	uint64_t chunk = soda_chunk_bytes();
	char *end = addr + bytes, *free_from = NULL;

	run_open(addr, bytes);
	mark(pool, (uint64_t)(addr - pool->base) / PAGE, bytes / PAGE, false);
	for (char *p = addr; p < end;) {
		uint32_t c = (uint32_t)((uint64_t)(p - pool->base) >> soda_agent.chunk_shift);
		char *start = pool->base + c * chunk, *next = start + chunk;
		char *stop = next < end ? next : end;

		if (pool->mapped[c]) {
			if (free_from)
				discard(pool, free_from, start);
			free_from = NULL;
			erase(p, (size_t)(stop - p)); /* for the mapping that gets them next */
		} else if (!free_from) {
			free_from = start;
		}
		if (stop == end && free_from)
			discard(pool, free_from, next);
		p = stop;
	}
}

void run_pool_unmap(void *addr, size_t bytes)
{
	char *p = addr;

	bytes = (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
	run_inside++;
	pthread_mutex_lock(&lock);
	while (bytes) {
		struct pool *pool = pool_of(p);
		size_t n;

		if (!pool)
			break;
		n = (size_t)(pool->base + ((uint64_t)pool->chunks << soda_agent.chunk_shift) - p);
		n = n < bytes ? n : bytes;
		unmap_locked(pool, p, n);
		p += n;
		bytes -= n;
	}
	pthread_mutex_unlock(&lock);
	run_inside--;
}

/* The chunks in which the range lies; bytes is not 0. */
static struct range chunks_of(struct pool *pool, const char *addr, size_t bytes)
{
	uint64_t from = (uint64_t)(addr - pool->base), to = from + bytes - 1;
	uint32_t first = (uint32_t)(from >> soda_agent.chunk_shift);

	return (struct range){ pool, first, (uint32_t)(to >> soda_agent.chunk_shift) - first + 1 };
}

/* With the lock, but not all the time: wait while the server is told of chunks of the range. */
static void await_told(struct pool *pool, const char *addr, size_t bytes)
{
	struct range r = chunks_of(pool, addr, bytes);

	while (any_is_told(pool, r.first, r.n))
		pthread_cond_wait(&returning.changed, &lock);
}

void run_pool_claim(void *addr, size_t bytes)
{
	char *p = addr;
	size_t n;

	pthread_mutex_lock(&lock);
	for (; bytes; p += n, bytes -= n) {
		struct pool *pool = pool_of(p);

		n = bytes;
		if (!pool)
			break;
		if (n >
		    (size_t)(pool->base + ((uint64_t)pool->chunks << soda_agent.chunk_shift) - p))
			n = (size_t)(pool->base +
				     ((uint64_t)pool->chunks << soda_agent.chunk_shift) - p);
		await_told(pool, p, n);
		mark(pool, (uint64_t)(p - pool->base) / PAGE, n / PAGE, true);
	}
	pthread_mutex_unlock(&lock);
}

void run_pool_discarded(uint32_t first, uint32_t n)
{
	struct pool *pool;

	if (!n)
		return;
	pthread_mutex_lock(&lock);
	pool = pool_of(soda_chunk_address(first));
	if (pool)
		set_stale(pool, first - pool->region->first, n, true);
	pthread_mutex_unlock(&lock);
}

size_t run_pool_span(const void *addr, size_t bytes, bool *mapped_p)
{
	const char *p = addr;
	struct pool *pool;
	size_t n = 0;

	pthread_mutex_lock(&lock);
	pool = pool_of(p);
	*mapped_p = !pool || is_mapped(pool, (uint64_t)(p - pool->base) / PAGE);
	while (n < bytes) {
		struct pool *here = pool_of(p + n);

		if ((!here || is_mapped(here, (uint64_t)(p + n - here->base) / PAGE)) != *mapped_p)
			break;
		n += PAGE;
	}
	pthread_mutex_unlock(&lock);
	return n < bytes ? n : bytes;
}

/*
 * Only if no page behind the mapping is mapped, in its last chunk nor in the chunks that it grows
 * into.
 */
static bool extend_locked(char *addr, size_t old, size_t bytes)
{
	uint64_t per_chunk = soda_chunk_bytes() / PAGE;
	struct pool *pool = pool_of(addr);
	uint64_t first, last;

	if (!pool)
		return false;
	first = (uint64_t)(addr + old - pool->base) / PAGE;
	last = ((uint64_t)(addr + bytes - pool->base) + PAGE - 1) / PAGE;
	if (last > ((uint64_t)pool->chunks << (soda_agent.chunk_shift - 12)))
		return false;
	for (uint64_t p = first; p < ((last + per_chunk - 1) & ~(per_chunk - 1)); p++)
		if (is_mapped(pool, p) || is_left(pool, (uint32_t)(p / per_chunk)) ||
		    any_is_told(pool, (uint32_t)(p / per_chunk), 1))
			return false;
	run_open(pool->base + first * PAGE, (last - first) * PAGE);
	set_protection(pool->base + first * PAGE, (last - first) * PAGE, PROT_READ | PROT_WRITE);
	mark(pool, first, last - first, true);
	return true;
}

bool run_pool_extend(void *addr, size_t old, size_t bytes)
{
	bool done;

	run_inside++;
	pthread_mutex_lock(&lock);
	done = extend_locked(addr, old, bytes);
	pthread_mutex_unlock(&lock);
	run_inside--;
	return done;
}
