/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/seal_chacha.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

static struct {
	EVP_CIPHER *(*fetch)(OSSL_LIB_CTX *ctx, const char *algorithm, const char *properties);
	EVP_CIPHER_CTX *(*new)(void);
	void (*free)(EVP_CIPHER_CTX *ctx);
	int (*init)(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *type, ENGINE *impl,
		    const unsigned char *key, const unsigned char *iv, int enc);
	int (*update)(EVP_CIPHER_CTX *ctx, unsigned char *out, int *outl, const unsigned char *in,
		      int inl);
	EVP_MAC *(*mac_fetch)(OSSL_LIB_CTX *ctx, const char *algorithm, const char *properties);
	EVP_MAC_CTX *(*mac_new)(EVP_MAC *mac);
	void (*mac_free)(EVP_MAC_CTX *ctx);
	int (*mac_init)(EVP_MAC_CTX *ctx, const unsigned char *key, size_t keylen,
			const OSSL_PARAM params[]);
	int (*mac_update)(EVP_MAC_CTX *ctx, const unsigned char *data, size_t datalen);
	int (*mac_final)(EVP_MAC_CTX *ctx, unsigned char *out, size_t *outl, size_t outsize);
} evp; /* set by soda_chacha_load(), then constant, and so below */

static EVP_CIPHER *cipher;
static EVP_MAC *mac;

static int symbols(void)
{
	const struct soda_crypto_function wanted[] = {
		{ "EVP_CIPHER_fetch", &evp.fetch },   { "EVP_CIPHER_CTX_new", &evp.new },
		{ "EVP_CIPHER_CTX_free", &evp.free }, { "EVP_CipherInit_ex", &evp.init },
		{ "EVP_CipherUpdate", &evp.update },  { "EVP_MAC_fetch", &evp.mac_fetch },
		{ "EVP_MAC_CTX_new", &evp.mac_new },  { "EVP_MAC_CTX_free", &evp.mac_free },
		{ "EVP_MAC_init", &evp.mac_init },    { "EVP_MAC_update", &evp.mac_update },
		{ "EVP_MAC_final", &evp.mac_final },
	};

	return soda_crypto_find(wanted, sizeof(wanted) / sizeof(wanted[0]));
}

int soda_chacha_load(void)
{
	int ret = symbols();

	if (ret)
		return ret;
	cipher = evp.fetch(NULL, "ChaCha20", NULL);
	mac = cipher ? evp.mac_fetch(NULL, "POLY1305", NULL) : NULL;
	return mac ? 0 : -ENOTSUP;
}

int soda_chacha_open(struct soda_chacha *c)
{
	*c = (struct soda_chacha){ .stream = evp.new(), .mac = evp.mac_new(mac) };
	if (!c->stream || !c->mac)
		return -ENOMEM;
	return evp.init(c->stream, cipher, NULL, NULL, NULL, 1) == 1 ? 0 : -EIO;
}

void soda_chacha_close(struct soda_chacha *c)
{
	if (c->stream)
		evp.free(c->stream);
	if (c->mac)
		evp.mac_free(c->mac);
	soda_wipe(c, sizeof(*c));
}

bool soda_chacha_begin(struct soda_chacha *c, const uint8_t *key,
		       const uint8_t nonce[SODA_CHACHA_NONCE])
{
	memset(c->start, 0, sizeof(c->start) - SODA_CHACHA_NONCE);
	memcpy(c->start + sizeof(c->start) - SODA_CHACHA_NONCE, nonce, SODA_CHACHA_NONCE);
	memset(c->one_time, 0, sizeof(c->one_time));
	return evp.init(c->stream, NULL, NULL, key, c->start, 1) == 1 &&
	       evp.update(c->stream, c->one_time, &c->n, c->one_time, sizeof(c->one_time)) == 1 &&
	       c->n == sizeof(c->one_time);
}

/* The bytes that are sealed, the lengths of what is associated (none) and of them. */
static bool make_tag(struct soda_chacha *c, const void *sealed, uint32_t bytes)
{
	uint8_t *lengths = c->start; /* whose turn is over; numbers are little-endian */

	memset(lengths, 0, sizeof(c->start));
	for (int i = 0; i < 4; i++)
		lengths[8 + i] = (uint8_t)(bytes >> 8 * i);
	return evp.mac_init(c->mac, c->one_time, SODA_KEY_BYTES, NULL) == 1 &&
	       evp.mac_update(c->mac, sealed, bytes) == 1 &&
	       evp.mac_update(c->mac, lengths, sizeof(c->start)) == 1 &&
	       evp.mac_final(c->mac, c->tag, &c->tag_bytes, sizeof(c->tag)) == 1 &&
	       c->tag_bytes == sizeof(c->tag);
}

bool soda_chacha_seal(struct soda_chacha *c, const void *from, uint32_t bytes, void *to,
		      uint8_t tag[SODA_CHACHA_TAG])
{
	if (evp.update(c->stream, to, &c->n, from, (int)bytes) != 1 || c->n != (int)bytes ||
	    !make_tag(c, to, bytes))
		return false;
	memcpy(tag, c->tag, sizeof(c->tag));
	return true;
}

bool soda_chacha_unseal(struct soda_chacha *c, const void *from, uint32_t bytes, void *to,
			const uint8_t tag[SODA_CHACHA_TAG])
{
	return make_tag(c, from, bytes) && soda_mac_equal(c->tag, tag, sizeof(c->tag)) &&
	       evp.update(c->stream, to, &c->n, from, (int)bytes) == 1 && c->n == (int)bytes;
}

void soda_chacha_forget(struct soda_chacha *c)
{
	static const uint8_t zeros[SODA_KEY_BYTES];

	soda_chacha_begin(c, zeros, zeros);
	make_tag(c, zeros, sizeof(zeros));
	soda_wipe(c->one_time, sizeof(c->one_time));
}
