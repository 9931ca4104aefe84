/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcrypto, loaded by name and asked for two functions: linking it would cost every program under
 * `soda run` its mapping and relocation, and in a program that exports an OpenSSL of its own our
 * calls would land there.
 */
#include "trust/crypto.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/opensslv.h>
#include <pthread.h>
#include <string.h>

#include "base/run.h"

#define TEXT(x) #x
#define NAME(version) "libcrypto.so." TEXT(version)
#define LIBRARY NAME(OPENSSL_SHLIB_VERSION)

typedef unsigned char *hmac_fn(const EVP_MD *md, const void *key, int key_bytes,
			       const unsigned char *data, size_t bytes, unsigned char *mac,
			       unsigned *mac_bytes);
typedef const EVP_MD *sha256_fn(void);
typedef EVP_MD_CTX *new_fn(void);
typedef void free_fn(EVP_MD_CTX *ctx);
typedef int begin_fn(EVP_MD_CTX *ctx, const EVP_MD *md, ENGINE *engine);
typedef int add_fn(EVP_MD_CTX *ctx, const void *data, size_t bytes);
typedef int end_fn(EVP_MD_CTX *ctx, unsigned char *out, unsigned *bytes);
typedef int init_fn(uint64_t options, const OPENSSL_INIT_SETTINGS *settings);

static struct {
	hmac_fn *hmac;
	sha256_fn *sha256;
	new_fn *new;
	free_fn *free;
	begin_fn *begin;
	add_fn *add;
	end_fn *end;
	void *handle;
} library; /* set by load(), then constant */

/*
 * By default libcrypto frees all that it has when the process exits, while other threads of ours
 * may be proving who they are, or have state of their own in it.
 */
static bool begin_without_end(void *handle)
{
	init_fn *init = (init_fn *)dlsym(handle, "OPENSSL_init_crypto");

	return init && init(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static void load(void)
{
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!handle || !begin_without_end(handle))
		return;
	library.handle = handle;
	library.sha256 = (sha256_fn *)dlsym(handle, "EVP_sha256");
	library.hmac = (hmac_fn *)dlsym(handle, "HMAC");
	library.new = (new_fn *)dlsym(handle, "EVP_MD_CTX_new");
	library.free = (free_fn *)dlsym(handle, "EVP_MD_CTX_free");
	library.begin = (begin_fn *)dlsym(handle, "EVP_DigestInit_ex");
	library.add = (add_fn *)dlsym(handle, "EVP_DigestUpdate");
	library.end = (end_fn *)dlsym(handle, "EVP_DigestFinal_ex");
}

static bool is_ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	soda_run_local(1);
	pthread_once(&once, load);
	soda_run_local(-1);
	return library.hmac && library.sha256;
}

int soda_crypto_find(const struct soda_crypto_function *wanted, size_t n)
{
	if (!is_ready())
		return -ENOTSUP;
	for (size_t i = 0; i < n; i++) {
		void *function = dlsym(library.handle, wanted[i].name);

		if (!function)
			return -ENOTSUP;
		memcpy(wanted[i].at, &function, sizeof(function));
	}
	return 0;
}

int soda_crypto_ready(struct soda_conf_error *err)
{
	if (is_ready())
		return 0;
	return soda_conf_fail(err, -ENOTSUP,
			      "keys need OpenSSL's " LIBRARY ", which is not installed (Debian: "
			      "libssl3)");
}

int soda_hmac(const uint8_t *key, size_t key_bytes, const void *data, size_t bytes,
	      uint8_t mac[SODA_KEY_BYTES])
{
	unsigned char *done;
	unsigned n = 0;

	if (!is_ready())
		return -ENOTSUP;
	soda_run_local(1);
	done = library.hmac(library.sha256(), key, (int)key_bytes, data, bytes, mac, &n);
	soda_run_local(-1);
	return done && n == SODA_KEY_BYTES ? 0 : -EIO;
}

static bool digests(void)
{
	return is_ready() && library.new &&library.free &&library.begin &&library.add &&library.end;
}

/* A digest is libcrypto's context. */
static EVP_MD_CTX *context(struct soda_digest *digest)
{
	return (EVP_MD_CTX *)digest;
}

int soda_digest_begin(struct soda_digest **digest_p)
{
	EVP_MD_CTX *ctx;
	int ret = -ENOMEM;

	if (!digests())
		return -ENOTSUP;
	soda_run_local(1);
	ctx = library.new();
	if (ctx && library.begin(ctx, library.sha256(), NULL))
		ret = 0;
	if (ret)
		library.free(ctx);
	soda_run_local(-1);
	if (!ret)
		*digest_p = (struct soda_digest *)ctx;
	return ret;
}

int soda_digest_add(struct soda_digest *digest, const void *data, size_t bytes)
{
	return library.add(context(digest), data, bytes) ? 0 : -EIO;
}

int soda_digest_end(struct soda_digest *digest, uint8_t out[SODA_KEY_BYTES])
{
	unsigned n = 0;
	bool done;

	soda_run_local(1);
	done = !out || library.end(context(digest), out, &n);
	library.free(context(digest));
	soda_run_local(-1);
	return done && (!out || n == SODA_KEY_BYTES) ? 0 : -EIO;
}
