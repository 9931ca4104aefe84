/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a sealed file is, byte by byte: a WRITABLE file whose content a program has encrypted, at
 * rest in a server's directory.  Numbers are little-endian, pages are 4096 bytes.
 *
 *   page 0                the header: 128 bytes, the rest zeros
 *      0  8  "SODASEAL"
 *      8  4  the layout's version, 1
 *     12  4  cipher of the blocks: 1 AES-256-GCM, 2 ChaCha20-Poly1305
 *     16  8  key id, of the key that all keys of the file are derived of
 *     24 16  the file's salt, random, made with the file
 *     40  8  bytes of the object
 *     48  8  how often it was committed
 *     56  8  zero
 *     64 32  root: a MAC over the table
 *     96 32  a MAC over bytes 0 to 95
 *   pages 1 ...           the table, 32 bytes for each block of 4 KiB, the rest zeros
 *      0 16  tag
 *     16  6  version; 0: never written, the block is zeros, and so is all of the entry
 *     22 10  the salt of the open that sealed the block
 *   from a multiple of 64 KiB on   the blocks, one after the other, the last one whole
 *
 * Behind them nothing, but for a journal while a server commits (mem_server/files/journal.h).
 * Before a new file has been committed for the first time its first 8 bytes are "SODAMAKE".
 *
 * Which keys there are and what the MACs are of: trust/sealed_file.h.  Nothing here needs a key.
 */
#ifndef SODA_WIRE_SEALED_FILE_H
#define SODA_WIRE_SEALED_FILE_H

#include <stdint.h>

#define SODA_SEALED_PAGE 4096u
#define SODA_SEALED_MAGIC_BYTES 8u
#define SODA_SEALED_ENTRY 32u
#define SODA_SEALED_ENTRIES (SODA_SEALED_PAGE / SODA_SEALED_ENTRY) /* in a page of the table */
#define SODA_SEALED_KEY_ID 8u
#define SODA_SEALED_SALT 16u
#define SODA_SEALED_OPEN_SALT 10u
#define SODA_SEALED_MAC 32u
#define SODA_SEALED_VERSION_MAX ((1ull << 48) - 1)
#define SODA_SEALED_HEADER_MACED 96u /* bytes of the header that its MAC covers */

enum soda_sealed_kind {
	SODA_SEALED_NOT,    /* some other file */
	SODA_SEALED_MAKING, /* new: never committed */
	SODA_SEALED_FILE,
};

/* Where the parts of a file are, all of whole pages. */
struct soda_sealed_layout {
	uint64_t blocks;
	uint64_t table_at, table_pages;
	uint64_t data_at;
	uint64_t total;
};

struct soda_sealed_header {
	uint32_t cipher;
	uint8_t key_id[SODA_SEALED_KEY_ID];
	uint8_t salt[SODA_SEALED_SALT];
	uint64_t bytes;
	uint64_t commits;
	uint8_t root[SODA_SEALED_MAC];
	uint8_t mac[SODA_SEALED_MAC];
};

struct soda_sealed_entry {
	const uint8_t *tag;
	uint64_t version;
	const uint8_t *salt;
};

/* By the first SODA_SEALED_MAGIC_BYTES of a file. */
enum soda_sealed_kind soda_sealed_kind(const uint8_t *begin);
/* The first page of a file that is being made. */
void soda_sealed_put_making(uint8_t page[SODA_SEALED_PAGE]);

/* Of an object of so many bytes. 0; -EINVAL: 0, or more than 2^32 - 1 blocks. */
int soda_sealed_layout(uint64_t bytes, struct soda_sealed_layout *layout_p);
/* Of a file of so many bytes, from its header to its end. 0; -EINVAL: no sealed file has so many.
 */
int soda_sealed_layout_of(uint64_t total, struct soda_sealed_layout *layout_p);

/* The header of a page; no MAC is looked at. 0, -EINVAL. */
int soda_sealed_get_header(const uint8_t page[SODA_SEALED_PAGE], struct soda_sealed_header *h_p);
void soda_sealed_put_header(uint8_t page[SODA_SEALED_PAGE], const struct soda_sealed_header *h);

/* Entry of the table. It points into `at`. */
struct soda_sealed_entry soda_sealed_get_entry(const uint8_t at[SODA_SEALED_ENTRY]);
/* The version and salt; the tag is at its beginning. */
void soda_sealed_put_entry(uint8_t at[SODA_SEALED_ENTRY], uint64_t version,
			   const uint8_t salt[SODA_SEALED_OPEN_SALT]);

#endif
