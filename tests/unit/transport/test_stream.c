/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces of memory that one system call sends or fills. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "base/iov.h"
#include "transport/stream/stream.h"

static uint8_t memory[256];

static void assert_piece(const struct iovec *v, size_t at, size_t bytes)
{
	assert_ptr_equal(v->iov_base, memory + at);
	assert_int_equal(v->iov_len, bytes);
}

/* What has gone already is left out, also where that ends inside of a piece or at its end. */
static void test_skipped(void **state)
{
	struct iovec v[4];
	size_t skip = 30;
	int n = soda_iov_add(v, 0, memory, 20, &skip);

	assert_int_equal(n, 0);
	assert_int_equal(skip, 10);
	n = soda_iov_add(v, n, memory + 100, 10, &skip);
	assert_int_equal(n, 0);
	skip = 4;
	n = soda_iov_add(v, n, memory + 200, 10, &skip);
	assert_int_equal(n, 1);
	assert_int_equal(skip, 0);
	assert_piece(&v[0], 204, 6);
}

static void test_neighbours(void **state)
{
	struct iovec v[4];
	size_t skip = 0;
	int n = soda_iov_add(v, 0, memory, 16, &skip);

	n = soda_iov_add(v, n, memory + 16, 16, &skip);
	assert_int_equal(n, 1);
	assert_piece(&v[0], 0, 32);
	n = soda_iov_add(v, n, memory + 33, 16, &skip);
	assert_int_equal(n, 2);
	assert_piece(&v[1], 33, 16);
	assert_int_equal(soda_iov_add(v, n, NULL, 0, &skip), 2); /* an answer without data */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_skipped),
		cmocka_unit_test(test_neighbours),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
