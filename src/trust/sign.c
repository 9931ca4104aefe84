/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/crypto.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/run.h"

static struct {
	__typeof__(EVP_PKEY_new_raw_private_key) *new_private;
	__typeof__(EVP_PKEY_new_raw_public_key) *new_public;
	__typeof__(EVP_PKEY_get_raw_public_key) *get_public;
	__typeof__(EVP_PKEY_free) *free_key;
	__typeof__(EVP_MD_CTX_new) *new_ctx;
	__typeof__(EVP_MD_CTX_free) *free_ctx;
	__typeof__(EVP_DigestSignInit) *sign_init;
	__typeof__(EVP_DigestSign) *sign;
	__typeof__(EVP_DigestVerifyInit) *verify_init;
	__typeof__(EVP_DigestVerify) *verify;
	int (*set_mark)(void), (*pop_to_mark)(void); /* of the thread's errors */
	bool there;
} library; /* set by load(), then constant */

static void load(void)
{
	const struct soda_crypto_function wanted[] = {
		{ "EVP_PKEY_new_raw_private_key", &library.new_private },
		{ "EVP_PKEY_new_raw_public_key", &library.new_public },
		{ "EVP_PKEY_get_raw_public_key", &library.get_public },
		{ "EVP_PKEY_free", &library.free_key },
		{ "EVP_MD_CTX_new", &library.new_ctx },
		{ "EVP_MD_CTX_free", &library.free_ctx },
		{ "EVP_DigestSignInit", &library.sign_init },
		{ "EVP_DigestSign", &library.sign },
		{ "EVP_DigestVerifyInit", &library.verify_init },
		{ "EVP_DigestVerify", &library.verify },
		{ "ERR_set_mark", &library.set_mark },
		{ "ERR_pop_to_mark", &library.pop_to_mark },
	};

	library.there = !soda_crypto_find(wanted, sizeof(wanted) / sizeof(wanted[0]));
}

/* Around each use of the library: its memory is local, and the thread's errors stay as they are. */
static bool enter(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (!library.there)
		return false;
	soda_run_local(1);
	library.set_mark();
	return true;
}

static void leave(void)
{
	library.pop_to_mark();
	soda_run_local(-1);
}

static EVP_PKEY *private_key(const uint8_t seed[SODA_KEY_BYTES])
{
	return library.new_private(EVP_PKEY_ED25519, NULL, seed, SODA_KEY_BYTES);
}

int soda_sign_public(const uint8_t seed[SODA_KEY_BYTES], uint8_t key[SODA_SIGN_PUBLIC])
{
	size_t bytes = SODA_SIGN_PUBLIC;
	EVP_PKEY *pair;
	bool done;

	if (!enter())
		return -ENOTSUP;
	pair = private_key(seed);
	done = pair && library.get_public(pair, key, &bytes) == 1 && bytes == SODA_SIGN_PUBLIC;
	library.free_key(pair);
	leave();
	return done ? 0 : pair ? -EIO : -ENOTSUP;
}

int soda_sign(const uint8_t seed[SODA_KEY_BYTES], const void *data, size_t bytes,
	      uint8_t signature[SODA_SIGN_BYTES])
{
	size_t signed_bytes = SODA_SIGN_BYTES;
	EVP_MD_CTX *ctx;
	EVP_PKEY *pair;
	bool done;

	if (!enter())
		return -ENOTSUP;
	pair = private_key(seed);
	ctx = library.new_ctx();
	done = pair && ctx && library.sign_init(ctx, NULL, NULL, NULL, pair) == 1 &&
	       library.sign(ctx, signature, &signed_bytes, data, bytes) == 1 &&
	       signed_bytes == SODA_SIGN_BYTES;
	library.free_ctx(ctx);
	library.free_key(pair);
	leave();
	return done ? 0 : !pair ? -ENOTSUP : !ctx ? -ENOMEM : -EIO;
}

int soda_sign_check(const uint8_t key[SODA_SIGN_PUBLIC], const void *data, size_t bytes,
		    const uint8_t signature[SODA_SIGN_BYTES])
{
	EVP_MD_CTX *ctx;
	EVP_PKEY *public;
	bool right;

	if (!enter())
		return -ENOTSUP;
	public = library.new_public(EVP_PKEY_ED25519, NULL, key, SODA_SIGN_PUBLIC);
	ctx = library.new_ctx();
	right = public && ctx && library.verify_init(ctx, NULL, NULL, NULL, public) == 1 &&
		library.verify(ctx, signature, SODA_SIGN_BYTES, data, bytes) == 1;
	library.free_ctx(ctx);
	library.free_key(public);
	leave();
	return right ? 0 : ctx ? -EACCES : -ENOMEM;
}
