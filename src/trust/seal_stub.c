/* SPDX-License-Identifier: BSD-3-Clause */
/* SODA without OpenSSL: nothing can be sealed, and soda_seal_ready() says so before the rest. */
#include <errno.h>

#include "trust/seal.h"

int soda_seal_ready(const char **name_p, struct soda_conf_error *err)
{
	return soda_crypto_ready(err);
}

enum soda_seal_cipher soda_seal_fastest(void)
{
	return SODA_SEAL_FASTEST;
}

bool soda_seal_has(uint32_t cipher)
{
	return false;
}

uint64_t soda_seal_serial(void)
{
	return 0;
}

int soda_seal_engine_new(struct soda_seal_engine **engine_p)
{
	return -ENOTSUP;
}

void soda_seal_engine_free(struct soda_seal_engine *engine)
{
}

void soda_seal_engine_forget(struct soda_seal_engine *engine)
{
}

int soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *plain, void *sealed,
		    uint8_t tag[SODA_SEAL_TAG])
{
	return -EIO;
}

int soda_open_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *sealed,
		    const uint8_t tag[SODA_SEAL_TAG], void *plain)
{
	return -EBADMSG;
}
