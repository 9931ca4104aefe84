/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys and macs: against the RFCs' own examples, and what each depends on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trust/identity.h"
#include "trust/proof.h"

/* RFC 4231, test case 2. */
static void agrees_with_the_rfcs(void **state)
{
	static const char hmac[] = "5bdcc146bf60754e6a042426089575c7"
				   "5a003f089d2739839dec58b964ec3843";
	static const char text[] = "what do ya want for nothing?";
	uint8_t mac[SODA_KEY_BYTES];
	char hex[SODA_KEY_TEXT_BYTES];

	assert_int_equal(soda_hmac((const uint8_t *)"Jefe", 4, text, strlen(text), mac), 0);
	assert_string_equal(soda_key_format(mac, sizeof(mac), hex), hmac);
}

/* HKDF, step by step, of a key of our length. */
static void derives_as_hkdf_does(void **state)
{
	uint8_t key[SODA_KEY_BYTES], salt[13], info[10], pseudo[SODA_KEY_BYTES];
	uint8_t expected[SODA_KEY_BYTES], got[SODA_KEY_BYTES], block[11];

	memset(key, 0x0b, sizeof(key));
	for (size_t i = 0; i < sizeof(salt); i++)
		salt[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(info); i++)
		info[i] = (uint8_t)(0xf0 + i);
	assert_int_equal(soda_hmac(salt, sizeof(salt), key, sizeof(key), pseudo), 0);
	memcpy(block, info, sizeof(info));
	block[sizeof(info)] = 1;
	assert_int_equal(soda_hmac(pseudo, sizeof(pseudo), block, sizeof(block), expected), 0);
	assert_int_equal(soda_hkdf(key, salt, sizeof(salt), info, sizeof(info), got), 0);
	assert_memory_equal(got, expected, sizeof(got));
}

/* A server's key is of no use under another name, and tells nothing of the tenant's. */
static void keys_are_a_servers_own(void **state)
{
	uint8_t root[SODA_KEY_BYTES] = { 1 }, a[SODA_KEY_BYTES], b[SODA_KEY_BYTES];
	uint8_t again[SODA_KEY_BYTES], id_a[8], id_b[8];

	assert_int_equal(soda_key_for_server(root, "mem1", a), 0);
	assert_int_equal(soda_key_for_server(root, "mem2", b), 0);
	assert_int_equal(soda_key_for_server(root, "mem1", again), 0);
	assert_memory_equal(a, again, sizeof(a));
	assert_memory_not_equal(a, b, sizeof(a));
	assert_memory_not_equal(a, root, sizeof(a));
	assert_int_equal(soda_key_id(a, id_a), 0);
	assert_int_equal(soda_key_id(b, id_b), 0);
	assert_memory_not_equal(id_a, id_b, sizeof(id_a));
	assert_memory_not_equal(id_a, a, sizeof(id_a));
}

static void make_transcript(struct soda_transcript *t)
{
	uint8_t hello[SODA_WIRE_HELLO_BYTES], ask[SODA_WIRE_ASK_BYTES];

	memset(hello, 3, sizeof(hello));
	memset(ask, 4, sizeof(ask));
	soda_transcript_begin(t, "mem1", hello, ask);
	memset(t->nonce, 5, sizeof(t->nonce));
}

/* Each byte of the transcript counts, and none of the macs stands for another. */
static void every_byte_counts(void **state)
{
	const enum soda_proof_of all[] = { SODA_PROOF_SERVER, SODA_PROOF_CLIENT,
					   SODA_PROOF_SESSION };
	uint8_t key[SODA_KEY_BYTES] = { 9 }, mac[3][SODA_WIRE_MAC_BYTES];
	struct soda_transcript t;

	make_transcript(&t);
	for (int i = 0; i < 3; i++)
		assert_int_equal(soda_proof_mac(&t, all[i], key, mac[i]), 0);
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++)
			assert_int_equal(
				soda_proof_check(&t, all[i], key, mac[j], SODA_WIRE_MAC_BYTES),
				i == j ? 0 : -EACCES);
	for (size_t at = SODA_PROOF_LABEL_BYTES; at < sizeof(t); at++) {
		((uint8_t *)&t)[at] ^= 1;
		assert_int_equal(
			soda_proof_check(&t, SODA_PROOF_CLIENT, key, mac[1], SODA_WIRE_MAC_BYTES),
			-EACCES);
		((uint8_t *)&t)[at] ^= 1;
	}
	for (size_t at = 0; at < sizeof(mac[1]); at++) {
		mac[1][at] ^= 0x80;
		assert_int_equal(
			soda_proof_check(&t, SODA_PROOF_CLIENT, key, mac[1], SODA_WIRE_MAC_BYTES),
			-EACCES);
		mac[1][at] ^= 0x80;
	}
	key[31] ^= 1;
	assert_int_equal(soda_proof_check(&t, SODA_PROOF_CLIENT, key, mac[1], SODA_WIRE_MAC_BYTES),
			 -EACCES);
}

/* Connections have keys of their own, and so have the clients that they make. */
static void connections_differ(void **state)
{
	uint8_t key[SODA_KEY_BYTES] = { 7 }, first[SODA_KEY_BYTES], second[SODA_KEY_BYTES];
	uint8_t client[SODA_KEY_BYTES], welcome[SODA_WIRE_WELCOME_BYTES] = { 0 };
	uint8_t a[SODA_WIRE_MAC_BYTES], b[SODA_WIRE_MAC_BYTES];
	struct soda_transcript t;

	make_transcript(&t);
	assert_int_equal(soda_connection_key(&t, key, first), 0);
	t.nonce[0] ^= 1;
	assert_int_equal(soda_connection_key(&t, key, second), 0);
	assert_memory_not_equal(first, second, sizeof(first));
	assert_int_equal(soda_client_key(first, client), 0);
	assert_memory_not_equal(first, client, sizeof(first));
	assert_int_equal(soda_welcome_mac(first, welcome, a), 0);
	welcome[20] ^= 1;
	assert_int_equal(soda_welcome_mac(first, welcome, b), 0);
	assert_memory_not_equal(a, b, sizeof(a));
}

static void checks_what_travels(void **state)
{
	struct soda_wire_ask ask = { { 1 }, { 2 }, "physics" }, got;
	uint8_t out[SODA_WIRE_ASK_BYTES];

	soda_wire_put_ask(out, &ask);
	assert_int_equal(soda_wire_get_ask(out, sizeof(out), &got), 0);
	assert_string_equal(got.tenant, "physics");
	assert_memory_equal(&got, &ask, sizeof(ask));
	assert_int_equal(soda_wire_get_ask(out, sizeof(out) - 1, &got), -EPROTO);
	out[sizeof(out) - 1] = 'x'; /* behind the end of the name */
	assert_int_equal(soda_wire_get_ask(out, sizeof(out), &got), -EPROTO);
	memset(out + 40, 'x', 64); /* no end */
	assert_int_equal(soda_wire_get_ask(out, sizeof(out), &got), -EPROTO);
	memset(out + 40, 0, 64); /* no name */
	assert_int_equal(soda_wire_get_ask(out, sizeof(out), &got), -EPROTO);
	strcpy((char *)out + 40, "a b");
	assert_int_equal(soda_wire_get_ask(out, sizeof(out), &got), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_the_rfcs),	  cmocka_unit_test(derives_as_hkdf_does),
		cmocka_unit_test(keys_are_a_servers_own), cmocka_unit_test(every_byte_counts),
		cmocka_unit_test(connections_differ),	  cmocka_unit_test(checks_what_travels),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
