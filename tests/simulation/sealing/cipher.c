/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In place of OpenSSL, in each program's object: a cipher that protects nothing and that the seed
 * decides, as all else.  What it has sealed stands in the ledger.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../fibers.h"
#include "../nodes.h"
#include "ledger.h"
#include "trust/seal.h"

_Static_assert(SIM_BLOCK == SODA_SEAL_BLOCK && sizeof(struct sim_tag) == SODA_SEAL_TAG,
	       "the ledger's blocks are those that are sealed");

struct soda_seal_engine {
	char none;
};

static uint64_t mix_bytes(uint64_t sum, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < bytes; i++)
		sum = sim_ledger_mix(sum + at[i] + 1);
	return sum;
}

static uint64_t key_of(const struct soda_seal_key *key)
{
	return mix_bytes(0, key->key, sizeof(key->key));
}

int soda_crypto_ready(struct soda_conf_error *err)
{
	return 0;
}

int soda_hmac(const uint8_t *key, size_t key_bytes, const void *data, size_t bytes,
	      uint8_t mac[SODA_KEY_BYTES])
{
	uint64_t sum = mix_bytes(mix_bytes(key_bytes, key, key_bytes), data, bytes);

	for (size_t i = 0; i < SODA_KEY_BYTES; i++)
		mac[i] = (uint8_t)(sum = sim_ledger_mix(sum + i + 1));
	return 0;
}

/* Nobody here asks what a file has in it. */
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

int soda_seal_ready(const char **name_p, struct soda_conf_error *err)
{
	*name_p = "the simulation's cipher";
	return 0;
}

enum soda_seal_cipher soda_seal_fastest(void)
{
	return SODA_SEAL_AES_256_GCM;
}

bool soda_seal_has(uint32_t cipher)
{
	return cipher == SODA_SEAL_AES_256_GCM;
}

uint64_t soda_seal_serial(void)
{
	static uint64_t serials;

	return ++serials;
}

int soda_seal_engine_new(struct soda_seal_engine **engine_p)
{
	if (sim_lacks_memory())
		return -ENOMEM;
	*engine_p = calloc(1, sizeof(**engine_p));
	return 0;
}

void soda_seal_engine_free(struct soda_seal_engine *engine)
{
	free(engine);
}

void soda_seal_engine_forget(struct soda_seal_engine *engine)
{
}

int soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *plain, void *sealed,
		    uint8_t tag[SODA_SEAL_TAG])
{
	uint64_t k = key_of(key), stream = sim_ledger_stream(k, block, version);
	const uint64_t *from = plain;
	uint64_t *to = sealed;
	struct sim_tag t;

	if (sim_is_host(sim_process()))
		sim_host_check_resident(plain, SODA_SEAL_BLOCK);
	for (uint32_t i = 0; i < SIM_BLOCK_WORDS; i++) {
		if (i % (SIM_BLOCK_WORDS / 2) == 0)
			sim_point(); /* whoever stores to it now has it torn */
		to[i] = from[i] ^ sim_ledger_mix(stream + i);
	}
	sim_spend(1000);
	t = sim_ledger_tag(stream, sealed);
	sim_ledger_note(k, block, version, sealed, t);
	memcpy(tag, &t, sizeof(t));
	return 0;
}

int soda_open_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *sealed,
		    const uint8_t tag[SODA_SEAL_TAG], void *plain)
{
	uint64_t stream = sim_ledger_stream(key_of(key), block, version);
	struct sim_tag t = sim_ledger_tag(stream, sealed);
	const uint64_t *from = sealed;
	uint64_t *to = plain;

	sim_point();
	sim_spend(1000);
	for (uint32_t i = 0; i < SIM_BLOCK_WORDS; i++) /* void, nobody takes it for something */
		to[i] = from[i] ^ sim_ledger_mix(stream + i);
	return sim_ledger_same(&t, tag) ? 0 : -EBADMSG;
}
