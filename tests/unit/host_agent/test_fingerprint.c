/* SPDX-License-Identifier: BSD-3-Clause */
/* Fingerprints: the same on every processor, and every bit of the chunk counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host_agent/object/fingerprint.h"

enum { CHUNK = 65536 };

static uint8_t data[CHUNK] __attribute__((aligned(4096)));

static int fill(void **state)
{
	for (uint32_t i = 0; i < CHUNK; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 24);
	return 0;
}

static void every_page_counts(void **state)
{
	const struct soda_fingerprint f = soda_fingerprint_plain.take(data, CHUNK, 7);

	assert_true(soda_fingerprint_plain.same(&f, data, CHUNK, 7));
	for (uint32_t at = 5; at < CHUNK; at += 1021) {
		data[at] ^= 0x10;
		assert_false(soda_fingerprint_plain.same(&f, data, CHUNK, 7));
		data[at] ^= 0x10;
	}
	data[CHUNK - 1] ^= 1;
	assert_false(soda_fingerprint_plain.same(&f, data, CHUNK, 7));
	data[CHUNK - 1] ^= 1;
	assert_true(soda_fingerprint_plain.same(&f, data, CHUNK, 7));
}

/* The head alone tells of a change in the first page; a change behind it leaves it as it was. */
static void the_head_is_the_first_page(void **state)
{
	const struct soda_fingerprint f = soda_fingerprint_plain.take(data, CHUNK, 7);
	struct soda_fingerprint g;

	data[4096] ^= 1;
	g = soda_fingerprint_plain.take(data, CHUNK, 7);
	assert_int_equal(f.head, g.head);
	assert_memory_not_equal(f.whole, g.whole, sizeof(f.whole));
	data[4096] ^= 1;
	data[4095] ^= 1;
	g = soda_fingerprint_plain.take(data, CHUNK, 7);
	assert_int_not_equal(f.head, g.head);
	data[4095] ^= 1;
}

static void the_secret_matters(void **state)
{
	const struct soda_fingerprint f = soda_fingerprint_plain.take(data, CHUNK, 7);

	assert_false(soda_fingerprint_plain.same(&f, data, CHUNK, 8));
}

/* An object's last chunk may be one page. */
static void short_chunks(void **state)
{
	for (uint32_t bytes = 4096; bytes < CHUNK; bytes += 4096) {
		struct soda_fingerprint f = soda_fingerprint_plain.take(data, bytes, 1);

		data[bytes] ^= 1; /* not part of it */
		assert_true(soda_fingerprint_plain.same(&f, data, bytes, 1));
		data[bytes] ^= 1;
		data[bytes - 1] ^= 1;
		assert_false(soda_fingerprint_plain.same(&f, data, bytes, 1));
		data[bytes - 1] ^= 1;
	}
}

static void both_builds_agree(void **state)
{
#if defined(__x86_64__)
	if (!__builtin_cpu_supports("avx2")) {
		print_message("SKIP: this processor has no AVX2\n");
		skip();
	}
	for (uint32_t bytes = 4096; bytes <= CHUNK; bytes += 4096) {
		struct soda_fingerprint f = soda_fingerprint_plain.take(data, bytes, bytes);

		assert_true(soda_fingerprint_avx2.same(&f, data, bytes, bytes));
	}
#else
	print_message("SKIP: there is one build on this processor\n");
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(every_page_counts, fill),
		cmocka_unit_test_setup(the_head_is_the_first_page, fill),
		cmocka_unit_test_setup(the_secret_matters, fill),
		cmocka_unit_test_setup(short_chunks, fill),
		cmocka_unit_test_setup(both_builds_agree, fill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
