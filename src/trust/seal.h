/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealing: authenticated encryption (AEAD) of blocks of 4 KiB, by AES-256-GCM or
 * ChaCha20-Poly1305 of OpenSSL's libcrypto.  The nonce of a block is its number and a version;
 * who seals sees to it that no two calls have the same key, block and version
 * (docs/security.md).  What else a block is bound to, its object, is bound by the key.
 *
 * AS: async-signal-safe, without allocation, without locks.
 */
#ifndef SODA_TRUST_SEAL_H
#define SODA_TRUST_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf/conf.h"
#include "trust/crypto.h"

#define SODA_SEAL_BLOCK 4096u
#define SODA_SEAL_TAG 16u

/* Numbers are those in the headers of sealed files (wire/sealed_file.h). */
enum soda_seal_cipher {
	SODA_SEAL_FASTEST, /* on this processor */
	SODA_SEAL_AES_256_GCM,
	SODA_SEAL_CHACHA20_POLY1305,
	SODA_SEAL_CIPHERS
};

/* serial: of this key in this process, never 0, never used again for another key. */
struct soda_seal_key {
	uint64_t serial;
	uint8_t key[SODA_KEY_BYTES];
	enum soda_seal_cipher cipher;
};

/* What one thread at a time seals and opens with. */
struct soda_seal_engine;

/*
 * Load the library, and choose the cipher that is faster on this processor.  Once a process, before
 * the first engine.  0; -ENOTSUP: there is no OpenSSL, with a sentence; -EIO.  name_p: of the
 * cipher.
 */
int soda_seal_ready(const char **name_p, struct soda_conf_error *err);

/* The faster one, after soda_seal_ready(); and whether this OpenSSL has a cipher. */
enum soda_seal_cipher soda_seal_fastest(void);
bool soda_seal_has(uint32_t cipher);
/* A serial that no other call in this process gives. AS. */
uint64_t soda_seal_serial(void);

/* 0, -ENOMEM, -EIO. The caller's, until soda_seal_engine_free. */
int soda_seal_engine_new(struct soda_seal_engine **engine_p);
/* Also forgets the keys that were used with it. NULL is a no-op. */
void soda_seal_engine_free(struct soda_seal_engine *engine);
/*
 * Overwrite the keys that were used with it, in the child of a fork, which has a copy: it is only
 * to be freed then. NULL is a no-op. AS.
 */
void soda_seal_engine_forget(struct soda_seal_engine *engine);

/*
 * Seal a block; sealed may be plain.  0; -EIO: the library has failed, or has not the key's
 * cipher, and sealed is void. AS.
 */
int soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *plain, void *sealed,
		    uint8_t tag[SODA_SEAL_TAG]);
/*
 * Open a block; plain may be sealed, and must be memory that nobody else can change meanwhile.  0;
 * -EBADMSG: it is not what was sealed with this key, block, version and tag, and plain is void. AS.
 */
int soda_open_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *sealed,
		    const uint8_t tag[SODA_SEAL_TAG], void *plain);

#endif
