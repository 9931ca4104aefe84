/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In place of OpenSSL: a cipher that protects nothing and that the seed decides, as all else.  It
 * keeps a ledger of what the host has sealed, by version, so that a version that is used twice is
 * found at once, and the simulation can read what servers have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../fibers.h"
#include "../nodes.h"
#include "sealing.h"
#include "trust/seal.h"

enum { WORDS = SODA_SEAL_BLOCK / 8, VERSIONS = 1 << 20, HEADS = 1 << 14 };

struct soda_seal_engine {
	char none;
};

struct tag {
	uint64_t words[SODA_SEAL_TAG / 8];
};

/* One encryption. */
struct entry {
	uint64_t key, first; /* the first word of what was sealed, by which it is found */
	struct tag tag;
	uint32_t block, next; /* with the same head; 0: no more */
	bool used;
};

static struct entry ledger[VERSIONS]; /* by version */
static uint32_t heads[HEADS];

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t mix_bytes(uint64_t sum, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < bytes; i++)
		sum = mix(sum + at[i] + 1);
	return sum;
}

static uint64_t key_of(const struct soda_seal_key *key)
{
	return mix_bytes(0, key->key, sizeof(key->key));
}

/* What the first word is changed by; each next one by the mix of a number more. */
static uint64_t stream_of(uint64_t key, uint32_t block, uint64_t version)
{
	return mix(mix(key + block) + version);
}

static struct tag tag_of(uint64_t stream, const uint64_t *sealed)
{
	struct tag tag = { { stream, ~stream } };

	for (int i = 0; i < WORDS; i++) {
		tag.words[0] = (tag.words[0] ^ sealed[i]) * 0x9e3779b97f4a7c15u;
		tag.words[0] ^= tag.words[0] >> 29;
		tag.words[1] += mix(tag.words[0]);
	}
	return tag;
}

static bool same_tag(const struct tag *a, const void *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static void note(uint64_t key, uint32_t block, uint64_t version, uint64_t first, struct tag tag)
{
	uint32_t *head = &heads[first % HEADS];

	if (!version || version >= VERSIONS)
		sim_fail("the ledger of what was sealed has no room for version %llu",
			 (unsigned long long)version);
	if (ledger[version].used)
		sim_fail("NONCE TWICE: version %llu seals block %u, and has sealed block %u",
			 (unsigned long long)version, block, ledger[version].block);
	ledger[version] = (struct entry){ key, first, tag, block, *head, true };
	*head = (uint32_t)version;
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
		mac[i] = (uint8_t)(sum = mix(sum + i + 1));
	return 0;
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

int soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *plain, void *sealed,
		    uint8_t tag[SODA_SEAL_TAG])
{
	uint64_t k = key_of(key), stream = stream_of(k, block, version);
	const uint64_t *from = plain;
	uint64_t *to = sealed;
	struct tag t;

	sim_host_check_resident(plain, SODA_SEAL_BLOCK);
	for (uint32_t i = 0; i < WORDS; i++) {
		if (i % (WORDS / 2) == 0)
			sim_point(); /* whoever stores to it now has it torn */
		to[i] = from[i] ^ mix(stream + i);
	}
	sim_spend(1000);
	t = tag_of(stream, sealed);
	note(k, block, version, to[0], t);
	memcpy(tag, &t, sizeof(t));
	return 0;
}

int soda_open_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *sealed,
		    const uint8_t tag[SODA_SEAL_TAG], void *plain)
{
	uint64_t stream = stream_of(key_of(key), block, version);
	struct tag t = tag_of(stream, sealed);
	const uint64_t *from = sealed;
	uint64_t *to = plain;

	sim_point();
	sim_spend(1000);
	for (uint32_t i = 0; i < WORDS; i++) /* where it is void, nobody takes it for something */
		to[i] = from[i] ^ mix(stream + i);
	return same_tag(&t, tag) ? 0 : -EBADMSG;
}

static bool all_zero(const uint64_t *words)
{
	for (int i = 0; i < WORDS; i++)
		if (words[i])
			return false;
	return true;
}

bool sim_seal_read(const void *page, uint32_t block, size_t at, uint64_t *word_p)
{
	const uint64_t *sealed = page;
	struct tag tag;

	*word_p = 0;
	for (uint32_t v = heads[sealed[0] % HEADS]; v; v = ledger[v].next) {
		uint64_t stream = stream_of(ledger[v].key, block, v);

		if (ledger[v].first != sealed[0] || ledger[v].block != block)
			continue;
		tag = tag_of(stream, sealed);
		if (!same_tag(&tag, &ledger[v].tag))
			continue;
		*word_p = sealed[at / 8] ^ mix(stream + at / 8);
		return true;
	}
	return all_zero(sealed);
}
