/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/heap/heap.h"

#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/heap/extent.h"
#include "host_agent/life/start.h"

/*
 * jemalloc's functions under their hidden names.  This instance of jemalloc serves FAM alone:
 * threads use our arena, and the arena that jemalloc makes for itself holds its own data.
 */
void *soda_je_calloc(size_t n, size_t bytes);
void *soda_je_realloc(void *p, size_t bytes);
void *soda_je_aligned_alloc(size_t alignment, size_t bytes);
size_t soda_je_malloc_usable_size(const void *p);
int soda_je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);

/*
 * Freed pages are discarded after a second: until then they are in the page buffer, and dirty.
 * lg_extent_max_active_fit: meanwhile a block may be cut from a freed extent of up to 2^10 times
 * its size.  jemalloc's own limit is 2^6, and freed neighbours of 16 KiB and more become one
 * extent, soon larger than that: then each new block took pages that no block had had, a fault and
 * a chunk of the buffer for each, and the heap grew by what was freed within a second.  A limit
 * there is, so that a small block does not split a large extent whose pages may be on the server
 * alone.
 */
extern const char *soda_je_malloc_conf;
const char *soda_je_malloc_conf =
	"narenas:1,retain:true,oversize_threshold:0,max_background_threads:1,"
	"dirty_decay_ms:1000,muzzy_decay_ms:0,lg_extent_max_active_fit:10";

/*
 * jemalloc calls these two to read its settings; the program's are for the program's own jemalloc.
 */
char *soda_je_secure_getenv(const char *name);
char *soda_je_secure_getenv(const char *name)
{
	return NULL;
}

ssize_t soda_je_readlink(const char *path, char *buf, size_t bytes);
ssize_t soda_je_readlink(const char *path, char *buf, size_t bytes)
{
	errno = ENOENT;
	return -1;
}

/* jemalloc needs these for its profiles, which are off. */
int soda_je__Unwind_Backtrace(void *fn, void *arg);
int soda_je__Unwind_Backtrace(void *fn, void *arg)
{
	return 0;
}

uintptr_t soda_je__Unwind_GetIP(void *context);
uintptr_t soda_je__Unwind_GetIP(void *context)
{
	return 0;
}

/* A struct of jemalloc 5.3's interface that is not in its public header. */
struct arena_config {
	const extent_hooks_t *hooks;
	bool metadata_use_hooks;
};

/* jemalloc's default hooks, which call extent.c. */
extern const extent_hooks_t soda_je_hooks;

struct soda_heap soda_heap __attribute__((aligned(64)));

static pthread_once_t once = PTHREAD_ONCE_INIT;
unsigned soda_heap_arena;

/* Start or end jemalloc's thread that discards freed pages. */
static void background(bool on)
{
	soda_je_mallctl("background_thread", NULL, NULL, &on, sizeof(on));
}

/*
 * Before a fork, and before jemalloc closes itself for it: freed pages are given back, as its
 * thread would do soon.  Later their content would have to be kept for the child (fork/views.h):
 * nobody could tell it from blocks that were in use at the fork.
 */
static void before_fork(void)
{
	char name[32];

	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING || soda_heap_data())
		return;
	snprintf(name, sizeof(name), "arena.%u.purge", soda_heap_arena);
	soda_je_mallctl(name, NULL, NULL, NULL, 0);
}

static void make_arena(void)
{
	struct arena_config config = { .hooks = &soda_je_hooks, .metadata_use_hooks = false };
	unsigned arena;
	size_t bytes = sizeof(arena);

	soda_heap.base = soda_agent.base;
	soda_heap.granules = soda_heap_granules_map();
	if (!soda_heap.granules || soda_je_mallctl("experimental.arenas_create_ext", &arena, &bytes,
						   &config, sizeof(config)))
		return;
	soda_heap_arena = arena;
	atomic_store_explicit(&soda_heap.bytes, soda_agent.bytes, memory_order_release);
	pthread_atfork(before_fork, NULL, NULL);
	background(true); /* without the thread an idle program's freed pages would stay */
}

void soda_heap_stop(void)
{
	if (soda_heap_arena && !soda_heap_data())
		background(false);
}

static int prepare(struct soda_why *why)
{
	int ret;

	if (soda_heap_over()) {
		snprintf(why->text, sizeof(why->text),
			 "the heap has nothing for a thread that has ended: a destructor of one of "
			 "its values asks too late");
		return -ENOMEM;
	}
	soda_lock_acquire(&soda_agent.api_lock);
	atomic_store(&soda_heap_ends, &soda_heap_thread_ends);
	ret = soda_agent_start(NULL, why);
	soda_lock_release(&soda_agent.api_lock);
	if (ret)
		return ret;
	if (!soda_heap_data())
		pthread_once(&once, make_arena);
	if (!soda_heap_mine.data || !soda_heap_arena ||
	    soda_je_mallctl("thread.arena", NULL, NULL, &soda_heap_arena,
			    sizeof(soda_heap_arena)) ||
	    soda_heap_thread_join()) {
		snprintf(why->text, sizeof(why->text), "no local memory for the heap's own data");
		return -ENOMEM;
	}
	return 0;
}

/* 0: the thread may call jemalloc; else a negative error. */
static int enter(struct soda_why *why)
{
	return soda_heap_short(0) ? 0 : prepare(why);
}

static void *refused(size_t bytes, struct soda_why *why)
{
	if (soda_heap_error)
		snprintf(why->text, sizeof(why->text), "%s", soda_explained());
	else
		snprintf(why->text, sizeof(why->text), "no %zu bytes of heap: %s", bytes,
			 soda_strerror(-ENOMEM));
	errno = ENOMEM;
	return NULL;
}

void *soda_heap_alloc(size_t alignment, size_t bytes, bool zero, struct soda_why *why)
{
	int ret = enter(why);
	void *p;

	if (ret) {
		errno = -ret;
		return NULL;
	}
	soda_heap_error = 0;
	if (alignment)
		p = soda_je_aligned_alloc(alignment, bytes);
	else
		p = zero ? soda_je_calloc(1, bytes) : soda_heap_malloc_short(bytes);
	return p ? p : refused(bytes, why);
}

void *soda_heap_realloc(void *p, size_t bytes, struct soda_why *why)
{
	int ret = enter(why);
	void *q;

	if (ret) {
		errno = -ret;
		return NULL;
	}
	soda_heap_error = 0;
	q = soda_je_realloc(p, bytes);
	return q ? q : refused(bytes, why);
}

size_t soda_heap_usable(const void *p)
{
	return soda_heap_data() ? 0 : soda_je_malloc_usable_size(p);
}
