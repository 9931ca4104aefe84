/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda_convey.h: its contract, PE by PE (convey_victim.c), and the programs of examples/convey/, at
 * several numbers of PEs, with one agent and with two, and with routing in the PEs' processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "lib/proc.h"

static struct program p;

/* soda msg run -n PES [OPTION [VALUE]] -- PROGRAM ARGUMENT. */
static void run(const char *pes, const char *option, const char *value, const char *program,
		const char *argument)
{
	const char *args[12] = { "msg", "run", "-n", pes };
	char path[4096];
	unsigned n = 4;

	if (option)
		args[n++] = option;
	if (value)
		args[n++] = value;
	snprintf(path, sizeof(path), "%s", build_path(program));
	args[n++] = "--";
	args[n++] = path;
	args[n++] = argument;
	assert_int_equal(program_run("tools/soda/soda", args, &p), 0);
}

static void expect_well(const char *what)
{
	if (p.status || *p.err)
		fail_msg("%s: status %d: %s%s", what, p.status, p.out, p.err);
}

static void each_way(const char *program, const char *argument)
{
	run("1", NULL, NULL, program, argument);
	expect_well(argument);
	run("3", NULL, NULL, program, argument);
	expect_well(argument);
	run("4", "--nodes", "2", program, argument);
	expect_well(argument);
}

#define VICTIM "tests/integration/apps/convey_victim"

static void test_states(void **state)
{
	each_way(VICTIM, "states");
}

static void test_sizes(void **state)
{
	each_way(VICTIM, "sizes");
	run("3", "--routing=process", "--links=tcp", VICTIM, "sizes");
	expect_well("in processes");
}

static void test_elastic(void **state)
{
	each_way(VICTIM, "elastic");
}

static void test_mismatch(void **state)
{
	run("2", NULL, NULL, VICTIM, "mismatch");
	if (p.status != 3)
		fail_msg("status %d: %s", p.status, p.err);
}

static void test_gone(void **state)
{
	run("3", NULL, NULL, VICTIM, "gone");
	if ((p.status != 4 && p.status != 5) || strstr(p.err, "line "))
		fail_msg("status %d: %s", p.status, p.err);
	assert_non_null(strstr(p.err, "convey: "));
}

static void expect_right(const char *program, unsigned pes)
{
	char begin[64];

	snprintf(begin, sizeof(begin), "%s: %u PEs, ", program, pes);
	expect_well(program);
	if (strncmp(p.out, begin, strlen(begin)) != 0 ||
	    !strstr(p.out, ": as computed by one process\n"))
		fail_msg("%s", p.out);
}

static void test_programs(void **state)
{
	static const char *const all[] = { "histogram", "gather" };
	char path[64];

	for (unsigned i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "examples/convey/convey-%s", all[i]);
		run("1", NULL, NULL, path, "20000");
		expect_right(all[i], 1);
		run("2", NULL, NULL, path, "20000");
		expect_right(all[i], 2);
		run("4", "--nodes", "2", path, "20000");
		expect_right(all[i], 4);
	}
	run("3", "--routing=process", "--links=shm", "examples/convey/convey-histogram", "20000");
	expect_right("histogram", 3);
}

/* Two at a time where ranks' routers have one address each: a sentence, and nobody waits. */
static void test_one_at_a_time(void **state)
{
	run("2", "--routing=process", "--links=shm", "examples/convey/convey-gather", "100");
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "one conveyor at a time"));
}

/* Not started by a launcher. */
static void test_no_launcher(void **state)
{
	const char *const args[] = { "10", NULL };

	assert_int_equal(program_run("examples/convey/convey-histogram", args, &p), 0);
	assert_int_equal(p.status, 2);
	assert_non_null(strstr(p.err, "Usage: soda msg run"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),	      cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_elastic),	      cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_gone),	      cmocka_unit_test(test_programs),
		cmocka_unit_test(test_one_at_a_time), cmocka_unit_test(test_no_launcher),
	};

	return cmocka_run_group_tests_name("conveyors", tests, NULL, NULL);
}
