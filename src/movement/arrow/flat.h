/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing a FlatBuffer from its front to its back: a table first, then what it refers to, whose
 * place is filled in afterwards.  As much of the format as Arrow's metadata need: tables, strings,
 * vectors of references and of structs.  Positions are bytes from the buffer's start, which is to
 * lie at a multiple of 8 bytes; numbers are little-endian.
 *
 * Without memory, or above SODA_FLAT_MAX, the buffer is `failed`, and every function does nothing.
 */
#ifndef SODA_MOVEMENT_ARROW_FLAT_H
#define SODA_MOVEMENT_ARROW_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SODA_FLAT_MAX = 16 << 20, SODA_FLAT_FIELDS_MAX = 8 };

struct soda_flat {
	uint8_t *at; /* soda_flat_free() */
	uint32_t bytes, room;
	bool failed;
};

/* Begin with the reference to the root table, which is the next that is added. */
void soda_flat_begin(struct soda_flat *f);
void soda_flat_free(struct soda_flat *f);

/*
 * Add a table with n fields of so many bytes each: 1, 2, 4 (a reference, too), 8, or 0 for a field
 * that is left out.  Returns its position; at[i] is field i's, for soda_flat_put() or _refer().
 */
uint32_t soda_flat_table(struct soda_flat *f, const uint8_t *sizes, unsigned n, uint32_t *at);
/* Add a string. */
uint32_t soda_flat_string(struct soda_flat *f, const char *text, size_t bytes);
/* Add a vector of n elements of 4 bytes, or a multiple of 8; the first is 4 bytes behind it. */
uint32_t soda_flat_vector(struct soda_flat *f, uint32_t n, uint32_t element_bytes);
/* Store a number of 1, 2, 4 or 8 bytes. */
void soda_flat_put(struct soda_flat *f, uint32_t at, uint64_t value, unsigned bytes);
/* Have the reference at `at` refer to what has been added at `to`, behind it. */
void soda_flat_refer(struct soda_flat *f, uint32_t at, uint32_t to);

#endif
