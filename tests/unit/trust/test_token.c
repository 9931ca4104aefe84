/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokens: what lies over them on their ways, and which of them are valid when. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "trust/token.h"

enum { LIFE_MS = 1000 };

static const uint8_t plain[SODA_WIRE_TOKEN_BYTES] = "0123456789abcdef";
static struct soda_tokens tokens;
static uint8_t got[4][SODA_WIRE_TOKEN_BYTES];
static uint32_t number[4], left_ms;

static int begin(void **state)
{
	memset(&tokens, 0, sizeof(tokens));
	return 0;
}

static void masked(uint8_t out[SODA_WIRE_TOKEN_BYTES], int (*lay)(uint8_t *token))
{
	memcpy(out, plain, SODA_WIRE_TOKEN_BYTES);
	assert_int_equal(lay(out), 0);
}

static const uint8_t key_a[SODA_KEY_BYTES] = { 1 }, key_b[SODA_KEY_BYTES] = { 2 };
static const uint8_t nonce_a[SODA_WIRE_TOKEN_NONCE_BYTES] = { 1 };
static const uint8_t nonce_b[SODA_WIRE_TOKEN_NONCE_BYTES] = { 2 };

static int wrap(uint8_t *t)
{
	return soda_token_wrap(t, key_a, nonce_a);
}
static int wrap_by_key(uint8_t *t)
{
	return soda_token_wrap(t, key_b, nonce_a);
}
static int wrap_by_nonce(uint8_t *t)
{
	return soda_token_wrap(t, key_a, nonce_b);
}
static int show(uint8_t *t)
{
	return soda_token_show(t, key_a);
}
static int show_by_key(uint8_t *t)
{
	return soda_token_show(t, key_b);
}
static int bind(uint8_t *t)
{
	return soda_token_bind(t, key_a, "physics", 7);
}
static int bind_by_key(uint8_t *t)
{
	return soda_token_bind(t, key_b, "physics", 7);
}
static int bind_by_tenant(uint8_t *t)
{
	return soda_token_bind(t, key_a, "biology", 7);
}
static int bind_by_client(uint8_t *t)
{
	return soda_token_bind(t, key_a, "physics", 8);
}

/* What one has laid over it nothing else takes away. */
static void each_mask_is_its_own(void **state)
{
	int (*const all[])(uint8_t *) = { wrap,	       wrap_by_key,    wrap_by_nonce,
					  show,	       show_by_key,    bind,
					  bind_by_key, bind_by_tenant, bind_by_client };
	enum { N = sizeof(all) / sizeof(all[0]) };
	uint8_t out[N][SODA_WIRE_TOKEN_BYTES], back[SODA_WIRE_TOKEN_BYTES];

	for (int i = 0; i < N; i++) {
		masked(out[i], all[i]);
		assert_memory_not_equal(out[i], plain, sizeof(plain));
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(out[i], out[j], sizeof(plain));
		memcpy(back, out[i], sizeof(back));
		assert_int_equal(all[i](back), 0);
		assert_memory_equal(back, plain, sizeof(plain));
	}
}

/* The client that has `held` asks at that time; the answer is got[i]. */
static void renew(int i, uint32_t held, uint64_t now_ms)
{
	assert_int_equal(
		soda_tokens_renew(&tokens, held, now_ms, LIFE_MS, &number[i], &left_ms, got[i]), 0);
	assert_int_not_equal(number[i], 0);
}

static int check(int i, uint64_t now_ms)
{
	const char *sentence = NULL;
	int r = soda_tokens_check(&tokens, got[i], now_ms, &sentence);

	assert_true(r == 0 || (r == -ESTALE && sentence));
	return r;
}

static void guessed_ones_are_none(void **state)
{
	memset(got[0], 0, sizeof(got[0]));
	assert_int_equal(check(0, 5), -ESTALE); /* there is none yet */
	renew(1, 0, 5);
	assert_int_equal(check(0, 5), -ESTALE);
	for (unsigned bit = 0; bit < 8 * SODA_WIRE_TOKEN_BYTES; bit++) {
		memcpy(got[0], got[1], sizeof(got[0]));
		got[0][bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(check(0, 5), -ESTALE);
	}
	assert_int_equal(check(1, 5), 0);
}

static void they_expire(void **state)
{
	renew(0, 0, 100);
	assert_int_equal(left_ms, LIFE_MS);
	assert_int_equal(check(0, 100 + LIFE_MS - 1), 0);
	assert_int_equal(check(0, 100 + LIFE_MS), -ESTALE);
}

/* A client that asks often has the same one; after a quarter of its life there is another. */
static void they_are_renewed(void **state)
{
	renew(0, 0, 0);
	renew(1, number[0], LIFE_MS / 4 - 1);
	assert_int_equal(number[1], number[0]);
	assert_memory_equal(got[1], got[0], sizeof(got[0]));
	assert_int_equal(left_ms, LIFE_MS - (LIFE_MS / 4 - 1));
	renew(1, number[0], LIFE_MS / 4);
	assert_int_not_equal(number[1], number[0]);
	assert_memory_not_equal(got[1], got[0], sizeof(got[0]));
	/* until it says that it has that */
	assert_int_equal(check(0, LIFE_MS / 4), 0);
	assert_int_equal(check(1, LIFE_MS / 4), 0);
	renew(2, number[1], LIFE_MS / 4);
	assert_int_equal(check(0, LIFE_MS / 4), -ESTALE);
}

/* The answer to a renewal is lost: what the client has stays valid, what it never had does not. */
static void a_lost_answer_costs_nothing(void **state)
{
	renew(0, 0, 0);
	renew(1, number[0], 300); /* lost */
	renew(2, number[0], 310);
	assert_int_equal(number[2], number[1]);
	renew(2, number[0], 600); /* later: a third one, and the second is none */
	assert_int_not_equal(number[2], number[1]);
	assert_int_equal(check(1, 600), -ESTALE);
	assert_int_equal(check(0, 600), 0);
	assert_int_equal(check(2, 600), 0);
}

/* One that was shown is valid until the next one is held: the welcome may be lost. */
static void shown_ones_are_replaced(void **state)
{
	renew(0, 0, 0);
	assert_int_equal(check(0, 10), 0);
	assert_int_equal(check(0, 11), 0);
	renew(1, number[0], 12);
	assert_int_not_equal(number[1], number[0]);
	assert_int_equal(check(0, 12), 0);
	renew(2, number[1], 13); /* shown again, it is not: the newest one stays */
	assert_int_equal(number[2], number[1]);
	assert_int_equal(check(0, 13), -ESTALE);
	assert_int_equal(check(1, 13), 0);
}

/* A client that says that it has one that nobody gave it voids its own. */
static void unknown_numbers_void(void **state)
{
	renew(0, 0, 0);
	renew(1, number[0], 300);
	renew(2, number[0] + 99, 301);
	assert_int_equal(check(0, 302), -ESTALE);
	assert_int_equal(check(1, 302), 0);
}

/* What an agent has passed on it knows again, as the server does. */
static void agents_note_them(void **state)
{
	struct soda_tokens server;

	renew(0, 0, 0);
	renew(1, number[0], 300);
	server = tokens;
	begin(NULL);
	soda_tokens_note(&tokens, 0, UINT32_MAX, 0, LIFE_MS, got[0]); /* shown */
	assert_int_equal(check(0, 10), 0);
	soda_tokens_note(&tokens, number[0], number[1], 300, LIFE_MS, got[1]);
	assert_int_equal(check(0, 310), 0);
	assert_int_equal(check(1, 310), 0);
	soda_tokens_note(&tokens, number[1], number[1], 310, LIFE_MS - 10, got[1]);
	assert_int_equal(check(0, 310), -ESTALE);
	assert_int_equal(check(1, 310), 0);
	assert_int_equal(check(1, 300 + LIFE_MS), -ESTALE);
	tokens = server;
	assert_int_equal(check(1, 310), 0);
}

static void answers_are_decoded(void **state)
{
	const struct soda_wire_token token = { 3, 4, { 5 }, { 6 } };
	uint8_t out[SODA_WIRE_TOKEN_ANSWER_BYTES];
	struct soda_wire_token back;

	soda_wire_put_token(out, &token);
	assert_int_equal(soda_wire_get_token(out, sizeof(out), &back), 0);
	assert_memory_equal(&back, &token, sizeof(token));
	assert_int_equal(soda_wire_get_token(out, sizeof(out) - 1, &back), -EPROTO);
	memset(out, 0, 4);
	assert_int_equal(soda_wire_get_token(out, sizeof(out), &back), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_mask_is_its_own),
		cmocka_unit_test_setup(guessed_ones_are_none, begin),
		cmocka_unit_test_setup(they_expire, begin),
		cmocka_unit_test_setup(they_are_renewed, begin),
		cmocka_unit_test_setup(a_lost_answer_costs_nothing, begin),
		cmocka_unit_test_setup(shown_ones_are_replaced, begin),
		cmocka_unit_test_setup(unknown_numbers_void, begin),
		cmocka_unit_test_setup(agents_note_them, begin),
		cmocka_unit_test(answers_are_decoded),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
