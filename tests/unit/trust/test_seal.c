/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealing of blocks: what was changed in any way is not opened; and the path of a fault may use it:
 * no allocation, no lock, little stack, also with a tag that does not fit.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "trust/seal.h"

/*
 * The functions of the C library that OpenSSL calls to allocate and to lock; this program's are
 * found first, also by the library that is loaded later.
 */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void __libc_free(void *p);

static int trapping, trapped;

static void trap(void)
{
	trapped += trapping;
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
	trap();
	return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t bytes)
{
	trap();
	return __libc_calloc(n, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t bytes)
{
	trap();
	return __libc_realloc(p, bytes);
}

__attribute__((visibility("default"))) void free(void *p)
{
	trap();
	__libc_free(p);
}

/* One thread runs while these are counted: that nothing is locked does no harm. */
#define LOCKS(name, type)                                                                          \
	__attribute__((visibility("default"))) int name(type *lock)                                \
	{                                                                                          \
		trap();                                                                            \
		return 0;                                                                          \
	}
LOCKS(pthread_mutex_lock, pthread_mutex_t)
LOCKS(pthread_mutex_unlock, pthread_mutex_t)
LOCKS(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCKS(pthread_rwlock_wrlock, pthread_rwlock_t)
LOCKS(pthread_rwlock_unlock, pthread_rwlock_t)

enum { BLOCKS = 16 };

static struct soda_seal_engine *engine;
static enum soda_seal_cipher cipher; /* of all tests of a round */
static struct soda_seal_key keys[2] = { { .serial = 1, .key = "one" },
					{ .serial = 2, .key = "two" } };
static uint8_t plain[SODA_SEAL_BLOCK], sealed[SODA_SEAL_BLOCK], opened[SODA_SEAL_BLOCK];
static uint8_t tag[SODA_SEAL_TAG];

static int setup(void **state)
{
	struct soda_conf_error err;
	const char *name;

	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i * 7);
	assert_int_equal(soda_seal_ready(&name, &err), 0);
	printf("cipher: %s\n", name);
	keys[0].cipher = keys[1].cipher = cipher;
	return soda_seal_engine_new(&engine);
}

static int teardown(void **state)
{
	soda_seal_engine_free(engine);
	return 0;
}

static int try_open(const struct soda_seal_key *key, uint32_t block, uint64_t version)
{
	return soda_open_block(engine, key, block, version, sealed, tag, opened);
}

static void test_what_was_sealed_is_opened(void **state)
{
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const struct soda_seal_key *key = &keys[i % 2];

		assert_int_equal(soda_seal_block(engine, key, i, i + 1, plain, sealed, tag), 0);
		assert_memory_not_equal(plain, sealed, SODA_SEAL_BLOCK);
		assert_int_equal(try_open(key, i, i + 1), 0);
		assert_memory_equal(plain, opened, SODA_SEAL_BLOCK);
		/* in place */
		assert_int_equal(soda_open_block(engine, key, i, i + 1, sealed, tag, sealed), 0);
		assert_memory_equal(plain, sealed, SODA_SEAL_BLOCK);
	}
}

static void test_what_is_another_is_refused(void **state)
{
	assert_int_equal(soda_seal_block(engine, &keys[0], 5, 9, plain, sealed, tag), 0);
	assert_int_equal(try_open(&keys[1], 5, 9), -EBADMSG);
	assert_int_equal(try_open(&keys[0], 4, 9), -EBADMSG);
	assert_int_equal(try_open(&keys[0], 5, 8), -EBADMSG);
	assert_int_equal(try_open(&keys[0], 5, 9), 0);
	for (uint32_t at = 0; at < SODA_SEAL_BLOCK; at += 97) {
		sealed[at] ^= (uint8_t)(1u << at % 8);
		assert_int_equal(try_open(&keys[0], 5, 9), -EBADMSG);
		sealed[at] ^= (uint8_t)(1u << at % 8);
	}
	for (uint32_t at = 0; at < SODA_SEAL_TAG; at++) {
		tag[at] ^= 1;
		assert_int_equal(try_open(&keys[0], 5, 9), -EBADMSG);
		tag[at] ^= 1;
	}
	assert_int_equal(try_open(&keys[0], 5, 9), 0);
}

/* The same block, sealed again with another version, is other bytes. */
static void test_versions_differ(void **state)
{
	uint8_t again[SODA_SEAL_BLOCK], its_tag[SODA_SEAL_TAG];

	assert_int_equal(soda_seal_block(engine, &keys[0], 5, 9, plain, sealed, tag), 0);
	assert_int_equal(soda_seal_block(engine, &keys[0], 5, 10, plain, again, its_tag), 0);
	assert_memory_not_equal(sealed, again, SODA_SEAL_BLOCK);
	assert_memory_not_equal(tag, its_tag, SODA_SEAL_TAG);
}

/* What a fault, and a write-back in a thread's fault, does; with each key in turn. */
static void fault_work(void)
{
	for (uint32_t i = 0; i < 8; i++) {
		const struct soda_seal_key *key = &keys[i / 2 % 2];

		assert_int_equal(soda_seal_block(engine, key, i, i + 1, plain, sealed, tag), 0);
		assert_int_equal(try_open(key, i, i + 1), 0);
		tag[3] ^= 4;
		assert_int_equal(try_open(key, i, i + 1), -EBADMSG);
	}
}

static void test_no_allocation_no_lock(void **state)
{
	struct soda_seal_engine *other;
	int seen, in_faults;

	trapping = 1;
	assert_int_equal(soda_seal_engine_new(&other), 0); /* the traps work: that allocates */
	seen = trapped;
	soda_seal_engine_free(other);
	trapped = 0;
	fault_work();
	in_faults = trapped;
	trapping = 0;
	assert_true(seen > 2);
	assert_int_equal(in_faults, 0);
}

enum { STACK = 1 << 20, STACK_MOST = 2048 };

static void *work_alone(void *arg)
{
	/* volatile: all of it below this frame is painted before the call */
	volatile uint8_t *here = __builtin_frame_address(0);
	volatile uint8_t *low = here - 32 * 1024, *at;
	size_t *used = arg;

	for (at = low; at < here - 256; at++)
		*at = 0xa5;
	soda_seal_block(engine, &keys[0], 1, 1, plain, sealed, tag);
	soda_open_block(engine, &keys[1], 1, 1, sealed, tag, opened); /* a tag that does not fit */
	for (at = low; *at == 0xa5;)
		at++;
	*used = (size_t)(here - at);
	return NULL;
}

static void test_little_stack(void **state)
{
	pthread_t thread;
	size_t used = 0;

	assert_int_equal(pthread_create(&thread, NULL, work_alone, &used), 0);
	pthread_join(thread, NULL);
	printf("stack: %zu bytes\n", used);
	assert_true(used > 64);
	assert_true(used <= STACK_MOST);
}

/* The cipher is the one of that name, so that other programs, and later versions, open blocks. */
static void test_is_the_standard_one(void **state)
{
	static const char *const names[] = { [SODA_SEAL_AES_256_GCM] = "AES-256-GCM",
					     [SODA_SEAL_CHACHA20_POLY1305] = "ChaCha20-Poly1305" };
	uint8_t nonce[12] = { 5, 0, 0, 0, 9 }, its_tag[SODA_SEAL_TAG], its[SODA_SEAL_BLOCK];
	EVP_CIPHER_CTX *ctx;
	EVP_CIPHER *wanted;
	int n;

	if (!cipher)
		return; /* it is one of the two */
	wanted = EVP_CIPHER_fetch(NULL, names[cipher], NULL);
	ctx = EVP_CIPHER_CTX_new();
	assert_int_equal(EVP_CipherInit_ex(ctx, wanted, NULL, keys[0].key, nonce, 1), 1);
	assert_int_equal(EVP_CipherUpdate(ctx, its, &n, plain, SODA_SEAL_BLOCK), 1);
	assert_int_equal(EVP_CipherFinal_ex(ctx, its + n, &n), 1);
	assert_int_equal(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, SODA_SEAL_TAG, its_tag),
			 1);
	assert_int_equal(soda_seal_block(engine, &keys[0], 5, 9, plain, sealed, tag), 0);
	assert_memory_equal(sealed, its, SODA_SEAL_BLOCK);
	assert_memory_equal(tag, its_tag, SODA_SEAL_TAG);
	EVP_CIPHER_CTX_free(ctx);
	EVP_CIPHER_free(wanted);
}

/* How often these bytes, each XORed, lie in the heap. */
static int count_in_heap(const uint8_t *hidden, size_t bytes)
{
	unsigned long from = 0, end = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");
	int found = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) && !strstr(line, "[heap]"))
		;
	assert_int_equal(sscanf(line, "%lx-%lx", &from, &end), 2);
	fclose(maps);
	for (const uint8_t *at = (const uint8_t *)from; at + bytes <= (const uint8_t *)end; at++) {
		size_t k = 0;

		while (k < bytes && (at[k] ^ 0x5a) == hidden[k])
			k++;
		found += k == bytes;
	}
	return found;
}

/* A child of a fork wipes its copy: no key is left in it, and others can be used. */
static void test_engine_forgets(void **state)
{
	static uint8_t hidden[SODA_KEY_BYTES];
	struct soda_seal_key key = { .serial = 77 };

	for (unsigned c = SODA_SEAL_AES_256_GCM; c < SODA_SEAL_CIPHERS; c++) {
		if (!soda_seal_has(c))
			continue;
		assert_int_equal(soda_random(hidden, sizeof(hidden)), 0);
		key.cipher = (enum soda_seal_cipher)c;
		key.serial++;
		for (size_t i = 0; i < sizeof(hidden); i++)
			key.key[i] = hidden[i] ^ 0x5a;
		assert_int_equal(soda_seal_block(engine, &key, 1, c, plain, sealed, tag), 0);
		assert_int_equal(soda_open_block(engine, &key, 1, c, sealed, tag, opened), 0);
		assert_true(count_in_heap(hidden, 16) > 0);
		soda_seal_engine_forget(engine);
		assert_int_equal(count_in_heap(hidden, 16), 0);
		assert_int_equal(soda_open_block(engine, &key, 1, c, sealed, tag, opened), 0);
		assert_memory_equal(opened, plain, sizeof(plain));
	}
	soda_seal_engine_forget(engine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_sealed_is_opened),
		cmocka_unit_test(test_what_is_another_is_refused),
		cmocka_unit_test(test_versions_differ),
		cmocka_unit_test(test_is_the_standard_one),
		cmocka_unit_test(test_no_allocation_no_lock),
		cmocka_unit_test(test_little_stack),
		cmocka_unit_test(test_engine_forgets),
	};
	int failed = 0;

	for (cipher = SODA_SEAL_FASTEST; cipher < SODA_SEAL_CIPHERS; cipher++)
		if (cipher == SODA_SEAL_FASTEST || soda_seal_has(cipher))
			failed += cmocka_run_group_tests(tests, setup, teardown);
		else /* skip() is not for a group's setup */
			print_message("SKIP: OpenSSL does not have cipher %d\n", cipher);
	return failed;
}
