/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program with an allocator of its own that lacks some functions of the family: what it does not
 * have must not come from elsewhere, because its realloc() and free() get it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So that the C library's own calls come here, as in any program. */
#pragma GCC visibility push(default)
void *malloc(size_t n);
void free(void *p);
void *realloc(void *p, size_t n);
void *calloc(size_t n, size_t size);
#pragma GCC visibility pop

static char memory[64 << 20] __attribute__((aligned(16)));
static size_t taken;

static int is_mine(const void *p)
{
	return (const char *)p >= memory && (const char *)p < memory + sizeof(memory);
}

void *malloc(size_t n)
{
	size_t *head = (size_t *)(memory + taken);

	n = (n + 31) & ~(size_t)15;
	if (taken + n > sizeof(memory))
		return NULL;
	taken += n;
	*head = n - 16;
	return (char *)head + 16;
}

void free(void *p)
{
	if (p && !is_mine(p))
		abort();
}

void *realloc(void *p, size_t n)
{
	void *q = malloc(n);

	free(p);
	if (p && q) {
		size_t old = *(size_t *)((char *)p - 16);

		memcpy(q, p, old < n ? old : n);
	}
	return q;
}

void *calloc(size_t n, size_t size)
{
	return malloc(n * size);
}

int main(void)
{
	char *p = reallocarray(NULL, 3, 1 << 20), *q = malloc(2 << 20);

	if (!p || !q)
		return 1;
	memset(p, 1, 3 << 20);
	p = reallocarray(p, 4, 1 << 20);
	if (!p || p[5] != 1)
		return 2;
	free(p);
	free(q);
	puts("done");
	return 0;
}
