/* SPDX-License-Identifier: BSD-3-Clause */
/* SODA without OpenSSL: there are no keys. */
#include <errno.h>

#include "trust/crypto.h"

int soda_crypto_ready(struct soda_conf_error *err)
{
	return soda_conf_fail(err, -ENOTSUP,
			      "this build of SODA has no OpenSSL, and so no keys: build it with"
			      " libssl-dev (meson option trust)");
}

int soda_hmac(const uint8_t *key, size_t key_bytes, const void *data, size_t bytes,
	      uint8_t mac[SODA_KEY_BYTES])
{
	return -ENOTSUP;
}

int soda_digest_begin(struct soda_digest **digest_p)
{
	return -ENOTSUP;
}

int soda_digest_add(struct soda_digest *digest, const void *data, size_t bytes)
{
	return -EIO;
}

int soda_digest_end(struct soda_digest *digest, uint8_t out[SODA_KEY_BYTES])
{
	return -EIO;
}
