/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench pool` from outside, small: the form of its results, a server killed, wrong usage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(program_run(SODA,                                                         \
				     (const char *const[]){ "bench", "pool", __VA_ARGS__, NULL },  \
				     &run),                                                        \
			 0)
#define SMALL "--json", "--size", "24M", "--time", "200ms", "--rounds", "1", "--servers", "3"

/* The one run, whose form is right. */
static const json_t *only_run(const json_t *out)
{
	const json_t *in = json_array_get(json_object_get(out, "runs"), 0);

	assert_string_equal(json_string_value(json_object_get(out, "format")), "soda-bench-pool");
	assert_int_equal(json_array_size(json_object_get(out, "runs")), 1);
	assert_int_equal(count(in, "servers"), 3);
	positive(in, "gb_per_s");
	positive(in, "ratio_gb_per_s");
	positive(in, "ratio_cpu");
	positive(in, "stall_ms_max");
	assert_true(json_real_value(json_object_get(in, "wrong_bytes")) == 0);
	assert_true(json_real_value(json_object_get(in, "lost_bytes")) == 0);
	return in;
}

static void test_killed(void **state)
{
	const json_t *in;
	double memory;
	json_t *out;

	RUN(SMALL, "--redundancy", "mirror:2", "--pattern", "rmw", "--kill", "1");
	out = answer();
	in = only_run(out);
	memory = json_real_value(json_object_get(in, "memory_overhead"));
	assert_true(memory > 1.9 && memory < 3);
	positive(in, "rebuild_s");
	positive(in, "rebuild_bytes");
	positive(in, "host_bytes_per_dirty_byte");
	json_decref(out);
}

/* What the program sends an agent by that transport, for each byte that it wrote. */
static double sent_to_agent(const char *transport, const char *redundancy)
{
	const json_t *in;
	json_t *out;
	double sent;

	RUN(SMALL, "--redundancy", redundancy, "--pattern", "rmw", "--agent", "--host-transport",
	    transport);
	out = answer();
	in = only_run(out);
	assert_true(json_is_true(json_object_get(in, "agent")));
	assert_string_equal(json_string_value(json_object_get(in, "host_transport")), transport);
	positive(in, "host_bytes_per_dirty_byte");
	sent = json_real_value(json_object_get(in, "host_bytes_per_dirty_byte"));
	json_decref(out);
	return sent;
}

/* Through an agent, to which the program sends what it stores once; without one it is twice. */
static void test_agent(void **state)
{
	assert_true(sent_to_agent("tcp", "mirror:2") < 1.3);
	assert_true(sent_to_agent("shm", "mirror:2") < 1.3);
}

#ifdef SODA_HAVE_ISAL
static void test_coded(void **state)
{
	const json_t *in;
	double memory;
	json_t *out;

	RUN("--json", "--size", "24M", "--time", "200ms", "--rounds", "1", "--servers", "3",
	    "--redundancy", "ec:2+1", "--pattern", "rmw", "--kill", "1");
	out = answer();
	in = only_run(out);
	memory = json_real_value(json_object_get(in, "memory_overhead"));
	assert_true(memory > 1.4 && memory < 2);
	positive(in, "rebuild_bytes");
	json_decref(out);
}

/* A chunk travels once, and no parity does; without an agent it is 1.5. */
static void test_coded_by_the_agent(void **state)
{
	assert_true(sent_to_agent("tcp", "ec:2+1") < 1.25);
	assert_true(sent_to_agent("shm", "ec:2+1") < 1.25);
}
#endif

/* One that is late, and one that pauses, beside others that compute. */
static void test_slow(void **state)
{
	const json_t *in;
	json_t *out;

	RUN(SMALL, "--redundancy", "mirror:2", "--pause", "1", "--delay", "20", "--busy", "2");
	out = answer();
	in = only_run(out);
	positive(in, "p99_ms");
	assert_int_equal(json_integer_value(json_object_get(in, "paused")), 1);
	assert_int_equal(json_integer_value(json_object_get(in, "delay_ms")), 20);
	assert_true(json_is_number(json_object_get(in, "expelled")));
	json_decref(out);
}

/* Each server behind a link of its own. */
static void test_links(void **state)
{
	json_t *out;

	RUN("--redundancy", "mirror:2", "--link", "1gbit", "--kill", "1");
	refused(2, "--link and --kill");
	if (geteuid() || system("tc -V >/dev/null 2>&1")) {
		printf("SKIP: links need root and tc (iproute2)\n");
		skip();
	}
	RUN(SMALL, "--pattern", "seq", "--link", "500mbit");
	out = answer();
	positive(only_run(out), "gb_per_s");
	json_decref(out);
}

static void test_without_redundancy(void **state)
{
	const json_t *in;
	double memory;
	json_t *out;

	RUN(SMALL);
	out = answer();
	in = only_run(out);
	memory = json_real_value(json_object_get(in, "memory_overhead"));
	assert_true(memory > 0.9 && memory < 2);
	json_decref(out);
}

static void test_refused(void **state)
{
	RUN("--host-transport", "shm");
	refused(2, "needs --agent");
	RUN("--kill", "1");
	refused(2, "--redundancy");
	RUN("--redundancy", "mirror:2", "--servers", "1");
	refused(2, "2 servers or more");
	RUN("--redundancy", "ec:4+2", "--servers", "5");
	refused(2, "6 servers or more");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_agent),
#ifdef SODA_HAVE_ISAL
		cmocka_unit_test(test_coded),
		cmocka_unit_test(test_coded_by_the_agent),
#endif
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_without_redundancy),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("bench pool", tests, NULL, NULL);
}
