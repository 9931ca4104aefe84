/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ChaCha20-Poly1305 (RFC 8439) without associated data, of blocks of 4 KiB, out of the ChaCha20 and
 * the Poly1305 of OpenSSL.  The library's own composition gives the same bytes, and takes some 300
 * bytes more of the stack, which may be one for signal handlers.
 *
 * AS: async-signal-safe, without allocation, without locks.
 */
#ifndef SODA_TRUST_SEAL_CHACHA_H
#define SODA_TRUST_SEAL_CHACHA_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "trust/crypto.h"

enum { SODA_CHACHA_NONCE = 12, SODA_CHACHA_TAG = 16 };

/* The contexts that one thread at a time seals and opens with. */
struct soda_chacha {
	EVP_CIPHER_CTX *stream; /* NULL: not opened */
	EVP_MAC_CTX *mac;
	/* for the length of a call, not to take stack */
	uint8_t start[16];    /* the number of the first piece of the stream, and the nonce */
	uint8_t one_time[64]; /* the stream's first piece: the key of the tag */
	uint8_t tag[SODA_CHACHA_TAG];
	size_t tag_bytes;
	int n;
};

/* Find both in the library. Once a process. 0; -ENOTSUP: it has them not. */
int soda_chacha_load(void);
/* 0; -ENOMEM; -EIO.  close: also of one that was opened half; of zeros a no-op. */
int soda_chacha_open(struct soda_chacha *c);
void soda_chacha_close(struct soda_chacha *c);

/* A nonce for one block; key: SODA_KEY_BYTES, or NULL: that of the last call. AS. */
bool soda_chacha_begin(struct soda_chacha *c, const uint8_t *key,
		       const uint8_t nonce[SODA_CHACHA_NONCE]);
/*
 * Then one of these, of a block of `bytes` bytes, whole multiples of 16; `to` may be `from`.
 * unseal: false where the tag is another one, and `to` is as it was. AS.
 */
bool soda_chacha_seal(struct soda_chacha *c, const void *from, uint32_t bytes, void *to,
		      uint8_t tag[SODA_CHACHA_TAG]);
bool soda_chacha_unseal(struct soda_chacha *c, const void *from, uint32_t bytes, void *to,
			const uint8_t tag[SODA_CHACHA_TAG]);
/* Overwrite what is known of keys. AS. */
void soda_chacha_forget(struct soda_chacha *c);

#endif
