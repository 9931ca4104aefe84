/* SPDX-License-Identifier: BSD-3-Clause */
/* Which worker gets a connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_least_loaded) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
