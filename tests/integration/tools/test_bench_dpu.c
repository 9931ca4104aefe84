/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench dpu` from outside, small: the form of its results, and that what counters
 * say agrees with each other and with the interface.
 */
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
	assert_int_equal(program_run(SODA,                                                         \
				     (const char *const[]){ "bench", "dpu", __VA_ARGS__, NULL },   \
				     &run),                                                        \
			 0)

static json_t *answers(size_t runs)
{
	json_error_t why;
	json_t *out = json_loads(run.out, 0, &why), *list = json_object_get(out, "runs");

	if (run.status || json_array_size(list) != runs)
		print_error("status %d, said: %s\n%s\n", run.status, run.err, run.out);
	assert_int_equal(run.status, 0);
	assert_int_equal(json_array_size(list), runs);
	assert_int_equal(json_object_size(out), 3);
	assert_string_equal(json_string_value(json_object_get(out, "format")), "soda-bench-dpu");
	assert_int_equal(json_integer_value(json_object_get(out, "version")), 1);
	return out;
}

static json_t *run_at(const json_t *out, size_t i)
{
	return json_array_get(json_object_get(out, "runs"), i);
}

static void not_negative(const json_t *in, const char *key)
{
	const json_t *value = json_object_get(in, key);

	if (!json_is_real(value) || json_real_value(value) < 0)
		print_error("%s is missing or negative\n", key);
	assert_true(json_is_real(value) && json_real_value(value) >= 0);
}

static void null(const json_t *in, const char *key)
{
	if (!json_is_null(json_object_get(in, key)))
		print_error("%s is not null\n", key);
	assert_true(json_is_null(json_object_get(in, key)));
}

static void text(const json_t *in, const char *key, const char *expected)
{
	assert_string_equal(json_string_value(json_object_get(in, key)), expected);
}

/* Traffic by kind, which adds up. */
static const json_t *traffic(const json_t *in)
{
	const json_t *t = json_object_get(in, "traffic");

	assert_int_equal(count(t, "on_demand") + count(t, "prefetch") + count(t, "write_back") +
				 count(t, "preload"),
			 count(t, "total"));
	return t;
}

static void check_run(const json_t *in, const char *mode, const char *pattern)
{
	static const char *const rates[] = {
		"seconds",	"gb_per_s",	    "gb_per_s_min",
		"gb_per_s_max", "touched_gb_per_s", "cpu_s_per_gb_host"
	};
	bool agent = strcmp(mode, "memserver") != 0;

	text(in, "bench", "dpu");
	text(in, "mode", mode);
	text(in, "pattern", pattern);
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		positive(in, rates[i]);
	/* nothing, where all comes from the static cache */
	not_negative(in, "cpu_s_per_gb_server");
	not_negative(in, "spread");
	assert_true(count(in, "bytes_fetched") > 0);
	count(in, "late_hits");
	traffic(in);
	if (agent) {
		not_negative(in, "cpu_s_per_gb_agent");
		assert_true(json_is_real(json_object_get(in, "hit_rate")));
	} else {
		null(in, "cpu_s_per_gb_agent");
		null(in, "hit_rate");
		assert_int_equal(count(traffic(in), "on_demand"), count(in, "bytes_fetched"));
	}
}

static void test_memserver(void **state)
{
	RUN("seq", "--modes", "memserver", "--size", "8M", "--threads", "2", "--rounds", "2",
	    "--laps", "2", "--json");
	json_t *out = answers(1), *in = run_at(out, 0);

	check_run(in, "memserver", "seq");
	assert_int_equal(count(in, "threads"), 2);
	assert_int_equal(count(in, "processes"), 1);
	assert_int_equal(count(in, "size"), 8u << 20);
	assert_int_equal(count(in, "rounds"), 2);
	assert_int_equal(count(in, "laps"), 2);
	assert_int_equal(count(traffic(in), "write_back"), 0);
	/* Four scans, of which the buffer spares a third at most.  How much of what is fetched
	 * ahead is dropped unused and comes again depends on how threads are scheduled. */
	assert_true(count(in, "bytes_fetched") >= 4 * (8u << 20) / 2);
	null(in, "link");
	null(in, "link_bits_per_s");
	null(in, "interface_bytes");
	null(in, "dpu_cpu_pct");
	assert_true(json_is_false(json_object_get(in, "emulated")));
	json_decref(out);
}

static void test_processes_and_stores(void **state)
{
	RUN("rmw", "--modes", "memserver", "--size", "4M", "--processes", "3", "--rounds", "1",
	    "--json");
	json_t *out = answers(1), *in = run_at(out, 0);

	check_run(in, "memserver", "rmw");
	assert_int_equal(count(in, "processes"), 3);
	assert_true(count(traffic(in), "write_back") > 0);
	json_decref(out);
}

/* Three processes, one file, each reads all of it. */
static void test_shared(void **state)
{
	RUN("shared", "--modes", "memserver", "--size", "5000K", "--processes", "3", "--rounds",
	    "1", "--touch", "all", "--json");
	json_t *out = answers(1), *in = run_at(out, 0);

	check_run(in, "memserver", "shared");
	assert_true(count(in, "bytes_fetched") > 3 * 5000 * 1024 / 2);
	json_decref(out);
}

static void test_table(void **state)
{
	RUN("--modes", "memserver", "--size", "4M", "--rounds", "1");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "memserver"));
	assert_null(strstr(run.out, "emulated"));
}

static void test_refusals(void **state)
{
	RUN("nonsense");
	refused(2, "no pattern 'nonsense'");
	RUN("--modes", "memserver,turbo");
	refused(2, "no mode 'turbo'");
	RUN("--modes", "base,base");
	refused(2, "twice");
	RUN("rmw", "--modes", "static");
	refused(2, "static");
	RUN("--link", "fast");
	refused(2, "'fast' is not a rate");
	RUN("--chunk", "5000");
	refused(2, "power of two");
	RUN("--size", "64K", "--threads", "2");
	refused(2, "one chunk a thread");
	RUN("--buffer", "2/1");
	refused(2, "--buffer");
	RUN("trace:/nowhere/at/all");
	refused(2, "No such file");
	RUN("--man");
	assert_non_null(strstr(run.out, "soda\\-bench\\-dpu"));
}

/* An agent that is not there: said, and everything that ran is gone. */
static void test_no_agent(void **state)
{
	setenv("SODA_DPU_AGENT", "/nowhere/soda-dpu-agent", 1);
	RUN("--modes", "base", "--size", "4M");
	unsetenv("SODA_DPU_AGENT");
	refused(1, "/nowhere/soda-dpu-agent");
}

static bool privileged(void)
{
	if (geteuid() == 0)
		return true;
	RUN("--modes", "memserver", "--size", "4M", "--link", "1gbit");
	refused(1, "root");
	print_message("SKIP: --link needs root\n");
	return false;
}

static void test_link(void **state)
{
	if (!privileged())
		skip();
	RUN("rand", "--modes", "memserver", "--size", "16M", "--rounds", "1", "--link", "1gbit",
	    "--json");
	json_t *out = answers(1), *in = run_at(out, 0);
	const json_t *bytes = json_object_get(in, "interface_bytes");
	uint64_t payload = count(traffic(in), "total"), seen = count(bytes, "from_server");

	check_run(in, "memserver", "rand");
	text(in, "link", "1gbit");
	/* under load it may get little, but never more than the bucket gives */
	assert_true(json_real_value(json_object_get(in, "link_bits_per_s")) > 1e6);
	assert_true(json_real_value(json_object_get(in, "link_bits_per_s")) < 1.05e9);
	assert_true(json_is_true(json_object_get(in, "emulated")));
	/* three in a hundred, and what is on the way when the round begins and ends */
	assert_in_range(seen, payload - (1u << 20), payload * 103 / 100 + (1u << 20));
	assert_in_range(count(bytes, "to_server"), 1, payload / 10);
	/* the bucket lets no more through, but for its burst */
	assert_true((double)(seen - 65536) * 8 / json_real_value(json_object_get(in, "seconds")) <=
		    1.02e9);
	json_decref(out);
}

static void check_ratios(const json_t *in)
{
	positive(in, "seconds_vs_memserver");
	positive(in, "seconds_vs_base");
}

/* What an agent without caches asks of the server is what was asked of it, but at a round's edges.
 */
static void check_passed_through(const json_t *in)
{
	uint64_t fetched = count(in, "bytes_fetched"), asked = count(traffic(in), "on_demand");

	assert_in_range(asked, fetched - (2u << 20), fetched + (2u << 20));
	assert_int_equal(count(traffic(in), "prefetch"), 0);
	assert_int_equal(count(traffic(in), "preload"), 0);
}

static void test_forwarding_modes(void **state)
{
	static const char *const modes[] = { "memserver", "base", "agg", "async", "agg+async" };
	size_t n = sizeof(modes) / sizeof(modes[0]);

	RUN("rand", "--modes", "memserver,base,agg,async,agg+async", "--size", "8M", "--threads",
	    "2", "--rounds", "2", "--host-transport", "tcp", "--json");
	json_t *out = answers(n);

	for (size_t i = 0; i < n; i++) {
		const json_t *in = run_at(out, i);

		check_run(in, modes[i], "rand");
		check_ratios(in);
		check_passed_through(in);
		text(in, "host_transport", "tcp");
	}
	json_decref(out);
}

static void test_stores_through_agents(void **state)
{
	/* mode static is left out */
	RUN("rmw", "--size", "8M", "--rounds", "1", "--host-transport", "tcp", "--json");
	json_t *out = answers(6);

	for (size_t i = 0; i < 6; i++)
		assert_true(count(traffic(run_at(out, i)), "write_back") > 0);
	text(run_at(out, 5), "mode", "all");
	json_decref(out);
}

/* The hot tenth is loaded once, and all that is read of it comes from there. */
static void test_static_mode(void **state)
{
	RUN("hot", "--modes", "memserver,base,static,all", "--size", "10M", "--buffer", "1/5",
	    "--rounds", "1", "--laps", "3", "--host-transport", "tcp", "--json");
	json_t *out = answers(4);

	for (size_t i = 0; i < 4; i++) {
		const json_t *in = run_at(out, i);
		bool loads = i >= 2;

		assert_int_equal(count(traffic(in), "preload"), loads ? 16 * 65536 : 0);
	}
	assert_true(count(traffic(run_at(out, 2)), "on_demand") <
		    count(traffic(run_at(out, 1)), "on_demand"));
	json_decref(out);
}

/* A file that fits is fetched once, whoever reads it; one process's page buffer has no part in it.
 */
static void test_shared_cache(void **state)
{
	const uint64_t size = 8u << 20;

	RUN("shared", "--modes", "base,static,dynamic", "--processes", "3", "--threads", "1",
	    "--size", "8M", "--rounds", "1", "--cold", "--host-transport", "tcp", "--json");
	json_t *out = answers(3);
	uint64_t without = count(traffic(run_at(out, 0)), "total");

	assert_true(without >= 3 * size);
	assert_int_equal(count(traffic(run_at(out, 1)), "total"), size);
	assert_int_equal(count(traffic(run_at(out, 1)), "preload"), size);
	check_run(run_at(out, 2), "dynamic", "shared");
	json_decref(out);
}

/* By default processes and agent share memory. */
static void test_all_modes_over_shm(void **state)
{
	static const char *const modes[] = { "memserver", "base",    "agg", "async",
					     "static",	  "dynamic", "all" };

	RUN("zipf", "--size", "8M", "--threads", "2", "--rounds", "1", "--json");
	json_t *out = answers(7);

	for (size_t i = 0; i < 7; i++) {
		check_run(run_at(out, i), modes[i], "zipf");
		check_ratios(run_at(out, i));
		text(run_at(out, i), "host_transport", i ? "shm" : "tcp");
	}
	assert_int_equal(count(traffic(run_at(out, 4)), "preload"), 8u << 20);
	json_decref(out);
}

/* A trace has every chunk that came: an agent that could install chunks itself does not. */
static void test_trace_through_an_agent(void **state)
{
	char path[64];
	uint64_t record, fetched = 0;

	snprintf(path, sizeof(path), "%s/trace", tmp);
	setenv("SODA_TRACE", path, 1);
	RUN("rand", "--modes", "base", "--size", "4M", "--rounds", "1", "--json");
	unsetenv("SODA_TRACE");
	json_t *out = answers(1);
	uint64_t chunks = count(run_at(out, 0), "bytes_fetched") / 65536;
	FILE *in = fopen(path, "rb");

	assert_non_null(in);
	assert_int_equal(fseek(in, 64, SEEK_SET), 0);
	while (fread(&record, sizeof(record), 1, in) == 1)
		fetched += record >> 60 == 1;
	fclose(in);
	unlink(path);
	assert_true(chunks > 0);
	assert_in_range(fetched, chunks, 4 * 64); /* a warm pass and one measured, and some ahead */
	json_decref(out);
}

/* Over the capacity: said, nothing measured. */
static void test_static_too_large(void **state)
{
	RUN("hot", "--modes", "static", "--size", "32M", "--agent-cache", "2M", "--host-transport",
	    "tcp");
	refused(1, "static cache");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memserver),
		cmocka_unit_test(test_processes_and_stores),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_no_agent),
		cmocka_unit_test(test_forwarding_modes),
		cmocka_unit_test(test_stores_through_agents),
		cmocka_unit_test(test_static_mode),
		cmocka_unit_test(test_shared_cache),
		cmocka_unit_test(test_static_too_large),
		cmocka_unit_test(test_all_modes_over_shm),
		cmocka_unit_test(test_trace_through_an_agent),
		cmocka_unit_test(test_link),
	};

	return cmocka_run_group_tests(tests, make_tmp, remove_tmp);
}
