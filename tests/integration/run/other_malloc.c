/* SPDX-License-Identifier: BSD-3-Clause */
/* A library's malloc(), with pages from mmap(): what it frees it hands out again. */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define OTHER __attribute__((visibility("default")))

enum { HEAD = 16, SLAB = 2 << 20 };

static char *at, *end;

OTHER void *malloc(size_t n);
OTHER void *calloc(size_t n, size_t bytes);
OTHER void *realloc(void *p, size_t n);
OTHER void *memalign(size_t alignment, size_t n);
OTHER size_t malloc_usable_size(void *p);
OTHER void free(void *p);

OTHER void *malloc(size_t n)
{
	char *p;

	n = (n + HEAD + 15) & ~(size_t)15;
	if (n > (size_t)(end - at)) {
		at = mmap(NULL, n + SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
		end = at + n + SLAB;
	}
	p = at + HEAD;
	*(size_t *)(void *)at = n - HEAD;
	at += n;
	return p;
}

OTHER void *calloc(size_t n, size_t bytes)
{
	return malloc(n * bytes);
}

OTHER size_t malloc_usable_size(void *p)
{
	return p ? *(size_t *)(void *)((char *)p - HEAD) : 0;
}

OTHER void *realloc(void *p, size_t n)
{
	size_t old = malloc_usable_size(p);
	void *q = malloc(n);

	return p ? memcpy(q, p, old < n ? old : n) : q;
}

OTHER void *memalign(size_t alignment, size_t n)
{
	char *p = malloc(n + alignment + HEAD);
	char *q = (char *)(((size_t)p + HEAD + alignment - 1) & ~(alignment - 1));

	*(size_t *)(void *)(q - HEAD) = n;
	return q;
}

OTHER void free(void *p)
{
	if (p)
		memset(p, 0x5a, malloc_usable_size(p));
}
