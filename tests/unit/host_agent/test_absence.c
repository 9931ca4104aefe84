/* SPDX-License-Identifier: BSD-3-Clause */
/* When the copies of a server that is away are given up, and how long its attempts may take. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/limits.h"
#include "host_agent/pool/absence.h"

enum { START_MS = 100000, SOON_MS = SODA_COPIES_CONNECT_MS, MOST_MS = SODA_CONNECT_MS };

static struct soda_absence a;
static int connect_ms;

static uint64_t at(int ms)
{
	return (START_MS + (uint64_t)ms) * SODA_MS_NS;
}

/* It is away from time 0 on, and has answered so long before. */
static void begin(int heard_ago_ms)
{
	soda_absence_begin(&a, at(0), at(-heard_ago_ms));
	connect_ms = SOON_MS;
}

static void look(bool all_are_away, int ms)
{
	soda_absence_look(&a, all_are_away, at(ms));
}

static void attempted(int err, bool others, int ms)
{
	connect_ms = soda_absence_attempted(&a, err, others, at(ms), connect_ms, SOON_MS, MOST_MS);
}

static bool is_over(int ms)
{
	return soda_absence_is_over(&a, at(ms));
}

/* It was silent for as long as it may be: one attempt is enough. */
static void test_silent(void **state)
{
	begin(SODA_SILENT_MS);
	assert_true(soda_absence_was_silent(&a));
	assert_int_equal(soda_absence_others_since(&a), at(-SODA_SILENT_MS));
	look(false, 0);
	assert_false(is_over(SODA_COPIES_AWAY_MS));
	attempted(-ETIMEDOUT, true, SOON_MS);
	assert_true(is_over(SOON_MS));
	assert_int_equal(connect_ms, SOON_MS);
}

/* Nobody listens there: it has ended. */
static void test_ended(void **state)
{
	begin(50);
	assert_false(soda_absence_was_silent(&a));
	assert_int_equal(soda_absence_others_since(&a), at(0));
	look(false, 0);
	attempted(-ECONNREFUSED, false, 1);
	assert_false(is_over(SODA_COPIES_AWAY_MS)); /* it may be the agent that has ended */
	look(false, 60);
	attempted(-ECONNREFUSED, true, 60);
	assert_false(is_over(60));
	assert_true(is_over(SODA_COPIES_AWAY_MS));
}

/* It has just answered: that an attempt was late says little, and the next one gets more time. */
static void test_just_answered(void **state)
{
	const int silent_ms = SODA_SILENT_MS - 50;

	begin(50);
	look(false, 0);
	attempted(-ETIMEDOUT, true, SOON_MS);
	assert_false(is_over(SOON_MS));
	assert_int_equal(connect_ms, 2 * SOON_MS);
	look(false, SOON_MS);
	attempted(-ETIMEDOUT, true, 3 * SOON_MS);
	assert_false(is_over(silent_ms - 1));
	assert_int_equal(connect_ms, silent_ms - 3 * SOON_MS); /* the time that is left */
	attempted(-ETIMEDOUT, true, silent_ms - 10);
	assert_int_equal(connect_ms, SOON_MS);
	assert_true(is_over(silent_ms));
}

/* Another one is back since this attempt began, with which all were away: it does not count. */
static void test_all_away(void **state)
{
	begin(50);
	look(true, 0);
	attempted(-ETIMEDOUT, false, 5000);
	assert_false(is_over(5000));
	assert_true(soda_absence_look(&a, false, at(5001)));
	assert_false(is_over(5001 + SODA_COPIES_RETURN_MS));
	attempted(-ECONNREFUSED, true, 5002);
	assert_false(is_over(5000 + SODA_COPIES_RETURN_MS));
	assert_true(is_over(5001 + SODA_COPIES_RETURN_MS));
	assert_false(soda_absence_look(&a, false, at(9000)));
}

/* The agent in front of all of them starts anew: until another one has answered nothing counts. */
static void test_agent_starts_anew(void **state)
{
	begin(20);
	for (int ms = 0; ms < 400; ms += 40) {
		look(false, ms);
		attempted(-ECONNREFUSED, false, ms);
		assert_false(is_over(ms + 39));
	}
	attempted(-ECONNREFUSED, true, 400);
	assert_true(is_over(400));
}

/* Slow servers, all of which are away: attempts get more time until one succeeds. */
static void test_slow(void **state)
{
	begin(50);
	for (int i = 0; i < 10; i++) {
		look(true, i);
		attempted(-ETIMEDOUT, false, i);
	}
	assert_int_equal(connect_ms, MOST_MS);
	look(false, 20); /* and keep it when one of them is back */
	attempted(-ETIMEDOUT, true, 30);
	assert_true(connect_ms > SODA_COPIES_RETURN_MS / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_just_answered),
		cmocka_unit_test(test_all_away),
		cmocka_unit_test(test_agent_starts_anew),
		cmocka_unit_test(test_slow),
	};

	return cmocka_run_group_tests_name("absence", tests, NULL, NULL);
}
