/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AES-256-GCM, and ChaCha20-Poly1305 by seal_chacha.h.
 *
 * A context of EVP allocates where it gets its cipher; from then on a new nonce, data and a tag go
 * through it without allocation and without a lock (tests/unit/trust/test_seal.c traps both), and
 * so does a new key.
 */
#include "trust/seal.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/run.h"
#include "trust/crypto.h"
#include "trust/seal_chacha.h"

enum { NONCE = SODA_CHACHA_NONCE };

static struct {
	EVP_CIPHER *(*fetch)(OSSL_LIB_CTX *ctx, const char *algorithm, const char *properties);
	EVP_CIPHER_CTX *(*new)(void);
	void (*free)(EVP_CIPHER_CTX *ctx);
	int (*init)(EVP_CIPHER_CTX *ctx, const EVP_CIPHER *type, ENGINE *impl,
		    const unsigned char *key, const unsigned char *iv, int enc);
	int (*update)(EVP_CIPHER_CTX *ctx, unsigned char *out, int *outl, const unsigned char *in,
		      int inl);
	int (*final)(EVP_CIPHER_CTX *ctx, unsigned char *out, int *outl);
	int (*ctrl)(EVP_CIPHER_CTX *ctx, int type, int arg, void *ptr);
} evp; /* set by load(), then constant */

static const char *const names[SODA_SEAL_CIPHERS] = {
	[SODA_SEAL_AES_256_GCM] = "AES-256-GCM",
	[SODA_SEAL_CHACHA20_POLY1305] = "ChaCha20-Poly1305",
};

/* Set by load(), then constant: the library has it, and it works. */
static bool usable[SODA_SEAL_CIPHERS];
static EVP_CIPHER *gcm;
static enum soda_seal_cipher chosen;
static int load_error;

/* A context for each direction: a context that changes it works its key out again. */
struct soda_seal_engine {
	/* each if the cipher is there */
	EVP_CIPHER_CTX *gcm_seal, *gcm_open;
	struct soda_chacha chacha;
	/* serials of the keys that they have */
	uint64_t gcm_seals_with, gcm_opens_with, chacha_has;
};

static int symbols(void)
{
	const struct soda_crypto_function wanted[] = {
		{ "EVP_CIPHER_fetch", &evp.fetch },   { "EVP_CIPHER_CTX_new", &evp.new },
		{ "EVP_CIPHER_CTX_free", &evp.free }, { "EVP_CipherInit_ex", &evp.init },
		{ "EVP_CipherUpdate", &evp.update },  { "EVP_CipherFinal_ex", &evp.final },
		{ "EVP_CIPHER_CTX_ctrl", &evp.ctrl },
	};

	return soda_crypto_find(wanted, sizeof(wanted) / sizeof(wanted[0]));
}

static int open_gcm(struct soda_seal_engine *e)
{
	e->gcm_seal = evp.new();
	e->gcm_open = evp.new();
	if (!e->gcm_seal || !e->gcm_open)
		return -ENOMEM;
	return evp.init(e->gcm_seal, gcm, NULL, NULL, NULL, 1) == 1 &&
			       evp.init(e->gcm_open, gcm, NULL, NULL, NULL, 0) == 1
		       ? 0
		       : -EIO;
}

static int open_cipher(struct soda_seal_engine *e, enum soda_seal_cipher cipher)
{
	return cipher == SODA_SEAL_AES_256_GCM ? open_gcm(e) : soda_chacha_open(&e->chacha);
}

/* Also of an engine that was opened half. */
static void close_ciphers(struct soda_seal_engine *e)
{
	evp.free(e->gcm_seal);
	evp.free(e->gcm_open);
	soda_chacha_close(&e->chacha);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The shortest time of a few blocks, sealed and opened; 0: it does not work. */
static uint64_t measure(enum soda_seal_cipher cipher)
{
	enum { ROUNDS = 8, BLOCKS = 4 };
	static uint8_t data[SODA_SEAL_BLOCK]; /* one thread alone is in load() */
	const struct soda_seal_key key = { .serial = 1, .cipher = cipher };
	struct soda_seal_engine e = { 0 };
	uint8_t tag[SODA_SEAL_TAG];
	uint64_t least = UINT64_MAX, from;
	int ret = open_cipher(&e, cipher);

	for (uint32_t i = 0; i < ROUNDS && !ret; i++) {
		from = now_ns();
		for (uint32_t k = 0; k < BLOCKS && !ret; k++) {
			ret = soda_seal_block(&e, &key, k, i, data, data, tag);
			ret = ret ? ret : soda_open_block(&e, &key, k, i, data, tag, data);
		}
		from = now_ns() - from;
		least = from < least ? from : least;
	}
	close_ciphers(&e);
	return ret ? 0 : least ? least : 1;
}

static bool find(enum soda_seal_cipher cipher)
{
	if (cipher == SODA_SEAL_AES_256_GCM)
		return (gcm = evp.fetch(NULL, names[cipher], NULL));
	return !soda_chacha_load();
}

static void load(void)
{
	uint64_t best = 0;

	load_error = symbols();
	for (int i = SODA_SEAL_AES_256_GCM; i < SODA_SEAL_CIPHERS && !load_error; i++) {
		enum soda_seal_cipher cipher = (enum soda_seal_cipher)i;
		uint64_t ns = find(cipher) ? measure(cipher) : 0;

		usable[i] = ns;
		if (ns && (!best || ns < best)) {
			chosen = cipher;
			best = ns;
		}
	}
	if (!load_error && !best)
		load_error = -EIO;
}

int soda_seal_ready(const char **name_p, struct soda_conf_error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int ret = soda_crypto_ready(err);

	if (ret)
		return ret;
	soda_run_local(1);
	pthread_once(&once, load);
	soda_run_local(-1);
	if (load_error)
		return soda_conf_fail(err, load_error,
				      "sealing needs AES-256-GCM or ChaCha20-Poly1305, and the "
				      "OpenSSL that is installed gives neither");
	*name_p = names[chosen];
	return 0;
}

enum soda_seal_cipher soda_seal_fastest(void)
{
	return chosen;
}

bool soda_seal_has(uint32_t cipher)
{
	return cipher < SODA_SEAL_CIPHERS && usable[cipher];
}

uint64_t soda_seal_serial(void)
{
	static _Atomic uint64_t serials;

	return atomic_fetch_add(&serials, 1) + 1;
}

int soda_seal_engine_new(struct soda_seal_engine **engine_p)
{
	struct soda_seal_engine *e;
	int ret;

	soda_run_local(1);
	e = calloc(1, sizeof(*e));
	ret = e ? 0 : -ENOMEM;
	for (int i = 0; i < SODA_SEAL_CIPHERS && !ret; i++)
		if (usable[i])
			ret = open_cipher(e, (enum soda_seal_cipher)i);
	soda_run_local(-1);
	if (ret && e)
		soda_seal_engine_free(e);
	else if (!ret)
		*engine_p = e;
	return ret;
}

void soda_seal_engine_free(struct soda_seal_engine *engine)
{
	if (!engine)
		return;
	close_ciphers(engine); /* which wipes */
	free(engine);
}

void soda_seal_engine_forget(struct soda_seal_engine *engine)
{
	static const uint8_t zeros[SODA_KEY_BYTES];

	if (engine && engine->gcm_seal) {
		evp.init(engine->gcm_seal, NULL, NULL, zeros, zeros, 1);
		evp.init(engine->gcm_open, NULL, NULL, zeros, zeros, 0);
		engine->gcm_seals_with = engine->gcm_opens_with = 0;
	}
	if (engine && engine->chacha.stream) {
		soda_chacha_forget(&engine->chacha);
		engine->chacha_has = 0;
	}
}

static enum soda_seal_cipher cipher_of(const struct soda_seal_key *key)
{
	return key->cipher ? key->cipher : chosen;
}

static void make_nonce(uint8_t nonce[NONCE], uint32_t block, uint64_t version)
{
	memcpy(nonce, &block, sizeof(block));
	memcpy(nonce + sizeof(block), &version, sizeof(version));
}

/* The key is worked out again only where the context has another one. */
static bool begin(EVP_CIPHER_CTX *ctx, uint64_t *has, const struct soda_seal_key *key,
		  const uint8_t nonce[NONCE], int seals)
{
	bool same = *has == key->serial, done;

	done = evp.init(ctx, NULL, NULL, same ? NULL : key->key, nonce, seals) == 1;
	*has = done ? key->serial : 0;
	return done;
}

/* The same. */
static bool begin_chacha(struct soda_seal_engine *e, const struct soda_seal_key *key,
			 const uint8_t nonce[NONCE])
{
	bool same = e->chacha_has == key->serial, done;

	done = e->chacha.stream && soda_chacha_begin(&e->chacha, same ? NULL : key->key, nonce);
	e->chacha_has = done ? key->serial : 0;
	return done;
}

static bool seal_gcm(struct soda_seal_engine *e, const struct soda_seal_key *key,
		     const uint8_t nonce[NONCE], const void *plain, void *sealed, uint8_t *tag)
{
	uint8_t none[16];
	int n = 0, more = 0;

	return e->gcm_seal && begin(e->gcm_seal, &e->gcm_seals_with, key, nonce, 1) &&
	       evp.update(e->gcm_seal, sealed, &n, plain, SODA_SEAL_BLOCK) == 1 &&
	       evp.final(e->gcm_seal, none, &more) == 1 && n + more == SODA_SEAL_BLOCK &&
	       evp.ctrl(e->gcm_seal, EVP_CTRL_AEAD_GET_TAG, SODA_SEAL_TAG, tag) == 1;
}

static bool open_by_gcm(struct soda_seal_engine *e, const struct soda_seal_key *key,
			const uint8_t nonce[NONCE], const void *sealed, const uint8_t *tag,
			void *plain)
{
	uint8_t none[16], wanted[SODA_SEAL_TAG];
	int n = 0, more = 0;

	memcpy(wanted, tag, sizeof(wanted)); /* the control function takes no constant */
	return e->gcm_open && begin(e->gcm_open, &e->gcm_opens_with, key, nonce, 0) &&
	       evp.ctrl(e->gcm_open, EVP_CTRL_AEAD_SET_TAG, SODA_SEAL_TAG, wanted) == 1 &&
	       evp.update(e->gcm_open, plain, &n, sealed, SODA_SEAL_BLOCK) == 1 &&
	       evp.final(e->gcm_open, none, &more) == 1 && n + more == SODA_SEAL_BLOCK;
}

int soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *plain, void *sealed,
		    uint8_t tag[SODA_SEAL_TAG])
{
	uint8_t nonce[NONCE];
	bool done;

	make_nonce(nonce, block, version);
	if (cipher_of(key) == SODA_SEAL_AES_256_GCM)
		done = seal_gcm(engine, key, nonce, plain, sealed, tag);
	else
		done = begin_chacha(engine, key, nonce) &&
		       soda_chacha_seal(&engine->chacha, plain, SODA_SEAL_BLOCK, sealed, tag);
	return done ? 0 : -EIO;
}

int soda_open_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *sealed,
		    const uint8_t tag[SODA_SEAL_TAG], void *plain)
{
	uint8_t nonce[NONCE];
	bool done;

	make_nonce(nonce, block, version);
	if (cipher_of(key) == SODA_SEAL_AES_256_GCM)
		done = open_by_gcm(engine, key, nonce, sealed, tag, plain);
	else
		done = begin_chacha(engine, key, nonce) &&
		       soda_chacha_unseal(&engine->chacha, sealed, SODA_SEAL_BLOCK, plain, tag);
	return done ? 0 : -EBADMSG;
}
