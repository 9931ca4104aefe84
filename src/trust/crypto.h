/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HMAC-SHA256 (RFC 2104), HKDF over it (RFC 5869), SHA-256 itself and Ed25519 (RFC 8032; sign.c),
 * by OpenSSL's libcrypto, which is loaded when it is first asked for: a program without a key never
 * maps it, and a program with an OpenSSL of its own keeps that.
 *
 * Any thread; not async-signal-safe.  Where SODA was built without OpenSSL every function fails
 * with -ENOTSUP.
 */
#ifndef SODA_TRUST_CRYPTO_H
#define SODA_TRUST_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf/conf.h"

#define SODA_KEY_BYTES 32u

/* See that the library is there. 0; -ENOTSUP, with a sentence. */
int soda_crypto_ready(struct soda_conf_error *err);

/* For the other files of this folder: functions of libcrypto, found by name. */
struct soda_crypto_function {
	const char *name;
	void *at; /* a pointer to it, which is set */
};
/* 0; -ENOTSUP: one of them is not there, or the library is not. */
int soda_crypto_find(const struct soda_crypto_function *wanted, size_t n);

/* 0, -ENOTSUP, -EIO. */
int soda_hmac(const uint8_t *key, size_t key_bytes, const void *data, size_t bytes,
	      uint8_t mac[SODA_KEY_BYTES]);

/* One key; info has at most SODA_HKDF_INFO_MAX bytes.  0, -ENOTSUP, -EIO. */
#define SODA_HKDF_INFO_MAX 512u
int soda_hkdf(const uint8_t key[SODA_KEY_BYTES], const void *salt, size_t salt_bytes,
	      const void *info, size_t info_bytes, uint8_t out[SODA_KEY_BYTES]);

/* SHA-256 of what comes in parts. */
struct soda_digest;
/* 0; -ENOTSUP; -ENOMEM. */
int soda_digest_begin(struct soda_digest **digest_p);
/* 0, -EIO. */
int soda_digest_add(struct soda_digest *digest, const void *data, size_t bytes);
/* out: NULL: it is given up.  Frees the digest, whatever comes of it. 0, -EIO. */
int soda_digest_end(struct soda_digest *digest, uint8_t out[SODA_KEY_BYTES]);

/*
 * Signatures by Ed25519: the public half of a pair tells whether the seed's owner has signed.
 * Errors of all: -ENOTSUP, also where OpenSSL has no Ed25519; -EIO; -ENOMEM.
 */
#define SODA_SIGN_PUBLIC 32u
#define SODA_SIGN_BYTES 64u
int soda_sign_public(const uint8_t seed[SODA_KEY_BYTES], uint8_t key[SODA_SIGN_PUBLIC]);
int soda_sign(const uint8_t seed[SODA_KEY_BYTES], const void *data, size_t bytes,
	      uint8_t signature[SODA_SIGN_BYTES]);
/* -EACCES: it is not signed by that one. */
int soda_sign_check(const uint8_t key[SODA_SIGN_PUBLIC], const void *data, size_t bytes,
		    const uint8_t signature[SODA_SIGN_BYTES]);

/* In a time that does not depend on where they differ. */
bool soda_mac_equal(const uint8_t *a, const uint8_t *b, size_t bytes);

/* Bytes from the kernel that nobody can guess. 0 or negative errno. */
int soda_random(void *out, size_t bytes);

/*
 * Memory of zeros for keys and what belongs to them, of whole pages, which neither a child of
 * fork(2) nor a core dump has.  NULL: there is none. munmap(2) it, wiped.
 */
void *soda_secret_map(uint64_t bytes);
/*
 * The pages in which these bytes lie, once they are touched, are not swapped, as far as
 * RLIMIT_MEMLOCK goes.
 */
void soda_secret_lock(void *memory, size_t bytes);
/* The same, and a core dump has none of them. */
void soda_secret_hide(void *memory, size_t bytes);
/* Zeros for something with keys in it: soda_secret_map(), locked. NULL: there is none. */
void *soda_secret_new(size_t bytes);
/* Wiped; bytes: as it was made. NULL is a no-op. */
void soda_secret_free(void *memory, size_t bytes);
/* Overwrite what is not needed any more; not optimised away. */
void soda_wipe(void *memory, size_t bytes);

#endif
