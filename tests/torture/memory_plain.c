/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *p, size_t bytes)
{
	munmap(p, bytes);
}

static int discard(void *p, size_t bytes)
{
	return madvise(p, bytes, MADV_DONTNEED) ? -errno : 0;
}

static const char *nothing(void)
{
	return "";
}

const struct memory memory = {
	.alloc = map,
	.free = unmap,
	.discard = discard,
	.heap_alloc = malloc,
	.heap_free = free,
	.why = nothing,
};
