/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench messages` from outside, small: the form of its results, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(                                                                          \
		program_run(SODA, (const char *const[]){ "bench", "messages", __VA_ARGS__, NULL }, \
			    &run),                                                                 \
		0)

#define NO_OTHER_SWEEPS                                                                            \
	"--inboxes", "none", "--packets", "none", "--slots", "none", "--transfers", "none",        \
		"--threads", "none", "--weak", "none"
#define NO_SWEEPS "--flushes", "none", NO_OTHER_SWEEPS

static const json_t *rows(const json_t *out, const char *key, size_t n)
{
	const json_t *list = json_object_get(out, key);

	assert_true(json_is_array(list));
	assert_int_equal(json_array_size(list), n);
	return list;
}

static json_t *answers(void)
{
	json_t *out = answer();

	assert_string_equal(json_string_value(json_object_get(out, "format")),
			    "soda-bench-messages");
	assert_int_equal(count(out, "version"), 1);
	return out;
}

/* What a build without an MPI does not know is null, all of it. */
static void beside(const json_t *row, bool mpi, const char *rate, const char *who,
		   const char *ratio)
{
	assert_true(json_is_string(json_object_get(row, who)) == mpi);
	if (mpi) {
		positive(row, rate);
		positive(row, ratio);
	} else {
		assert_true(json_is_null(json_object_get(row, rate)));
		assert_true(json_is_null(json_object_get(row, ratio)));
	}
}

static void rate_row(const json_t *out, size_t i, const char *transport, uint64_t agents,
		     uint64_t bytes)
{
	const json_t *row = json_array_get(json_object_get(out, "rates"), i);
	bool mpi = json_array_size(json_object_get(out, "mpis")) > 0;

	assert_string_equal(json_string_value(json_object_get(row, "transport")), transport);
	assert_int_equal(count(row, "bytes"), bytes);
	assert_int_equal(count(row, "ranks"), 2);
	assert_int_equal(count(row, "agents"), agents);
	positive(row, "messages_per_s");
	positive(row, "many_messages_per_s");
	assert_true(json_is_null(json_object_get(row, "many_ratio")) == !mpi);
	beside(row, mpi, "mpi_messages_per_s", "mpi", "ratio");
	beside(row, mpi, "gathered_messages_per_s", "gathered_mpi", "gathered_ratio");
	beside(row, mpi, "alltoallv_messages_per_s", "alltoallv_mpi", "alltoallv_ratio");
}

/* Each of a few rows has six runs over MPI beside it, where there are both. */
static void rates_of(const char *transport, const char *agents, const char *sizes, size_t n)
{
	json_t *out;

	RUN("--transports", transport, "--agents", agents, "--ranks", "2", "--sizes", sizes,
	    "--messages", "3000", "--slow", "0", "--rounds", "1", "--apps", "none", NO_SWEEPS,
	    "--json");
	out = answers();
	rows(out, "rates", n);
	rows(out, "apps", 0);
	rows(out, "sweeps", 0);
	rows(out, "slow", 0);
	for (size_t i = 0; i < n; i++)
		rate_row(out, i, transport, strtoull(agents, NULL, 10), i % 2 ? 1 << 20 : 8);
	json_decref(out);
}

static void test_rates(void **state)
{
	rates_of("shm", "1", "8,1M", 2);
	rates_of("shm", "2", "8", 1);
	rates_of("tcp", "2,7", "8", 1); /* seven agents for two ranks: left out */
	rates_of("tcp", "1", "8", 1);
}

static void test_sweeps(void **state)
{
	static const struct {
		const char *sweep;
		uint64_t value;
	} points[] = { { "flush_us", 100 },
		       { "flush_us", 1000 },
		       { "inbox_bytes", 128 << 10 },
		       { "packet_bytes", 4 << 10 },
		       { "slots", 1 },
		       { "transfer_bytes", 1 << 10 },
		       { "threads", 1 },
		       { "weak_agents", 1 },
		       { "weak_agents", 3 } };
	const size_t n = sizeof(points) / sizeof(points[0]);
	const json_t *list;
	json_t *out;

	RUN("--ranks", "3", "--sizes", "none", "--messages", "2000", "--slow", "0", "--rounds", "1",
	    "--apps", "none", "--flushes", "100,1000", "--inboxes", "128K", "--packets", "4K",
	    "--slots", "1", "--transfers", "1K", "--threads", "1", "--weak", "1,3", "--json");
	out = answers();
	rows(out, "rates", 0);
	list = rows(out, "sweeps", n);
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(list, i);

		assert_string_equal(json_string_value(json_object_get(row, "sweep")),
				    points[i].sweep);
		assert_int_equal(count(row, "value"), points[i].value);
		positive(row, "messages_per_s");
		positive(row, "cpu_ns");
	}
	json_decref(out);
}

/* A message of a slow sender waits for its time, and then travels. */
static void test_slow(void **state)
{
	const json_t *list;
	json_t *out;

	RUN("--ranks", "2", "--agents", "1,2", "--sizes", "none", "--slow", "10", "--apps", "none",
	    NO_SWEEPS, "--json");
	out = answers();
	list = rows(out, "slow", 4);
	for (size_t i = 0; i < 4; i++) {
		const json_t *row = json_array_get(list, i);
		double p50 = json_real_value(json_object_get(row, "p50_us"));
		double p99 = json_real_value(json_object_get(row, "p99_us"));

		assert_string_equal(json_string_value(json_object_get(row, "transport")),
				    i < 2 ? "shm" : "tcp");
		assert_int_equal(count(row, "agents"), 1 + i % 2);
		assert_int_equal(count(row, "messages"), 10);
		assert_true(count(row, "flush_us") && p50 > 0 && p99 >= p50);
		assert_true(json_real_value(json_object_get(row, "max_us")) >= p99);
	}
	json_decref(out);
}

/* In all places of the agent, where there are two processors; one that is not built is left out.
 */
static void test_apps(void **state)
{
	const json_t *list;
	json_t *out;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		print_message("SKIP: one processor: an agent cannot have one of its own\n");
		skip();
	}
	RUN("--ranks", "2", "--sizes", "none", "--slow", "0", "--rounds", "1", "--apps",
	    "histogram,absent", NO_SWEEPS, "--json");
	assert_non_null(strstr(run.err, "absent: there is no such example"));
	out = answers();
	list = rows(out, "apps", 3);
	for (size_t i = 0; i < 3; i++) {
		const json_t *row = json_array_get(list, i);

		assert_string_equal(json_string_value(json_object_get(row, "app")), "histogram");
		assert_string_equal(json_string_value(json_object_get(row, "mode")),
				    ((const char *const[]){ "shared", "own", "process" })[i]);
		assert_int_equal(count(row, "ranks"), 2);
		positive(row, "seconds");
		assert_true(count(row, "messages") >= 2000000);
		assert_true(count(row, "bytes") >= 8 * 2000000);
		positive(row, "mc_ratio");
		assert_true(json_is_true(json_object_get(row, "verified")));
	}
	json_decref(out);
}

static void test_table(void **state)
{
	RUN("--transports", "tcp", "--ranks", "1", "--sizes", "64", "--messages", "1000", "--slow",
	    "3", "--rounds", "1", "--apps", "none", NO_OTHER_SWEEPS, "--flushes", "100");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "slow sender"));
	assert_non_null(strstr(run.out, "Alltoallv"));
	assert_non_null(strstr(run.out, "flush_us"));
}

static void test_refusals(void **state)
{
	RUN("--transports", "verbs");
	refused(2, "--transports");
	RUN("--ranks", "65");
	refused(2, "--ranks");
	RUN("--ranks", "none");
	refused(2, "--ranks");
	RUN("--agents", "9");
	refused(2, "--agents");
	RUN("--sizes", "4");
	refused(2, "--sizes");
	RUN("--sizes", "2M");
	refused(2, "--sizes");
	RUN("--flushes", "0");
	refused(2, "--flushes");
	RUN("--inboxes", "64K");
	refused(2, "--inboxes");
	RUN("--packets", "61K");
	refused(2, "--packets");
	RUN("--slots", "5");
	refused(2, "--slots");
	RUN("--transfers", "61K");
	refused(2, "--transfers");
	RUN("--threads", "0");
	refused(2, "--threads");
	RUN("--weak", "9");
	refused(2, "--weak");
	RUN("--apps", "../x");
	refused(2, "--apps");
	RUN("word");
	assert_int_equal(run.status, 2);
	RUN("--man");
	assert_non_null(strstr(run.out, "soda\\-bench\\-messages"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates), cmocka_unit_test(test_sweeps),
		cmocka_unit_test(test_slow),  cmocka_unit_test(test_apps),
		cmocka_unit_test(test_table), cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, make_tmp, remove_tmp);
}
