/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap's public functions, like those of the same name in the C library; soda_free is in api.c.
 */
#include "soda.h"

#include <errno.h>
#include <stdio.h>

#include "host_agent/heap/heap.h"

static void *done(void *p, int saved, const struct soda_why *why)
{
	if (p)
		errno = saved;
	else
		soda_explain(why);
	return p;
}

static void *refuse(int err, const char *text)
{
	struct soda_why why;

	snprintf(why.text, sizeof(why.text), "%s", text);
	soda_explain(&why);
	errno = err;
	return NULL;
}

/* The slow path: a thread's first call, a large block, after the runtime's end. */
__attribute__((noinline)) static void *malloc_anyhow(size_t bytes)
{
	struct soda_why why; /* not zeroed: that would take as long as half a malloc */
	int saved = errno;

	why.text[0] = '\0';
	return done(soda_heap_alloc(0, bytes, false, &why), saved, &why);
}

void *soda_malloc(size_t bytes)
{
	/* a tail call: no register is saved and restored around it */
	if (__builtin_expect(soda_heap_short(bytes), 1))
		return soda_heap_malloc_short(bytes);
	return malloc_anyhow(bytes);
}

void *soda_calloc(size_t n, size_t bytes)
{
	struct soda_why why = { "" };
	int saved = errno;
	size_t all;

	if (__builtin_mul_overflow(n, bytes, &all))
		return refuse(ENOMEM, "soda_calloc: the size overflows");
	return done(soda_heap_alloc(0, all, true, &why), saved, &why);
}

void *soda_aligned_alloc(size_t alignment, size_t bytes)
{
	struct soda_why why = { "" };
	int saved = errno;

	if (!alignment || alignment & (alignment - 1))
		return refuse(EINVAL, "soda_aligned_alloc: the alignment is no power of two");
	return done(soda_heap_alloc(alignment, bytes, false, &why), saved, &why);
}

void *soda_realloc(void *p, size_t bytes)
{
	struct soda_why why = { "" };
	int saved = errno;

	if (!p)
		return soda_malloc(bytes);
	if (!soda_heap_owns(p))
		return refuse(EINVAL, "soda_realloc: not a block of the heap");
	if (!bytes) {
		soda_free(p);
		return NULL;
	}
	return done(soda_heap_realloc(p, bytes, &why), saved, &why);
}
