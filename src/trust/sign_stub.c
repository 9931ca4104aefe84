/* SPDX-License-Identifier: BSD-3-Clause */
/* Built without OpenSSL. */
#include <errno.h>

#include "trust/crypto.h"

int soda_sign_public(const uint8_t seed[SODA_KEY_BYTES], uint8_t key[SODA_SIGN_PUBLIC])
{
	return -ENOTSUP;
}

int soda_sign(const uint8_t seed[SODA_KEY_BYTES], const void *data, size_t bytes,
	      uint8_t signature[SODA_SIGN_BYTES])
{
	return -ENOTSUP;
}

int soda_sign_check(const uint8_t key[SODA_SIGN_PUBLIC], const void *data, size_t bytes,
		    const uint8_t signature[SODA_SIGN_BYTES])
{
	return -ENOTSUP;
}
