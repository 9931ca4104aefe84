/* SPDX-License-Identifier: BSD-3-Clause */
/* Each set of K pieces of a stripe gives the data, for all K and M; fewer than K give nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool/erasure.h"

enum { PIECE = 4096, MOST = SODA_ERASURE_PIECES_MAX };

static unsigned char whole[MOST * PIECE], part[MOST * PIECE];

static void make_stripe(uint32_t k)
{
	for (uint32_t i = 0; i < k * PIECE; i++)
		whole[i] = (unsigned char)(rand() >> 8);
	for (uint32_t j = 0; j < SODA_ERASURE_PARITY_MAX; j++)
		soda_erasure_encode(k, j, PIECE, whole, whole + (k + j) * PIECE);
}

/* Only the pieces in the mask are there. */
static void try_with(uint32_t k, uint32_t have)
{
	memset(part, 0xa5, sizeof(part));
	for (uint32_t i = 0; i < MOST; i++)
		if (have >> i & 1)
			memcpy(part + i * PIECE, whole + i * PIECE, PIECE);
	if ((uint32_t)__builtin_popcount(have) < k) {
		assert_false(soda_erasure_decode(k, have, PIECE, part));
		return;
	}
	assert_true(soda_erasure_decode(k, have, PIECE, part));
	assert_memory_equal(part, whole, k * PIECE);
}

static void test_all_sets(void **state)
{
	for (uint32_t k = 1; k <= SODA_ERASURE_DATA_MAX; k++) {
		make_stripe(k);
		for (uint32_t have = 0; have < 1u << (k + SODA_ERASURE_PARITY_MAX); have++)
			try_with(k, have);
	}
}

/* A piece of parity is of use only if it changes with each piece of data. */
static void test_parity_depends(void **state)
{
	unsigned char before[PIECE], after[PIECE];

	make_stripe(4);
	for (uint32_t j = 0; j < SODA_ERASURE_PARITY_MAX; j++)
		for (uint32_t i = 0; i < 4; i++) {
			soda_erasure_encode(4, j, PIECE, whole, before);
			whole[i * PIECE + 7] ^= 1;
			soda_erasure_encode(4, j, PIECE, whole, after);
			assert_memory_not_equal(before, after, PIECE);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_sets),
		cmocka_unit_test(test_parity_depends),
	};

	srand(1);
	soda_erasure_start();
	return cmocka_run_group_tests_name("erasure", tests, NULL, NULL);
}
