/* SPDX-License-Identifier: BSD-3-Clause */
/* Which worker gets a connection, and when it ends one that is stuck. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/limits.h"
#include "transport/listen/data.h"
#include "transport/listen/server.h"

static unsigned load_of(const void *workers, unsigned i)
{
	return ((const unsigned *)workers)[i];
}

static void test_least_loaded(void **state)
{
	static const unsigned loads[] = { 3, 1, 2, 1 };

	assert_int_equal(soda_least_loaded(loads, 4, load_of), 1);
	assert_int_equal(soda_least_loaded(loads, 1, load_of), 0);
	assert_int_equal(soda_least_loaded(loads + 2, 2, load_of), 1);
}

/* Nothing of it goes on: it ends at one look more than there are in the time. */
static void assert_stuck(struct soda_stream_conn *c)
{
	for (int i = 0; i < SODA_STUCK_LOOKS; i++) {
		soda_stream_conn_look(c);
		assert_false(c->closing);
	}
	soda_stream_conn_look(c);
	assert_true(c->closing);
}

static void test_stuck(void **state)
{
	static const struct soda_service service = { .rejected = NULL };
	static struct soda_listener l = { .ops = &service };
	static struct soda_stream_conn half, untaken;

	half.peer.listener = untaken.peer.listener = &l;
	for (int i = 0; i < 10; i++) { /* WRITEs that come whole, one under way at each look */
		half.writing = i % 2;
		half.writes += i % 2;
		soda_stream_conn_look(&half);
	}
	for (int i = 0; i < 10; i++) { /* nothing to be taken */
		soda_stream_conn_look(&untaken);
		assert_false(half.closing || untaken.closing);
	}
	half.writing = true;
	half.writes++;
	assert_stuck(&half);
	untaken.tx_tail++;
	untaken.tx[0].ready = true;
	assert_stuck(&untaken);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_least_loaded),
		cmocka_unit_test(test_stuck),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
