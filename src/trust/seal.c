/* SPDX-License-Identifier: BSD-3-Clause */
/*
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

enum { NONCE = 12 };

static struct {
	EVP_CIPHER *(*fetch)(OSSL_LIB_CTX *ctx, const char *algorithm, const char *properties);
	void (*drop)(EVP_CIPHER *cipher);
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

/* Set by load(), then constant; NULL: the library does not have it, or it does not work. */
static EVP_CIPHER *ciphers[SODA_SEAL_CIPHERS];
static enum soda_seal_cipher chosen;
static int load_error;

/* A context for each direction: a context that changes it works its key out again. */
struct contexts {
	EVP_CIPHER_CTX *seal, *open;
	uint64_t seals_with, opens_with; /* serials of the keys that they have */
};

struct soda_seal_engine {
	struct contexts of[SODA_SEAL_CIPHERS]; /* of ciphers that there are */
};

static int symbols(void)
{
	const struct {
		const char *name;
		void *at;
	} wanted[] = {
		{ "EVP_CIPHER_fetch", &evp.fetch },   { "EVP_CIPHER_free", &evp.drop },
		{ "EVP_CIPHER_CTX_new", &evp.new },   { "EVP_CIPHER_CTX_free", &evp.free },
		{ "EVP_CipherInit_ex", &evp.init },   { "EVP_CipherUpdate", &evp.update },
		{ "EVP_CipherFinal_ex", &evp.final }, { "EVP_CIPHER_CTX_ctrl", &evp.ctrl },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *at = soda_crypto_symbol(wanted[i].name);

		if (!at)
			return -ENOTSUP;
		memcpy(wanted[i].at, &at, sizeof(at));
	}
	return 0;
}

static int open_contexts(EVP_CIPHER *cipher, struct contexts *e)
{
	*e = (struct contexts){ .seal = evp.new(), .open = evp.new() };
	if (!e->seal || !e->open)
		return -ENOMEM;
	return evp.init(e->seal, cipher, NULL, NULL, NULL, 1) == 1 &&
			       evp.init(e->open, cipher, NULL, NULL, NULL, 0) == 1
		       ? 0
		       : -EIO;
}

static void close_contexts(struct contexts *e)
{
	evp.free(e->seal);
	evp.free(e->open);
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
	int ret = open_contexts(ciphers[cipher], &e.of[cipher]);

	for (uint32_t i = 0; i < ROUNDS && !ret; i++) {
		from = now_ns();
		for (uint32_t k = 0; k < BLOCKS && !ret; k++) {
			ret = soda_seal_block(&e, &key, k, i, data, data, tag);
			ret = ret ? ret : soda_open_block(&e, &key, k, i, data, tag, data);
		}
		from = now_ns() - from;
		least = from < least ? from : least;
	}
	close_contexts(&e.of[cipher]);
	return ret ? 0 : least ? least : 1;
}

static void load(void)
{
	uint64_t best = 0;

	load_error = symbols();
	for (int i = SODA_SEAL_AES_256_GCM; i < SODA_SEAL_CIPHERS && !load_error; i++) {
		uint64_t ns;

		ciphers[i] = evp.fetch(NULL, names[i], NULL);
		ns = ciphers[i] ? measure((enum soda_seal_cipher)i) : 0;
		if (!ns) {
			evp.drop(ciphers[i]);
			ciphers[i] = NULL;
		} else if (!best || ns < best) {
			chosen = (enum soda_seal_cipher)i;
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
	return cipher < SODA_SEAL_CIPHERS && ciphers[cipher];
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
		if (ciphers[i])
			ret = open_contexts(ciphers[i], &e->of[i]);
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
	for (int i = 0; i < SODA_SEAL_CIPHERS; i++)
		close_contexts(&engine->of[i]); /* which wipes */
	free(engine);
}

void soda_seal_engine_forget(struct soda_seal_engine *engine)
{
	static const uint8_t zeros[SODA_KEY_BYTES];

	for (int i = 0; engine && i < SODA_SEAL_CIPHERS; i++)
		if (engine->of[i].seal) {
			evp.init(engine->of[i].seal, NULL, NULL, zeros, zeros, 1);
			evp.init(engine->of[i].open, NULL, NULL, zeros, zeros, 0);
			engine->of[i].seals_with = engine->of[i].opens_with = 0;
		}
}

/* NULL: the engine has not the key's cipher. */
static struct contexts *contexts_of(struct soda_seal_engine *e, const struct soda_seal_key *key)
{
	struct contexts *c = &e->of[key->cipher ? key->cipher : chosen];

	return c->seal ? c : NULL;
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

int soda_seal_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *plain, void *sealed,
		    uint8_t tag[SODA_SEAL_TAG])
{
	struct contexts *c = contexts_of(engine, key);
	EVP_CIPHER_CTX *ctx = c ? c->seal : NULL;
	uint8_t nonce[NONCE], none[16];
	int n = 0, more = 0;

	make_nonce(nonce, block, version);
	if (!c || !begin(ctx, &c->seals_with, key, nonce, 1) ||
	    evp.update(ctx, sealed, &n, plain, SODA_SEAL_BLOCK) != 1 ||
	    evp.final(ctx, none, &more) != 1 || n + more != SODA_SEAL_BLOCK ||
	    evp.ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, SODA_SEAL_TAG, tag) != 1)
		return -EIO;
	return 0;
}

int soda_open_block(struct soda_seal_engine *engine, const struct soda_seal_key *key,
		    uint32_t block, uint64_t version, const void *sealed,
		    const uint8_t tag[SODA_SEAL_TAG], void *plain)
{
	struct contexts *c = contexts_of(engine, key);
	EVP_CIPHER_CTX *ctx = c ? c->open : NULL;
	uint8_t nonce[NONCE], none[16], wanted[SODA_SEAL_TAG];
	int n = 0, more = 0;

	make_nonce(nonce, block, version);
	memcpy(wanted, tag, sizeof(wanted)); /* the control function takes no constant */
	if (!c || !begin(ctx, &c->opens_with, key, nonce, 0) ||
	    evp.ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, SODA_SEAL_TAG, wanted) != 1 ||
	    evp.update(ctx, plain, &n, sealed, SODA_SEAL_BLOCK) != 1 ||
	    evp.final(ctx, none, &more) != 1 || n + more != SODA_SEAL_BLOCK)
		return -EBADMSG;
	return 0;
}
