/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "../disk.h"
#include "../fibers.h"
#include "ledger.h"
#include "sealing.h"
#include "wire/sealed_file.h"

enum { PAGE = SODA_SEALED_PAGE, WORDS = PAGE / 8 };

/* NULL: there is no whole one. */
static const uint8_t *find(const char *name, bool stable, struct soda_sealed_header *h,
			   struct soda_sealed_layout *layout)
{
	size_t bytes;
	const uint8_t *file = sim_disk_file(name, stable, &bytes);

	if (!file || bytes < PAGE || soda_sealed_kind(file) != SODA_SEALED_FILE)
		return NULL;
	if (soda_sealed_get_header(file, h) || soda_sealed_layout(h->bytes, layout) ||
	    bytes < layout->total)
		sim_fail("BROKEN PROMISE: sealed file %s has a header that fits nothing", name);
	return file;
}

uint64_t sim_sealed_data_at(const char *name)
{
	struct soda_sealed_layout layout;
	struct soda_sealed_header h;

	return find(name, false, &h, &layout) ? layout.data_at : 0;
}

uint64_t sim_sealed_bytes(const char *name)
{
	struct soda_sealed_layout layout;
	struct soda_sealed_header h;

	return find(name, false, &h, &layout) ? h.bytes : 0;
}

uint64_t sim_sealed_word(const char *name, uint64_t offset, bool stable)
{
	struct soda_sealed_layout layout;
	struct soda_sealed_header h;
	const uint8_t *file = find(name, stable, &h, &layout);
	uint64_t block = offset / PAGE, word;

	if (!file || block >= layout.blocks)
		sim_fail("BROKEN PROMISE: sealed file %s has nothing at %llu", name,
			 (unsigned long long)offset);
	/* whatever lies in its place, it is zeros */
	if (!soda_sealed_get_entry(file + layout.table_at + block * SODA_SEALED_ENTRY).version)
		return 0;
	if (!sim_ledger_read(file + layout.data_at + block * PAGE, (uint32_t)block, offset % PAGE,
			     &word))
		sim_fail("PLAINTEXT: block %llu of sealed file %s is nothing that the host has "
			 "sealed",
			 (unsigned long long)block, name);
	return word;
}

static bool is_plain(const uint64_t *words)
{
	for (int i = 1; i < WORDS - 1; i++)
		if (words[i])
			return false;
	return words[0] || words[WORDS - 1];
}

/* The page of a file that is being made has a word at its beginning, too. */
void sim_sealed_look(const char *name)
{
	static uint64_t page[WORDS];
	size_t bytes;
	const uint8_t *file = sim_disk_file(name, false, &bytes);

	for (size_t at = 0; file && at + PAGE <= bytes; at += PAGE) {
		memcpy(page, file + at, PAGE);
		if (is_plain(page) && soda_sealed_kind(file + at) != SODA_SEALED_MAKING)
			sim_fail("PLAINTEXT: sealed file %s has a page of the application's at %zu",
				 name, at);
	}
}
