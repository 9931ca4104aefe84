/* SPDX-License-Identifier: BSD-3-Clause */
/* Places that tenants share: what is kept for each, and who gets the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/shares.h"

static struct soda_shares shares;

static bool take(uint32_t total, uint32_t number, uint32_t of)
{
	return soda_shares_room(&shares, total, (struct soda_holder){ number, of }, 1, 0) &&
	       !soda_shares_take(&shares, number, 1);
}

static uint32_t take_all(uint32_t total, uint32_t number, uint32_t of)
{
	uint32_t n = 0;

	while (take(total, number, of))
		n++;
	return n;
}

static void free_all(void)
{
	soda_shares_free(&shares);
	assert_int_equal(shares.all, 0);
}

/* Half of all places, in equal parts; one for each as long as there is one for each. */
static void check_kept(void **state)
{
	assert_int_equal(soda_shares_kept(1024, 2), 256);
	assert_int_equal(soda_shares_kept(1024, 100), 5);
	assert_int_equal(soda_shares_kept(1024, 512), 1);
	assert_int_equal(soda_shares_kept(1024, 1024), 1);
	assert_int_equal(soda_shares_kept(1024, 1025), 0);
	assert_int_equal(soda_shares_kept(1024, 0), 0);
	assert_int_equal(soda_shares_kept(UINT32_MAX, UINT32_MAX), 1);
}

/* The first tenant takes what it gets: each of the others still has its part. Promise S4. */
static void check_greedy(void **state)
{
	for (uint32_t of = 1; of <= 16; of++) {
		uint32_t kept = soda_shares_kept(16, of);

		assert_int_equal(take_all(16, 1, of), 16 - kept * (of - 1));
		for (uint32_t i = 2; i <= of; i++)
			assert_int_equal(take_all(16, i, of), kept);
		assert_int_equal(shares.all, 16);
		/* what one gives back is its own again, and no other's */
		soda_shares_put(&shares, of, 1);
		for (uint32_t i = 1; i < of; i++)
			assert_false(take(16, i, of));
		assert_true(take(16, of, of));
		free_all();
	}
}

/* Nobody's places, and those of more tenants than there are places: who comes first. */
static void check_nothing_kept(void **state)
{
	assert_int_equal(take_all(16, 0, 0), 16);
	free_all();
	assert_int_equal(take_all(4, 1, 5), 4);
	free_all();
}

/* Those that are left back are not for who has all that is kept for it. */
static void check_left_back(void **state)
{
	const struct soda_holder one = { 1, 2 }, nobody = { 0, 0 };

	for (int i = 0; i < 14; i++)
		assert_int_equal(soda_shares_take(&shares, 0, 1), 0);
	assert_false(soda_shares_room(&shares, 16, nobody, 1, 2));
	assert_true(soda_shares_room(&shares, 16, nobody, 1, 1));
	assert_true(soda_shares_room(&shares, 16, one, 1, 2));
	free_all();
}

/* Tenants come and go while places are taken: nothing underflows, and what is kept is kept. */
static void check_others_come(void **state)
{
	assert_int_equal(take_all(16, 1, 1), 16);
	soda_shares_put(&shares, 1, 1);
	/* the second is owed what the first has; the first gets no more until that is there */
	assert_false(take(16, 1, 2));
	assert_true(soda_shares_owed(&shares, 16, (struct soda_holder){ 2, 2 }));
	assert_true(take(16, 2, 2));
	assert_false(take(16, 2, 2));
	for (int i = 0; i < 3; i++)
		soda_shares_put(&shares, 1, 1);
	assert_false(take(16, 1, 3));
	assert_true(take(16, 3, 3));
	/* the second is removed, and still has its place for a while */
	assert_int_equal(take_all(16, 1, 1), 2);
	assert_int_equal(soda_shares_of(&shares, 1), 14);
	assert_int_equal(soda_shares_of(&shares, 1000), 0);
	free_all();
}

/* There is room for as much as is said to be left, and for no more. */
static void check_left(void **state)
{
	enum { TOTAL = 64, TENANTS = 4 };
	uint32_t seed = 1;

	for (int i = 0; i < 2000; i++) {
		struct soda_holder holder = { seed >> 8 & 7, 1 + (seed >> 16) % TENANTS };
		uint64_t left = soda_shares_left(&shares, TOTAL, holder);

		for (uint64_t n = 1; n <= TOTAL + 1; n++)
			assert_int_equal(soda_shares_room(&shares, TOTAL, holder, n, 0), n <= left);
		if (left)
			soda_shares_take(&shares, holder.number, 1 + (seed >> 24) % left);
		else
			free_all();
		seed = seed * 1664525 + 1013904223;
	}
	free_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_kept),	      cmocka_unit_test(check_greedy),
		cmocka_unit_test(check_nothing_kept), cmocka_unit_test(check_left_back),
		cmocka_unit_test(check_others_come),  cmocka_unit_test(check_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
