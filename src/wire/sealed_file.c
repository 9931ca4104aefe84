/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/sealed_file.h"

#include <errno.h>
#include <string.h>

#include "wire/field.h"

enum {
	LAYOUT_VERSION = 1,
	DATA_ALIGN = 65536,
	AT_VERSION = 8,
	AT_CIPHER = 12,
	AT_KEY_ID = 16,
	AT_SALT = 24,
	AT_BYTES = 40,
	AT_COMMITS = 48,
	AT_ZERO = 56,
	AT_ROOT = 64,
	AT_MAC = SODA_SEALED_HEADER_MACED,
	HEADER_END = AT_MAC + SODA_SEALED_MAC,
	CIPHERS = 2,
};

static const char sealed_magic[SODA_SEALED_MAGIC_BYTES] = {
	'S', 'O', 'D', 'A', 'S', 'E', 'A', 'L'
};
static const char making_magic[SODA_SEALED_MAGIC_BYTES] = {
	'S', 'O', 'D', 'A', 'M', 'A', 'K', 'E'
};

enum soda_sealed_kind soda_sealed_kind(const uint8_t *begin)
{
	if (!memcmp(begin, sealed_magic, sizeof(sealed_magic)))
		return SODA_SEALED_FILE;
	return memcmp(begin, making_magic, sizeof(making_magic)) ? SODA_SEALED_NOT
								 : SODA_SEALED_MAKING;
}

void soda_sealed_put_making(uint8_t page[SODA_SEALED_PAGE])
{
	memset(page, 0, SODA_SEALED_PAGE);
	memcpy(page, making_magic, sizeof(making_magic));
}

int soda_sealed_layout(uint64_t bytes, struct soda_sealed_layout *l)
{
	uint64_t blocks = bytes / SODA_SEALED_PAGE + (bytes % SODA_SEALED_PAGE != 0);

	if (!blocks || blocks > UINT32_MAX) /* a block's number is 32 bits of its nonce */
		return -EINVAL;
	l->blocks = blocks;
	l->table_at = SODA_SEALED_PAGE;
	l->table_pages = (blocks + SODA_SEALED_ENTRIES - 1) / SODA_SEALED_ENTRIES;
	l->data_at = l->table_at + l->table_pages * SODA_SEALED_PAGE;
	l->data_at = (l->data_at + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
	l->total = l->data_at + blocks * SODA_SEALED_PAGE;
	return 0;
}

/* Sizes grow with the number of blocks, so that it is between two of them. */
int soda_sealed_layout_of(uint64_t total, struct soda_sealed_layout *l)
{
	uint64_t low = 1, high = total / SODA_SEALED_PAGE;

	while (low < high) {
		uint64_t at = low + (high - low) / 2;

		if (soda_sealed_layout(at * SODA_SEALED_PAGE, l) || l->total > total)
			high = at;
		else if (l->total < total)
			low = at + 1;
		else
			return 0;
	}
	return !high || soda_sealed_layout(low * SODA_SEALED_PAGE, l) || l->total != total ? -EINVAL
											   : 0;
}

static int all_zero(const uint8_t *p, size_t n)
{
	while (n && !*p) {
		p++;
		n--;
	}
	return !n;
}

int soda_sealed_get_header(const uint8_t page[SODA_SEALED_PAGE], struct soda_sealed_header *h_p)
{
	struct soda_sealed_header h = {
		.cipher = soda_wire_get_u32(page + AT_CIPHER),
		.bytes = soda_wire_get_u64(page + AT_BYTES),
		.commits = soda_wire_get_u64(page + AT_COMMITS),
	};
	struct soda_sealed_layout layout;

	if (soda_sealed_kind(page) != SODA_SEALED_FILE ||
	    soda_wire_get_u32(page + AT_VERSION) != LAYOUT_VERSION || !h.cipher ||
	    h.cipher > CIPHERS || soda_sealed_layout(h.bytes, &layout) || !h.commits ||
	    !all_zero(page + AT_ZERO, AT_ROOT - AT_ZERO) ||
	    !all_zero(page + HEADER_END, SODA_SEALED_PAGE - HEADER_END))
		return -EINVAL;
	memcpy(h.key_id, page + AT_KEY_ID, sizeof(h.key_id));
	memcpy(h.salt, page + AT_SALT, sizeof(h.salt));
	memcpy(h.root, page + AT_ROOT, sizeof(h.root));
	memcpy(h.mac, page + AT_MAC, sizeof(h.mac));
	*h_p = h;
	return 0;
}

void soda_sealed_put_header(uint8_t page[SODA_SEALED_PAGE], const struct soda_sealed_header *h)
{
	memset(page, 0, SODA_SEALED_PAGE);
	memcpy(page, sealed_magic, sizeof(sealed_magic));
	soda_wire_put_u32(page + AT_VERSION, LAYOUT_VERSION);
	soda_wire_put_u32(page + AT_CIPHER, h->cipher);
	memcpy(page + AT_KEY_ID, h->key_id, sizeof(h->key_id));
	memcpy(page + AT_SALT, h->salt, sizeof(h->salt));
	soda_wire_put_u64(page + AT_BYTES, h->bytes);
	soda_wire_put_u64(page + AT_COMMITS, h->commits);
	memcpy(page + AT_ROOT, h->root, sizeof(h->root));
	memcpy(page + AT_MAC, h->mac, sizeof(h->mac));
}

struct soda_sealed_entry soda_sealed_get_entry(const uint8_t at[SODA_SEALED_ENTRY])
{
	return (struct soda_sealed_entry){
		.tag = at,
		.version = soda_wire_get_u32(at + 16) | soda_wire_get(at + 20, 2) << 32,
		.salt = at + 22,
	};
}

void soda_sealed_put_entry(uint8_t at[SODA_SEALED_ENTRY], uint64_t version,
			   const uint8_t salt[SODA_SEALED_OPEN_SALT])
{
	soda_wire_put_u32(at + 16, (uint32_t)version);
	soda_wire_put(at + 20, version >> 32, 2);
	memcpy(at + 22, salt, SODA_SEALED_OPEN_SALT);
}
