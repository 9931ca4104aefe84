/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ed25519 (RFC 8032) by OpenSSL's libcrypto: who has seen the public half knows what was signed by
 * who has the seed.  Any thread; not async-signal-safe.  -ENOTSUP: no OpenSSL, or it has none.
 */
#ifndef SODA_TRUST_SIGN_H
#define SODA_TRUST_SIGN_H

#include <stddef.h>
#include <stdint.h>

#include "trust/crypto.h"

#define SODA_SIGN_PUBLIC 32u
#define SODA_SIGN_BYTES 64u

/* 0, -ENOTSUP, -EIO. */
int soda_sign_public(const uint8_t seed[SODA_KEY_BYTES], uint8_t key[SODA_SIGN_PUBLIC]);
/* 0, -ENOTSUP, -EIO, -ENOMEM. */
int soda_sign(const uint8_t seed[SODA_KEY_BYTES], const void *data, size_t bytes,
	      uint8_t signature[SODA_SIGN_BYTES]);
/* 0; -EACCES: it is not signed by that one; -ENOTSUP, -ENOMEM. */
int soda_sign_check(const uint8_t key[SODA_SIGN_PUBLIC], const void *data, size_t bytes,
		    const uint8_t signature[SODA_SIGN_BYTES]);

#endif
