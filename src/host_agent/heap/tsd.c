/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jemalloc's data of a thread, in pages of their own: libsoda would otherwise have 2.6 KiB of
 * thread-local data of the static kind, and could not be loaded late.  move-tsd has changed
 * jemalloc's object code so that it asks each thread for soda_heap_mine.data.
 *
 * Threads that call jemalloc have its data mapped first: soda_heap_data() for the program's
 * threads; a thread that jemalloc starts begins in started(); and a fork's handlers are called by
 * ours.
 */
#include "host_agent/heap/heap.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(offsetof(struct soda_heap_thread, data) == 0, "tsd.S");

/* What a thread's data are at first. */
extern const char soda_je_tsd[] __attribute__((visibility("hidden")));
extern const char soda_je_tsd_end[] __attribute__((visibility("hidden")));

/* What is mapped for a thread: jemalloc's data begin it. */
struct block {
	char data[4096 - 2 * sizeof(void *)];
	void *(*start)(void *); /* of a thread of jemalloc's own */
	void *arg;
};

static char *thread_pointer(void)
{
	char *p;

	__asm__("movq %%fs:0, %0" : "=r"(p));
	return p;
}

static struct block *map_block(void)
{
	size_t bytes = (size_t)(soda_je_tsd_end - soda_je_tsd);
	struct block *b;

	if (bytes > sizeof(b->data))
		return NULL;
	b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED)
		return NULL;
	memcpy(b->data, soda_je_tsd, bytes);
	return b;
}

static void adopt(struct block *b)
{
	soda_heap_mine.data = (uintptr_t)b->data - (uintptr_t)thread_pointer();
}

int soda_heap_data_map(void)
{
	int saved = errno;
	struct block *b = map_block();

	errno = saved;
	if (!b)
		return -ENOMEM;
	adopt(b);
	return 0;
}

void soda_heap_data_unmap(void)
{
	void *b = (void *)((uintptr_t)thread_pointer() + soda_heap_mine.data);

	if (soda_heap_mine.data)
		munmap(b, sizeof(struct block));
	soda_heap_mine.data = 0;
}

static void *started(void *arg)
{
	struct block *b = arg;

	adopt(b);
	soda_heap_data_arm();
	return b->start(b->arg);
}

int soda_je_pthread_create(pthread_t *thread_p, const pthread_attr_t *attr, void *(*start)(void *),
			   void *arg);
int soda_je_pthread_create(pthread_t *thread_p, const pthread_attr_t *attr, void *(*start)(void *),
			   void *arg)
{
	struct block *b = map_block();
	int ret;

	if (!b)
		return EAGAIN;
	b->start = start;
	b->arg = arg;
	ret = pthread_create(thread_p, attr, started, b);
	if (ret)
		munmap(b, sizeof(*b));
	return ret;
}

/* jemalloc looks for pthread_create(3) by its name, in case that the program has one of its own. */
void *soda_je_dlsym(void *lib, const char *name);
void *soda_je_dlsym(void *lib, const char *name)
{
	return strcmp(name, "pthread_create") == 0 ? (void *)soda_je_pthread_create
						   : dlsym(lib, name);
}

static void (*its_prepare)(void), (*its_parent)(void), (*its_child)(void);

/* Without data, for want of memory: a fork without jemalloc's part, before as after. */
static void prepare(void)
{
	if (!soda_heap_data())
		its_prepare();
}

static void parent(void)
{
	if (soda_heap_mine.data)
		its_parent();
}

static void child(void)
{
	if (soda_heap_mine.data)
		its_child();
}

int soda_je_pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
int soda_je_pthread_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void))
{
	its_prepare = before;
	its_parent = in_parent;
	its_child = in_child;
	return pthread_atfork(prepare, parent, child);
}
