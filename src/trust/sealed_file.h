/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys and the table of a sealed file (wire/sealed_file.h), for who writes one and for who
 * reads one.  What brings its pages here, and where they go, is the caller's.
 *
 *   K                   32 bytes of the key file that SODA_SEAL_KEY_FILE names:
 *                         [seal]
 *                         key = 64 hexadecimal digits
 *   key id              the first 8 bytes of HKDF(K, "soda seal file id")
 *   MAC key             HKDF(K, the file's salt, "soda seal file mac")
 *   key of an open      HKDF(K, the file's salt and the open's, "soda seal file blocks CIPHER")
 *   nonce of a block    its number, and its version, of 48 bits
 *   MAC of table page n HMAC(MAC key, "P", n, the page), 16 bytes
 *   root                HMAC(MAC key, "R", the MACs of all pages)
 *   the header's MAC    HMAC(MAC key, "H", bytes 0 to 95)
 *
 * One thread at a time changes a file; AS functions may run beside each other and beside it.
 * AS: async-signal-safe, without allocation, without locks.
 */
#ifndef SODA_TRUST_SEALED_FILE_H
#define SODA_TRUST_SEALED_FILE_H

#include <stddef.h>

#include "base/conf/conf.h"
#include "trust/crypto.h"
#include "trust/seal.h"
#include "wire/sealed_file.h"

struct soda_sealed_key {
	uint8_t root[SODA_KEY_BYTES];
	uint8_t id[SODA_SEALED_KEY_ID];
};

/* 0; errors of soda_private_open; -EINVAL; -ENOTSUP: no OpenSSL. */
int soda_sealed_key_read(const char *path, struct soda_sealed_key *key_p,
			 struct soda_conf_error *err);
/* Make a key, in a new file that nobody else can read. 0; -EEXIST; errors of open. */
int soda_sealed_key_make(const char *path, struct soda_conf_error *err);

struct soda_sealed_open_key; /* of one of the opens that blocks were sealed by */

struct soda_sealed_file {
	struct soda_sealed_header header;
	struct soda_sealed_layout layout;
	uint8_t *table; /* as in the file: layout.table_pages */
	uint8_t *macs;	/* of the table's pages */
	uint8_t mac_key[SODA_KEY_BYTES];
	struct soda_sealed_open_key *keys; /* by salt, ascending */
	size_t keys_n, keys_room;
};

/*
 * A new file, of zeros, for an object of so many bytes.  0; -EINVAL: its size; -ENOMEM; -ENOTSUP,
 * -EIO.  Free with soda_sealed_file_end.
 */
int soda_sealed_file_make(const struct soda_sealed_key *key, uint64_t bytes,
			  struct soda_sealed_file *f_p);
/*
 * A file whose first page this is: see that it is sealed, with this key, and make room for its
 * table, which is read next, into f->table.  0; -EINVAL: no header, -EACCES: of another key,
 * -EBADMSG: changed, with a sentence that goes on behind the file's name; -ENOMEM, -ENOTSUP.
 */
int soda_sealed_file_begin(const struct soda_sealed_key *key, const uint8_t *page,
			   struct soda_sealed_file *f_p, struct soda_conf_error *err);
/*
 * The table has been read: see that it is the header's, and derive the keys of its blocks.  0;
 * -EBADMSG: it is another one, with a sentence as above; -ENOMEM, -ENOTSUP, -EIO.
 */
int soda_sealed_file_check(const struct soda_sealed_key *key, struct soda_sealed_file *f,
			   struct soda_conf_error *err);
/* All zeros is a no-op. */
void soda_sealed_file_end(struct soda_sealed_file *f);

/* The key of a new open, with a salt of its own. 0, -EIO, -ENOTSUP. */
int soda_sealed_file_new_key(const struct soda_sealed_key *key, const struct soda_sealed_file *f,
			     uint8_t salt[SODA_SEALED_OPEN_SALT], struct soda_seal_key *key_p);
/* The key of the open that had this salt, or NULL. AS. */
const struct soda_seal_key *soda_sealed_file_key(const struct soda_sealed_file *f,
						 const uint8_t *salt);

/* Pages of the table have changed. 0, -ENOTSUP, -EIO. */
int soda_sealed_file_changed(struct soda_sealed_file *f, uint64_t page);
/*
 * The header of the next commit, of the table whose changed pages were all told.  0, -ENOMEM,
 * -ENOTSUP, -EIO: f is as before.
 */
int soda_sealed_file_commit(struct soda_sealed_file *f, uint8_t page[SODA_SEALED_PAGE]);

#endif
