/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of the Arrow C data interface, for tests: made by seed, read out of an IPC stream,
 * printed. None of it uses libsoda-move. An error ends the program (abort), with a sentence.
 */
#ifndef SODA_TESTS_LIB_ARROW_H
#define SODA_TESTS_LIB_ARROW_H

#include <stddef.h>
#include <stdint.h>

#include "lib/must.h"
#include "soda_move.h"

enum { ARROW_BATCHES_MAX = 64 };

struct arrow_memory {
	struct arrow_memory *next;
};

/* A schema, its batches, and the memory of all; arrow_table_free(). */
struct arrow_table {
	struct ArrowSchema *schema;
	const struct ArrowArray *batches[ARROW_BATCHES_MAX];
	size_t batches_n;
	struct arrow_memory *memory;
};

/* Zeros, of exactly this size, so that a sanitizer sees what is read behind it; the table's. */
void *arrow_alloc(struct arrow_table *table, size_t bytes);
void arrow_table_free(struct arrow_table *table);
struct ArrowSchema *arrow_schema(struct arrow_table *table, const char *format, const char *name,
				 int64_t children);
/* With as many buffers and children as asked for, all NULL. */
struct ArrowArray *arrow_array(struct arrow_table *table, int64_t length, int64_t buffers,
			       int64_t children);

/* make.c: a table of any types and sizes, with slices, nulls and empty columns. */
void arrow_make(struct arrow_table *table_p, uint64_t seed);

/*
 * read.c: a stream's table, whose columns are the stream's memory.  Every size, reference and
 * alignment in it is checked; buffers lie at multiples of `align`.  *end_p: how long the stream is.
 */
void arrow_read(struct arrow_table *table_p, const void *stream, size_t bytes, size_t align,
		size_t *end_p);

/* The same of a file, which ends with its last byte: by its footer. */
void arrow_read_file(struct arrow_table *table_p, const void *file, size_t bytes, size_t align);

/* print.c: schema and values, each on one line of JSON, which says nothing of how the table
 * lies in memory. The text is the caller's. */
char *arrow_print(const struct arrow_table *table);

#endif
