/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench heap` from outside, small: the form of its results, not the speed.  Given "run", also
 * what needs libsoda-run.so, which a build with a sanitizer has not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(                                                                          \
		program_run_within("tools/soda/soda",                                              \
				   (const char *const[]){ "bench", "heap", __VA_ARGS__, NULL },    \
				   120000, &run),                                                  \
		0)

static void test_alloc(void **state)
{
	RUN("alloc", "--sizes", "16,5000,1048576", "--threads", "1,3", "--time", "1ms", "--rounds",
	    "2", "--json");
	json_t *out = answer(), *rows = json_object_get(out, "alloc"), *row;
	size_t i;

	assert_int_equal(json_array_size(rows), 6);
	json_array_foreach(rows, i, row)
	{
		assert_int_equal(json_integer_value(json_object_get(row, "threads")),
				 i < 3 ? 1 : 3);
		positive(row, "ns");
		positive(row, "ns_jemalloc");
		positive(row, "ratio");
	}
	assert_null(json_object_get(out, "start"));
	json_decref(out);
	RUN("alloc", "--sizes", "64", "--threads", "1", "--time", "1ms", "--rounds", "1");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "jemalloc's"));
}

static void test_bad_options(void **state)
{
	RUN("nonsense");
	refused(2, "no part 'nonsense'");
	RUN("--sizes", "7");
	refused(2, "--sizes");
	RUN("--sizes", "16,");
	refused(2, "--sizes");
	RUN("--sizes", "2000000");
	refused(2, "--sizes");
	RUN("--threads", "0");
	refused(2, "--threads");
	RUN("--rounds", "0");
	refused(2, "rounds");
	RUN("--size", "4K");
	refused(2, "size: 4K");
}

static void test_run(void **state)
{
	RUN("start", "fit", "--size", "4M", "--rounds", "2", "--json");
	json_t *out = answer();

	assert_true(json_is_real(json_object_get(json_object_get(out, "start"), "ms_more")));
	positive(json_object_get(out, "start"), "ms");
	positive(json_object_get(out, "start"), "ms_plain");
	positive(json_object_get(out, "fit"), "seconds");
	positive(json_object_get(out, "fit"), "seconds_plain");
	positive(json_object_get(out, "fit"), "ratio");
	assert_null(json_object_get(out, "alloc"));
	json_decref(out);
	RUN("start", "fit", "--size", "4M", "--rounds", "1");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "ms more"));
	assert_non_null(strstr(run.out, "under soda run"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc), cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_run), /* last */
	};
	size_t n = sizeof(tests) / sizeof(tests[0]);

	return _cmocka_run_group_tests("bench_heap", tests,
				       argc > 1 && !strcmp(argv[1], "run") ? n : n - 1, NULL, NULL);
}
