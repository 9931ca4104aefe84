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
 * jemalloc under its hidden names.  This instance serves FAM alone: its threads use
 * our arena, and the one that it makes for itself only holds its own data.
 */
void *soda_je_calloc(size_t n, size_t bytes);
void *soda_je_realloc(void *p, size_t bytes);
void *soda_je_aligned_alloc(size_t alignment, size_t bytes);
size_t soda_je_malloc_usable_size(const void *p);
int soda_je_mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);

/* What is freed goes back after a second: it takes up the page buffer, and would be written back.
 */
extern const char *soda_je_malloc_conf;
const char *soda_je_malloc_conf =
	"narenas:1,retain:true,oversize_threshold:0,max_background_threads:1,"
	"dirty_decay_ms:1000,muzzy_decay_ms:0";

/* The program's settings for its own jemalloc are not for this one. */
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

/* For its profiles, which are off. */
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

/* jemalloc's, of the 5.3 interface; its public header leaves it out. */
struct arena_config {
	const extent_hooks_t *hooks;
	bool metadata_use_hooks;
};

/* Its default hooks, which call extent.c. */
extern const extent_hooks_t soda_je_hooks;

struct soda_heap soda_heap __attribute__((aligned(64)));

static pthread_once_t once = PTHREAD_ONCE_INIT;
unsigned soda_heap_arena;

/* jemalloc's thread that gives freed pages back in time. */
static void background(bool on)
{
	soda_je_mallctl("background_thread", NULL, NULL, &on, sizeof(on));
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
	background(true); /* without it, what an idle program freed would stay */
}

void soda_heap_stop(void)
{
	if (soda_heap_arena)
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
	pthread_once(&once, make_arena);
	if (!soda_heap_arena ||
	    soda_je_mallctl("thread.arena", NULL, NULL, &soda_heap_arena,
			    sizeof(soda_heap_arena)) ||
	    soda_heap_thread_join()) {
		snprintf(why->text, sizeof(why->text), "no local memory for the heap's own data");
		return -ENOMEM;
	}
	return 0;
}

/* 0, or the negative error: the thread may call jemalloc. */
static int enter(struct soda_why *why)
{
	return soda_heap_short(0) ? 0 : prepare(why);
}

static void *refused(size_t bytes, struct soda_why *why)
{
	if (soda_heap_error)
		*why = soda_heap_trouble;
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
		p = zero ? soda_je_calloc(1, bytes) : soda_je_malloc(bytes);
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
	return soda_je_malloc_usable_size(p);
}
