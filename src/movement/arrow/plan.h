/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the parts of a table lie in a step: from an ArrowSchema and ArrowArrays to a list of pieces
 * for soda_move().
 *
 *   stream  | schema message | batch message, padding | body: columns, each padded | batch ... |
 * end | file    | magic | stream | a gap | footer, its size, magic | structs | header | body, body
 * ... | structures (structs.h) |
 *
 * A column's buffers are pieces of the program's own memory.  What does not lie there as it is to
 * be in the stream is made here, in blocks: messages; bits that do not begin in a byte; offsets
 * that do not begin with 0.
 *
 * The program's memory is read for that: the first and the last offset of each array, all offsets
 * and bits that are made anew, and bits whose zeros have to be counted.
 */
#ifndef SODA_MOVEMENT_ARROW_PLAN_H
#define SODA_MOVEMENT_ARROW_PLAN_H

#include "movement/arrow/schema.h"

enum { SODA_ARROW_ALIGN = 64, SODA_ARROW_ALIGN_MIN = 8, SODA_ARROW_ALIGN_MAX = 4096 };

#define SODA_ARROW_ROWS_MAX (1ull << 40)  /* of an array */
#define SODA_ARROW_BYTES_MAX (1ull << 40) /* of a buffer, and of a stream */

/* Memory that pieces refer to, a chain; soda_arrow_blocks_free(). */
struct soda_arrow_block {
	struct soda_arrow_block *next;
	uint8_t data[];
};

struct soda_arrow_plan {
	struct soda_move_piece *pieces; /* without gaps but padding, in the order of the stream */
	size_t pieces_n;
	uint64_t bytes; /* of the stream, file... */
	struct soda_arrow_block *blocks;
};

/* What is to come out. */
struct soda_arrow_target {
	unsigned form;	/* enum soda_move_arrow_form */
	unsigned align; /* where each buffer begins: a power of two, SODA_ARROW_ALIGN_MIN to _MAX */
	uint64_t bytes; /* a file ends there, if it is not longer; 0: as early as it can */
	bool measure;	/* only the plan's `bytes` is wanted: blocks are not filled, pieces useless
			 */
};

/*
 * The plan of a table with n batches.  The pieces' memory is the program's, who owns the arrays,
 * and the plan's, which is the caller's: soda_arrow_plan_free().
 *
 * Errors of soda_arrow_schema_check(), and -EINVAL: malformed arrays, sizes that overflow; -E2BIG:
 * more than SODA_MOVE_PIECES_MAX pieces; -EFBIG: above the limits; -ENOMEM.  Whether it fits
 * into a step is the caller's to look at.
 */
int soda_arrow_plan_make(const struct ArrowSchema *schema, const struct ArrowArray *const *batches,
			 size_t n, const struct soda_arrow_target *target,
			 struct soda_arrow_plan *plan_p, struct soda_arrow_why *why);
/*
 * Copy the plan's pieces together, into a block that then is its only piece; the program's memory
 * is not named any more.  -ENOMEM: the plan is as it was.
 */
int soda_arrow_plan_copy(struct soda_arrow_plan *plan);
void soda_arrow_plan_free(struct soda_arrow_plan *plan);
void soda_arrow_blocks_free(struct soda_arrow_block *block);

/* bits.c: bitmaps; bit i is that of value 1 << i % 8 in byte i / 8. */

/* How many of n bits from `from` on are 0. */
uint64_t soda_arrow_bits_zero(const uint8_t *bits, uint64_t from, uint64_t n);
/* Copy n bits from `from` on to the begin of `to`; the rest of the last byte becomes 0. */
void soda_arrow_bits_copy(uint8_t *to, const uint8_t *bits, uint64_t from, uint64_t n);

#endif
