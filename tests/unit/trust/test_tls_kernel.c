/* SPDX-License-Identifier: BSD-3-Clause */
/* The keys that the kernel gets, against the handshake of RFC 8448, 3; and that it is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "trust/identity.h"
#include "trust/tls_kernel.h"

/* {client} and {server} derive write traffic keys for application data. */
static const struct {
	const char *secret, *key, *iv;
} vectors[] = {
	{ "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
	  "17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9" },
	{ "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
	  "9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984" },
};

static void test_keys(void **state)
{
	uint8_t secret[SODA_TLS_SECRET_BYTES], key[16], iv[12];
	struct soda_tls_record_key got;

	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		assert_int_equal(soda_hex_parse(vectors[i].secret, secret, sizeof(secret)), 0);
		assert_int_equal(soda_hex_parse(vectors[i].key, key, sizeof(key)), 0);
		assert_int_equal(soda_hex_parse(vectors[i].iv, iv, sizeof(iv)), 0);
		assert_int_equal(soda_tls_record_key(secret, sizeof(key), &got), 0);
		assert_memory_equal(got.key, key, sizeof(key));
		assert_memory_equal(got.iv, iv, sizeof(iv));
	}
}

/* Yes, or no with a sentence; the same each time; and a socket that cannot have it stays as it is.
 */
static void test_asked(void **state)
{
	static const uint8_t secret[SODA_TLS_SECRET_BYTES];
	char why[SODA_TLS_WHY], again[SODA_TLS_WHY];
	int ret = soda_tls_kernel(why), pair[2];

	assert_true(ret ? strstr(why, "kernel") != NULL : !*why);
	assert_int_equal(soda_tls_kernel(again), ret);
	assert_string_equal(why, again);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_true(soda_tls_kernel_take(pair[0], secret, secret) < 0);
	assert_int_equal(write(pair[0], "x", 1), 1);
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
