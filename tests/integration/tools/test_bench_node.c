/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench node` from outside, small: the form of its results, and what a shared store saves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(program_run(SODA,                                                         \
				     (const char *const[]){ "bench", "node", __VA_ARGS__, NULL },  \
				     &run),                                                        \
			 0)

#define MIB (1u << 20)

static bool shares; /* whether this kernel lets processes share a store */

/* Whether shared memory has minor faults here, which is what a store is mapped with. */
static bool kernel_shares(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	bool has = fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 &&
		   api.features & UFFD_FEATURE_MINOR_SHMEM;

	if (fd >= 0)
		close(fd);
	return has;
}

static void needs_shared_store(void)
{
	if (shares)
		return;
	print_message("SKIP: this kernel has no minor faults of shared memory (Linux 5.14)\n");
	skip();
}

static json_t *answers(size_t runs)
{
	json_t *out = answer();

	assert_int_equal(json_object_size(out), 3);
	assert_string_equal(json_string_value(json_object_get(out, "format")), "soda-bench-node");
	assert_int_equal(json_integer_value(json_object_get(out, "version")), 1);
	assert_int_equal(json_array_size(json_object_get(out, "runs")), runs);
	return out;
}

/* The i-th run, whose form is right. Runs come in pairs, own and store, round by round. */
static const json_t *run_at(const json_t *out, size_t i, const char *pattern, uint64_t processes)
{
	const json_t *in = json_array_get(json_object_get(out, "runs"), i);

	assert_string_equal(json_string_value(json_object_get(in, "mode")),
			    i % 2 ? "store" : "own");
	assert_string_equal(json_string_value(json_object_get(in, "pattern")), pattern);
	assert_int_equal(count(in, "processes"), processes);
	positive(in, "seconds");
	positive(in, "cpu_s");
	positive(in, "fault_us_p50");
	positive(in, "fault_us_p99");
	assert_true(json_real_value(json_object_get(in, "fault_us_p99")) >=
		    json_real_value(json_object_get(in, "fault_us_p50")));
	assert_true(count(in, "net_bytes") > 0);
	assert_true(count(in, "memory_bytes") > 0);
	assert_true(json_is_true(json_object_get(in, "verified")));
	return in;
}

/* What many processes want again and again is there for all of them, in the same memory. */
static void test_a_store_saves_traffic(void **state)
{
	needs_shared_store();
	RUN("zipf", "--processes", "3", "--size", "48M", "--buffer", "16M", "--rounds", "2",
	    "--json");
	json_t *out = answers(4);

	for (size_t i = 0; i < 4; i += 2) {
		const json_t *own = run_at(out, i, "zipf", 3);
		const json_t *store = run_at(out, i + 1, "zipf", 3);

		assert_int_equal(count(own, "round"), i / 2 + 1);
		assert_int_equal(count(own, "size"), 48 * MIB);
		assert_int_equal(count(own, "buffer"), 16 * MIB);
		assert_true(count(store, "net_bytes") < count(own, "net_bytes"));
	}
	json_decref(out);
}

/* A file that fits comes from the server once for all, and is in memory once. */
static void test_all_of_it_fits(void **state)
{
	needs_shared_store();
	RUN("seq", "--processes", "2", "--size", "16M", "--buffer", "24M", "--rounds", "1",
	    "--cold", "--touch", "page", "--json");
	json_t *out = answers(2);
	const json_t *own = run_at(out, 0, "seq", 2), *store = run_at(out, 1, "seq", 2);

	assert_true(count(own, "net_bytes") >= 2 * 16 * MIB);
	assert_int_equal(count(store, "net_bytes"), 16 * MIB);
	assert_true(count(store, "memory_bytes") >= 16 * MIB);
	json_decref(out);
}

/* A program's trace: each process reads what it loaded and what it stored. */
static void test_traces_are_read(void **state)
{
	char path[64], pattern[80];

	needs_shared_store();
	snprintf(path, sizeof(path), "%s/trace", tmp);
	snprintf(pattern, sizeof(pattern), "trace:%s", path);
	assert_int_equal(
		program_run(SODA,
			    (const char *const[]){ "bench", "fault", "rmw", "--size", "24M",
						   "--rounds", "1", "--record", path, NULL },
			    &run),
		0);
	assert_int_equal(run.status, 0);
	RUN(pattern, "--processes", "2", "--buffer", "2/3", "--rounds", "1", "--json");
	unlink(path);
	json_t *out = answers(2);

	assert_int_equal(count(run_at(out, 0, pattern, 2), "size"), 24 * MIB);
	assert_int_equal(count(run_at(out, 1, pattern, 2), "buffer"), 16 * MIB);
	json_decref(out);
}

static void test_table(void **state)
{
	needs_shared_store();
	RUN("seq,rand", "--processes", "2", "--size", "16M", "--buffer", "16M", "--rounds", "1");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "seq, 2 processes"));
	assert_non_null(strstr(run.out, "rand, 2 processes"));
	assert_non_null(strstr(run.out, "store / own"));
}

/* Processes with copies of their own are no result of a store. */
static void test_none_is_shared(void **state)
{
	if (shares)
		setenv("SODA_MECHANISMS", "copy", 1);
	RUN("seq", "--processes", "2", "--size", "16M", "--buffer", "16M", "--rounds", "1");
	unsetenv("SODA_MECHANISMS");
	refused(1, "0 of 2 processes share");
}

static void test_refusals(void **state)
{
	RUN("nonsense");
	refused(2, "no pattern 'nonsense'");
	RUN("seq,nonsense");
	refused(2, "no pattern 'nonsense'");
	RUN("shared");
	refused(2, "no pattern 'shared'");
	RUN("rmw");
	refused(2, "stores");
	RUN(",");
	refused(2, "names none");
	RUN("trace:/nowhere/at/all");
	refused(2, "No such file");
	RUN("--processes", "0");
	refused(2, "processes");
	RUN("--processes", "65");
	refused(2, "processes");
	RUN("--size", "65M", "--chunk", "2M", "--buffer", "1/1");
	refused(2, "multiple of --chunk");
	RUN("--chunk", "5000");
	refused(2, "power of two");
	RUN("--buffer", "2/1");
	refused(2, "--buffer");
	RUN("--size", "46M", "--buffer", "6M");
	refused(2, "at least 8 MiB");
	RUN("--size", "16M");
	refused(2, "at least 8 MiB");
	RUN("--chunk", "1M", "--size", "96M");
	refused(2, "at least 64 MiB");
	RUN("--man");
	assert_non_null(strstr(run.out, "soda\\-bench\\-node"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_store_saves_traffic), cmocka_unit_test(test_all_of_it_fits),
		cmocka_unit_test(test_traces_are_read),	      cmocka_unit_test(test_table),
		cmocka_unit_test(test_none_is_shared),	      cmocka_unit_test(test_refusals),
	};

	shares = kernel_shares();
	return cmocka_run_group_tests(tests, make_tmp, remove_tmp);
}
