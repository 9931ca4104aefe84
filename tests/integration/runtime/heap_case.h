/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs that test soda_malloc() share. */
#ifndef SODA_TEST_HEAP_CASE_H
#define SODA_TEST_HEAP_CASE_H

#include "lib/harness.h"
#include "lib/world.h"

enum { MIB = 1 << 20 };

/* The server of all cases. */
extern struct world heap_world;

/* A block of the heap that knows its own content. */
struct block {
	uint64_t *words;
	size_t n;
	uint64_t key;
};

/* The smallest page buffer for four threads and `more` bytes; valid until the next call. */
struct soda_config heap_config(size_t more);
void heap_fill(struct block *b, size_t bytes, uint64_t key);
/* Its first n words. */
void heap_verify(const struct block *b, size_t n);

/* main()'s: the tests with a server; 77 where there is no heap. */
int heap_run(const char *name, const struct CMUnitTest *tests, size_t n);

#endif
