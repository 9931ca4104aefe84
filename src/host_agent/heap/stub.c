/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without jemalloc has no heap. */
#include "host_agent/heap/extent.h"
#include "host_agent/heap/heap.h"

#include <errno.h>
#include <stdio.h>

void *soda_heap_alloc(size_t alignment, size_t bytes, bool zero, struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text),
		 "this libsoda has no heap: it was built without jemalloc (libjemalloc-dev)");
	errno = ENOTSUP;
	return NULL;
}

void *soda_heap_realloc(void *p, size_t bytes, struct soda_why *why)
{
	return soda_heap_alloc(0, bytes, false, why);
}

struct soda_heap soda_heap;

void *soda_je_malloc(size_t bytes, uintptr_t data)
{
	return NULL;
}

void soda_je_free(void *p, uintptr_t data)
{
}

int soda_heap_data_map(void)
{
	return -ENOTSUP;
}

void soda_heap_data_unmap(void)
{
}

size_t soda_heap_usable(const void *p)
{
	return 0;
}

uint64_t soda_heap_given(const struct soda_region *r)
{
	return 0;
}

void soda_heap_stop(void)
{
}
