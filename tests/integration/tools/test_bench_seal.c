/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench seal` from outside, small: the form of its results, that the server of a sealed
 * object has none of its text, and that all blocks that are changed there are detected.
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
	assert_int_equal(program_run(SODA,                                                         \
				     (const char *const[]){ "bench", "seal", __VA_ARGS__, NULL },  \
				     &run),                                                        \
			 0)

enum { TAMPERED = 400 };

static void check_run(const json_t *in, const char *where, const char *transport,
		      const char *pattern)
{
	assert_string_equal(json_string_value(json_object_get(in, "where")), where);
	assert_string_equal(json_string_value(json_object_get(in, "transport")), transport);
	assert_string_equal(json_string_value(json_object_get(in, "pattern")), pattern);
	positive(in, "gb_per_s");
	positive(in, "ratio_gb_per_s");
	positive(in, "cpu_s_per_gb_client");
}

/* 0.6 % of the 16 MiB that are written, in whole pages. */
static void check_metadata(const json_t *none, const json_t *host)
{
	assert_int_equal(count(none, "metadata_bytes"), 0);
	assert_in_range(count(host, "metadata_bytes"), (16u << 20) / 1000 * 5,
			(16u << 20) / 1000 * 6 + 2 * 4096);
}

static void attack(const char *transport)
{
	json_t *out, *runs;

#ifdef __SANITIZE_ADDRESS__
	print_message("SKIP: AddressSanitizer maps terabytes, all of which would be read\n");
	skip();
#endif

	RUN("--transport", transport, "--size", "16M", "--rounds", "1", "--tampered", "400",
	    "--pattern", "rand,rmw", "--json");
	out = answer();
	assert_string_equal(json_string_value(json_object_get(out, "format")), "soda-bench-seal");
	runs = json_object_get(out, "runs");
	assert_int_equal(json_array_size(runs), 8);
	check_run(json_array_get(runs, 0), "none", transport, "rand");
	check_run(json_array_get(runs, 1), "host", transport, "rand");
	check_run(json_array_get(runs, 2), "agent", transport, "rand");
	check_run(json_array_get(runs, 3), "dpu", transport, "rand");
	positive(json_array_get(runs, 3), "ratio_cpu_s_per_gb_client");
	check_run(json_array_get(runs, 4), "none", transport, "rmw");
	check_run(json_array_get(runs, 5), "host", transport, "rmw");
	check_run(json_array_get(runs, 6), "agent", transport, "rmw");
	check_run(json_array_get(runs, 7), "dpu", transport, "rmw");
	check_metadata(json_array_get(runs, 4), json_array_get(runs, 5));
	assert_true(count(out, "plaintext_found_unsealed") > TAMPERED);
	assert_int_equal(count(out, "plaintext_found"), 0);
	assert_int_equal(count(out, "tampered"), TAMPERED);
	assert_int_equal(count(out, "detected"), TAMPERED);
	assert_int_equal(count(out, "served"), 0);
	assert_int_equal(count(out, "logged"), TAMPERED);
	json_decref(out);
}

static void test_tcp(void **state)
{
	attack("tcp");
}

static void test_shm(void **state)
{
	attack("shm");
}

static void test_refusals(void **state)
{
	RUN("--pattern", "trace:nowhere", "--json");
	refused(2, "trace");
	RUN("--tampered", "1");
	refused(2, "tampered");
	RUN("rand");
	refused(2, "rand");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("bench_seal", tests, NULL, NULL);
}
