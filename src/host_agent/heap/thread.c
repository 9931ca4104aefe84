/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The threads for which soda_malloc() calls jemalloc right away.  Each has a limit of its own,
 * which is all that the fast path looks at; the list of them is for the end of the runtime, which
 * takes the limits away.
 *
 * And the ends of threads.  jemalloc frees what it keeps for a thread in a destructor of a
 * thread-specific value, and serves later calls of that thread from its own arena, in local memory.
 * But destructors of the program may run later and use the heap.  So jemalloc gets no key of its
 * own: our key stands for it, and calls jemalloc's destructor in the second round of destructors.
 * Allocations that come later still are refused.  What jemalloc knows of the thread is unmapped in
 * the last round, because blocks may be freed until then.
 */
#include "host_agent/heap/heap.h"
#include "host_agent/life/start.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "base/lock.h"

__thread struct soda_heap_thread soda_heap_mine
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

static struct soda_heap_thread *threads; /* guarded by api_lock */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key;
static void (*jemalloc_ends)(void *);

static void unlink_locked(struct soda_heap_thread *t)
{
	atomic_store_explicit(&t->limit, 0, memory_order_relaxed);
	if (!t->back)
		return;
	*t->back = t->next;
	if (t->next)
		t->next->back = t->back;
	t->back = NULL;
}

/* Our key's destructor: the thread ends, and `mine` with it, so take it off the list. */
static void leave(void *mine)
{
	struct soda_heap_thread *t = mine;
	bool again = ++t->round < PTHREAD_DESTRUCTOR_ITERATIONS && !pthread_setspecific(key, t);
	void *its = t->jemalloc;

	soda_lock_acquire(&soda_agent.api_lock);
	unlink_locked(t);
	soda_lock_release(&soda_agent.api_lock);
	if (its && (t->round > 1 || !again)) {
		t->jemalloc = NULL;
		t->over = true;
		jemalloc_ends(its);
	}
	if (!again)
		soda_heap_data_unmap();
}

static void make_key(void)
{
	have_key = pthread_key_create(&key, leave) == 0;
}

void soda_heap_data_arm(void)
{
	pthread_once(&once, make_key);
	/* without the value the data of one thread stay when it has ended: no reason to fail */
	if (have_key)
		pthread_setspecific(key, &soda_heap_mine);
}

int soda_heap_data_make(void)
{
	int ret = soda_heap_data_map();

	if (!ret)
		soda_heap_data_arm();
	return ret;
}

int soda_je_pthread_key_create(pthread_key_t *key_p, void (*destructor)(void *))
{
	pthread_once(&once, make_key);
	jemalloc_ends = destructor;
	*key_p = key;
	return have_key ? 0 : EAGAIN;
}

int soda_je_pthread_setspecific(pthread_key_t ignored, const void *its)
{
	struct soda_heap_thread *t = &soda_heap_mine;

	t->jemalloc = (void *)(uintptr_t)its;
	return pthread_setspecific(key, t);
}

static void link_locked(struct soda_heap_thread *t)
{
	t->next = threads;
	t->back = &threads;
	if (threads)
		threads->back = &t->next;
	threads = t;
	atomic_store_explicit(&t->limit, SODA_HEAP_SMALL + 1, memory_order_relaxed);
}

int soda_heap_thread_join(void)
{
	struct soda_heap_thread *t = &soda_heap_mine;

	if (t->known)
		return 0;
	/*
	 * first: pthread_setspecific() may call malloc(), and the program's malloc() may be this
	 * heap
	 */
	t->known = true;
	pthread_once(&once, make_key);
	if (!have_key || pthread_setspecific(key, t)) {
		t->known = false;
		return -ENOMEM;
	}
	soda_lock_acquire(&soda_agent.api_lock);
	if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		link_locked(t);
	soda_lock_release(&soda_agent.api_lock);
	return 0;
}

/* No address is the heap's any more, so that no block is freed. */
static void close_heap(void)
{
	atomic_store_explicit(&soda_heap.near_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&soda_heap.bytes, 0, memory_order_relaxed);
}

static void ended_locked(void)
{
	close_heap();
	while (threads)
		unlink_locked(threads);
}

static void forked(void)
{
	close_heap();
	soda_heap_mine = (struct soda_heap_thread){ .data = soda_heap_mine.data };
	threads = NULL;
}

const struct soda_heap_ends soda_heap_thread_ends = { ended_locked, forked };
