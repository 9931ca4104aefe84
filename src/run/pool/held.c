/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --io-uring=hold: memory that stays for io_uring.  The kernel loads and stores where a request
 * says, at a time that nobody here sees.  So the program's first ring pins all of its fabric
 * memory, open for stores; from then on new blocks and mappings are local, and what becomes mapped,
 * zeros or accessible again in fabric memory is pinned anew.  The page buffer grows where that is
 * more than it may have pinned.
 *
 * A thread that allocates meanwhile has its pages mapped, and then looks at `held`; the thread with
 * the first ring sets `held`, and then looks at what is mapped: one of the two pins them.
 *
 * Locks: `beginning` comes before `keeping`, and that before all others.
 */
#include "run/core/run.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "host_agent/fork/child.h"
#include "host_agent/heap/extent.h"
#include "host_agent/heap/heap.h"
#include "host_agent/life/advise.h"
#include "host_agent/move/limit.h"
#include "host_agent/object/region.h"

static pthread_mutex_t beginning =
	PTHREAD_MUTEX_INITIALIZER;			    /* the first ring, until all is kept */
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER; /* from make_room() to the last pin */
static _Atomic bool held;

bool run_rings_held(void)
{
	return atomic_load(&held);
}

/* How many bytes of the range, from its first on, are in chunks that are all closed, or all not. */
static size_t alike(const char *addr, size_t bytes, bool *closed_p)
{
	const char *end = addr + bytes, *p = addr;

	*closed_p = soda_chunk_is_closed(soda_chunk_of(addr));
	while (p < end && soda_chunk_is_closed(soda_chunk_of(p)) == *closed_p)
		p = soda_chunk_address(soda_chunk_of(p) + 1);
	return p < end ? (size_t)(p - addr) : bytes;
}

static int64_t count_unpinned(const char *addr, size_t bytes)
{
	uint32_t last = soda_chunk_of(addr + bytes - 1);
	int64_t n = 0;

	for (uint32_t id = soda_chunk_of(addr); id <= last; id++)
		n += !(soda_chunk_load(&soda_agent.table[id]) & SODA_CW_PINNED);
	return n;
}

/* Make the page buffer so large that n chunks more can be pinned. */
static void make_room(int64_t n)
{
	int64_t room;

	while ((room = soda_advise_pinnable()) < n)
		soda_limit_add(n - room);
}

/* Pin mapped pages, but for chunks that the program has closed. 0 or a negative error. */
static int keep_mapped(char *addr, size_t bytes)
{
	bool closed;
	int ret = 0;
	size_t n;

	for (; bytes && !ret; addr += n, bytes -= n) {
		n = alike(addr, bytes, &closed);
		if (closed)
			continue;
		make_room(count_unpinned(addr, n));
		ret = run_pin(addr, n);
	}
	return ret;
}

static int keep(char *addr, size_t bytes)
{
	bool mapped;
	int ret = 0;
	size_t n;

	pthread_mutex_lock(&keeping);
	for (; bytes && !ret; addr += n, bytes -= n) {
		n = run_pool_span(addr, bytes, &mapped);
		ret = mapped ? keep_mapped(addr, n) : 0;
	}
	pthread_mutex_unlock(&keeping);
	return ret;
}

/* A region's part that the program has; a region that it has by soda_alloc() is its own to pin. */
static int keep_region(const struct soda_region *r)
{
	char *base = soda_chunk_address(r->first);

	if (soda_heap_owns(base))
		return keep(base, soda_heap_given(r));
	return run_pool_has(base) ? keep(base, r->span) : 0;
}

static int bring_region(const struct soda_region *r)
{
	return soda_child_bring(soda_chunk_address(r->first), r->span) ? 0 : -EIO;
}

static int for_all(int (*fn)(const struct soda_region *r))
{
	const uint64_t granule = 1ull << SODA_GRANULE_SHIFT;
	int ret = 0;

	for (uint64_t at = 0; at < soda_agent.bytes && !ret; at += granule) {
		struct soda_region *r = soda_region_of(soda_chunk_of(soda_agent.base + at));
		char *base = r ? soda_chunk_address(r->first) : NULL;

		if (base == soda_agent.base + at)
			ret = fn(r);
	}
	return ret;
}

/* All that there is; in the child of a fork it is local once it is there. */
static int hold_all(void)
{
	if (soda_child_has(soda_agent.base))
		return for_all(bring_region);
	return atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING ? for_all(keep_region) : 0;
}

static void tell(int err)
{
	uint64_t bytes = (uint64_t)atomic_load(&soda_agent.buffer.pinned) * soda_chunk_bytes();
	char text[16];

	if (err)
		soda_log_warning("soda run: io_uring is refused to process %d (%s): its fabric "
				 "memory cannot be held resident: %s",
				 getpid(), program_invocation_short_name, soda_strerror(err));
	else if (bytes)
		soda_log_info("soda run: process %d (%s) uses io_uring: its fabric memory, %s, "
			      "stays resident, and new blocks and mappings are local",
			      getpid(), program_invocation_short_name,
			      soda_format_size(bytes, text));
}

/* In a child, whose threads are gone: a first ring that was under way has not begun. */
static void forked(void)
{
	if (pthread_mutex_trylock(&beginning))
		atomic_store(&held, false);
	pthread_mutex_init(&beginning, NULL);
	pthread_mutex_init(&keeping, NULL);
}

static void know_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

bool run_rings_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	size_t threshold = atomic_load(&run_settings.threshold);
	int saved = errno, err = 0;

	pthread_once(&once, know_forks);
	run_inside++;
	pthread_mutex_lock(&beginning);
	if (!run_rings_held()) {
		atomic_store(&run_settings.threshold, SIZE_MAX);
		atomic_store(&held, true);
		err = hold_all();
		if (err) {
			atomic_store(&held, false);
			atomic_store(&run_settings.threshold, threshold);
		}
		tell(err);
	}
	pthread_mutex_unlock(&beginning);
	run_inside--;
	errno = saved;
	return !err;
}

void run_rings_keep(void *addr, size_t bytes)
{
	int saved = errno, err;

	if (!run_rings_held() || atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
		return;
	run_inside++;
	err = keep(addr, bytes);
	run_inside--;
	if (err)
		soda_log_warning("soda run: %zu bytes at %p cannot be held resident for io_uring: "
				 "%s; a request there fails",
				 bytes, addr, soda_strerror(err));
	errno = saved;
}
