/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench move` from outside, small: the form of its results, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(program_run(SODA,                                                         \
				     (const char *const[]){ "bench", "move", __VA_ARGS__, NULL },  \
				     &run),                                                        \
			 0)

static const char *text(const json_t *in, const char *key)
{
	const char *value = json_string_value(json_object_get(in, key));

	assert_non_null(value);
	return value;
}

/* By tcp the library sends; by shm memory is shared, or the agent reads, where the kernel lets it.
 */
static bool own; /* --memory own */

static void whose(const json_t *row, const char *transport)
{
	const char *way = text(row, "way");

	assert_string_equal(text(row, "transport"), transport);
	if (strcmp(transport, "tcp") == 0)
		assert_string_equal(way, "stream");
	else
		assert_true(!strcmp(way, own ? "reads" : "shared") ||
			    (own && !strcmp(way, "stream")));
}

static void host_row(const json_t *out, size_t i, const char *transport, uint64_t bytes)
{
	const json_t *row = json_array_get(json_object_get(out, "host"), i);

	whose(row, transport);
	assert_int_equal(count(row, "bytes"), bytes);
	positive(row, "median_us");
	positive(row, "max_us");
	positive(row, "cpu_us");
	assert_true(json_real_value(json_object_get(row, "max_us")) >=
		    json_real_value(json_object_get(row, "median_us")));
}

static void rate_row(const json_t *out, size_t i, const char *transport, uint64_t bytes,
		     uint64_t depth)
{
	const json_t *row = json_array_get(json_object_get(out, "throughput"), i);

	whose(row, transport);
	assert_int_equal(count(row, "bytes"), bytes);
	assert_int_equal(count(row, "depth"), depth);
	positive(row, "gb_per_s");
	positive(row, "plain_gb_per_s");
	positive(row, "ratio");
	assert_string_equal(text(row, "plain"),
			    !strcmp(transport, "shm") ? "process_vm_readv" : "WRITE");
}

static void correlation(const json_t *in, const char *key)
{
	const json_t *value = json_object_get(in, key);

	assert_true(json_is_real(value));
	assert_in_range((uint64_t)(json_real_value(value) * 1000 + 1001), 0, 2002);
}

static json_t *answers(size_t host, size_t throughput)
{
	json_t *out = answer();

	assert_string_equal(text(out, "format"), "soda-bench-move");
	assert_int_equal(count(out, "version"), 1);
	assert_int_equal(json_array_size(json_object_get(out, "host")), host);
	assert_int_equal(json_array_size(json_object_get(out, "throughput")), throughput);
	return out;
}

static void test_both_transports(void **state)
{
	const json_t *all;
	json_t *out;

	RUN("--host-sizes", "100,64K,1M", "--calls", "4", "--sizes", "8K,256K", "--depths", "1,3",
	    "--time", "20ms", "--rounds", "2", "--arrow-sizes", "none", "--json");
	out = answers(6, 8);
	all = json_object_get(out, "host_correlations");
	assert_int_equal(count(out, "calls"), 4);
	assert_int_equal(count(out, "pieces"), 1);
	correlation(out, "host_correlation");
	for (size_t t = 0; t < 2; t++) {
		const char *transport = t ? "tcp" : "shm";

		host_row(out, 3 * t, transport, 100);
		host_row(out, 3 * t + 1, transport, 64 << 10);
		host_row(out, 3 * t + 2, transport, 1 << 20);
		correlation(json_object_get(all, transport), "size");
		correlation(json_object_get(all, transport), "log2_size");
		for (size_t i = 0; i < 4; i++)
			rate_row(out, 4 * t + i, transport, i < 2 ? 8 << 10 : 256 << 10,
				 i % 2 ? 3 : 1);
	}
	json_decref(out);
}

/* Many pieces: what arrives is compared with what was handed over. */
static void test_pieces(void **state)
{
	json_t *out;

	own = true;
	RUN("--memory", "own", "--transports", "shm", "--host-sizes", "10000", "--calls", "2",
	    "--sizes", "1M", "--depths", "64", "--pieces", "1000", "--time", "20ms", "--rounds",
	    "1", "--arrow-sizes", "none", "--json");
	out = answers(1, 1);
	assert_int_equal(count(out, "pieces"), 1000);
	host_row(out, 0, "shm", 10000);
	rate_row(out, 0, "shm", 1 << 20, 64);
	/* one size: nothing to correlate with */
	own = false;
	assert_true(json_is_null(json_object_get(out, "host_correlation")));
	json_decref(out);
}

/* What each strategy places is compared with what was handed over; uneven columns are cut. */
static void test_arrow(void **state)
{
	static const char *const strategies[] = { "stream", "file", "structs", "host", "agent" };
	const json_t *rows;
	json_t *out;

	RUN("--host-sizes", "none", "--sizes", "none", "--arrow-sizes", "8K,256K", "--columns",
	    "1,3", "--time", "5ms", "--rounds", "1", "--json");
	out = answers(0, 0);
	rows = json_object_get(out, "arrow");
	assert_int_equal(json_array_size(rows), 2 * 2 * 2 * 5);
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);
		uint64_t columns = i / 5 % 2 ? 3 : 1, bytes = i / 10 % 2 ? 256 << 10 : 8 << 10;

		whose(row, i < 20 ? "shm" : "tcp");
		assert_string_equal(text(row, "strategy"), strategies[i % 5]);
		assert_int_equal(count(row, "columns"), columns);
		assert_int_equal(count(row, "bytes"), bytes / (8 * columns) * 8 * columns);
		positive(row, "host_us");
		positive(row, "gb_per_s");
		positive(row, "plain_gb_per_s");
		positive(row, "ratio");
		positive(row, "agent_cpu_s_per_gb");
	}
	json_decref(out);
}

static void test_one_part_only(void **state)
{
	json_t *out;

	RUN("--transports", "tcp", "--host-sizes", "none", "--sizes", "4K", "--depths", "2",
	    "--arrow-sizes", "none", "--time", "10ms", "--rounds", "1", "--json");
	out = answers(0, 1);
	rate_row(out, 0, "tcp", 4096, 2);
	json_decref(out);
	RUN("--transports", "shm", "--host-sizes", "1,4096", "--calls", "3", "--sizes", "none",
	    "--arrow-sizes", "none", "--json");
	out = answers(2, 0);
	host_row(out, 0, "shm", 1);
	json_decref(out);
}

static void test_table(void **state)
{
	RUN("--transports", "shm", "--host-sizes", "128,64K", "--calls", "3", "--sizes", "128K",
	    "--depths", "1", "--arrow-sizes", "64K", "--columns", "3", "--time", "10ms", "--rounds",
	    "1");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "soda_move() by shm"));
	assert_non_null(strstr(run.out, "correlation of the time"));
	assert_non_null(strstr(run.out, "plain GB/s"));
	assert_non_null(strstr(run.out, "128 KiB"));
	assert_non_null(strstr(run.out, "agent CPU s/GB"));
	assert_non_null(strstr(run.out, "structs"));
}

static void test_refusals(void **state)
{
	RUN("--transports", "verbs"); /* without --device */
	refused(2, "--device");
	RUN("--transports", "shm,pigeon");
	refused(2, "--transports");
	RUN("--transports", ",");
	refused(2, "--transports");
	RUN("--sizes", "5000");
	refused(2, "whole pages");
	RUN("--sizes", "0");
	refused(2, "--sizes");
	RUN("--host-sizes", "1,x");
	refused(2, "--host-sizes");
	RUN("--host-sizes", "65G");
	refused(2, "--host-sizes");
	RUN("--depths", "65");
	refused(2, "--depths");
	RUN("--depths", "4x");
	refused(2, "--depths");
	RUN("--pieces", "1025");
	refused(2, "pieces");
	RUN("--arrow-sizes", "1000");
	refused(2, "whole KiB");
	RUN("--columns", "129");
	refused(2, "--columns");
	RUN("--columns", "0");
	refused(2, "--columns");
	RUN("--host-sizes", "none", "--sizes", "none", "--arrow-sizes", "none");
	refused(2, "nothing to measure");
	RUN("word");
	assert_int_equal(run.status, 2);
	RUN("--man");
	assert_non_null(strstr(run.out, "soda\\-bench\\-move"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_transports), cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_one_part_only),	cmocka_unit_test(test_table),
		cmocka_unit_test(test_refusals),	cmocka_unit_test(test_arrow),
	};

	return cmocka_run_group_tests(tests, make_tmp, remove_tmp);
}
