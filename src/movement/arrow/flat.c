/* SPDX-License-Identifier: BSD-3-Clause */
#include "movement/arrow/flat.h"

#include <stdlib.h>
#include <string.h>

/* Room for so many bytes more, all zeros, behind padding to a multiple of align. Its position. */
static uint32_t add(struct soda_flat *f, size_t bytes, uint32_t align)
{
	uint32_t at = (f->bytes + align - 1) & ~(align - 1);

	if (f->failed || bytes > SODA_FLAT_MAX || at + bytes > SODA_FLAT_MAX) {
		f->failed = true;
		return 0;
	}
	if (at + bytes > f->room) {
		uint32_t room = (uint32_t)(at + bytes) * 2;
		uint8_t *memory = realloc(f->at, room);

		if (!memory) {
			f->failed = true;
			return 0;
		}
		memset(memory + f->room, 0, room - f->room);
		f->at = memory;
		f->room = room;
	}
	f->bytes = at + (uint32_t)bytes;
	return at;
}

void soda_flat_begin(struct soda_flat *f)
{
	*f = (struct soda_flat){ 0 };
	add(f, sizeof(uint32_t), sizeof(uint32_t));
}

void soda_flat_free(struct soda_flat *f)
{
	free(f->at);
	*f = (struct soda_flat){ 0 };
}

void soda_flat_put(struct soda_flat *f, uint32_t at, uint64_t value, unsigned bytes)
{
	if (f->failed)
		return;
	for (unsigned i = 0; i < bytes; i++)
		f->at[at + i] = (uint8_t)(value >> 8 * i);
}

void soda_flat_refer(struct soda_flat *f, uint32_t at, uint32_t to)
{
	soda_flat_put(f, at, to - at, sizeof(uint32_t));
}

/*
 * The list of where its fields are ("vtable") lies right before the table: its own size, the
 * table's, and each field's distance from the table's start, 0 for one that is left out.
 */
uint32_t soda_flat_table(struct soda_flat *f, const uint8_t *sizes, unsigned n, uint32_t *at)
{
	uint32_t distance[SODA_FLAT_FIELDS_MAX], end = sizeof(uint32_t), list, table;
	bool root = f->bytes == sizeof(uint32_t);

	for (unsigned i = 0; i < n; i++) {
		if (sizes[i])
			end = (end + sizes[i] - 1) / sizes[i] * sizes[i];
		distance[i] = sizes[i] ? end : 0;
		end += sizes[i];
	}
	list = add(f, 4 + 2 * (size_t)n, 2);
	table = add(f, end, 8);
	soda_flat_put(f, list, 4 + 2 * n, 2);
	soda_flat_put(f, list + 2, end, 2);
	for (unsigned i = 0; i < n; i++) {
		soda_flat_put(f, list + 4 + 2 * i, distance[i], 2);
		at[i] = table + distance[i];
	}
	soda_flat_put(f, table, table - list, sizeof(uint32_t));
	if (root)
		soda_flat_refer(f, 0, table);
	return table;
}

uint32_t soda_flat_string(struct soda_flat *f, const char *text, size_t bytes)
{
	uint32_t at = add(f, sizeof(uint32_t) + bytes + 1, sizeof(uint32_t));

	soda_flat_put(f, at, bytes, sizeof(uint32_t));
	if (!f->failed && bytes)
		memcpy(f->at + at + sizeof(uint32_t), text, bytes);
	return at;
}

uint32_t soda_flat_vector(struct soda_flat *f, uint32_t n, uint32_t element_bytes)
{
	uint32_t at;

	if (element_bytes % 8 == 0) /* the first element lies at a multiple of 8 */
		add(f, 4, 8);
	at = add(f, sizeof(uint32_t) + (size_t)n * element_bytes, sizeof(uint32_t));
	soda_flat_put(f, at, n, sizeof(uint32_t));
	return at;
}
