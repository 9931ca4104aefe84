/* SPDX-License-Identifier: BSD-3-Clause */
/* On which processor a data worker runs. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transport/listen/home.h"

#define MS UINT64_C(1000000)
#define START (1000 * MS)

static struct soda_homes all;
static struct soda_home home[3];

/* Of tests that bind this thread, and what it may use beside them. */
static struct soda_homes real;
static struct soda_home mine;
static cpu_set_t before;

/* Workers on processors 10, 11 and 12. */
static int setup(void **state)
{
	memset(&all, 0, sizeof(all));
	all.n = 3;
	for (unsigned i = 0; i < 3; i++) {
		atomic_init(&all.cpu[i], 10 + (int)i);
		atomic_init(&all.wants[i], -1);
		soda_home_init(&home[i], &all, i);
	}
	return 0;
}

/* All workers have a look, with their clients on these processors: where they are to be then. */
static void look(uint64_t now_ns, const int client[3], int to[3])
{
	for (unsigned i = 0; i < 3; i++)
		to[i] = home[i].bound = soda_home_decide(&home[i], now_ns, client[i]);
}

static void expect(const int to[3], int a, int b, int c)
{
	assert_int_equal(to[0], a);
	assert_int_equal(to[1], b);
	assert_int_equal(to[2], c);
}

static void test_only_when_all_are_busy(void **state)
{
	static const int unknown[3] = { -1, -1, -1 };
	int to[3];

	look(START + 1 * MS, unknown, to);
	expect(to, -1, -1, -1);
	look(START + 2 * MS, unknown, to); /* the last of them is the first that sees all be busy */
	expect(to, -1, -1, 12);
	look(START + 3 * MS, unknown, to);
	expect(to, 10, 11, 12);
	/* then nobody but worker 0 has anything to do: for a while nothing changes */
	assert_int_equal(soda_home_decide(&home[0], START + 3 * MS + SODA_HOME_LEAVE_NS, -1), 10);
	assert_int_equal(soda_home_decide(&home[0], START + 4 * MS + SODA_HOME_LEAVE_NS, -1), -1);
	/* the second look of a worker after a pause is the first that tells */
	home[1].bound = home[2].bound = -1;
	assert_int_equal(soda_home_decide(&home[1], START + 5 * MS + SODA_HOME_LEAVE_NS, -1), -1);
	assert_int_equal(soda_home_decide(&home[2], START + 5 * MS + SODA_HOME_LEAVE_NS, -1), -1);
	assert_int_equal(soda_home_decide(&home[1], START + 6 * MS + SODA_HOME_LEAVE_NS, -1), -1);
	assert_int_equal(soda_home_decide(&home[2], START + 6 * MS + SODA_HOME_LEAVE_NS, -1), 12);
}

static void test_two_exchange(void **state)
{
	static const int crossed[3] = { 11, 10, 12 };
	int to[3];

	look(START + 1 * MS, crossed, to);
	look(START + 2 * MS, crossed, to); /* both clients have stayed: worker 1 finds that of 0 */
	look(START + 3 * MS, crossed, to);
	expect(to, 11, 10, 12);
	look(START + 4 * MS, crossed, to);
	expect(to, 11, 10, 12);
}

static void test_a_visit_changes_nothing(void **state)
{
	static const int own[3] = { 10, 11, 12 }, crossed[3] = { 11, 10, 12 };
	int to[3];

	look(START + 1 * MS, own, to);
	for (unsigned i = 2; i < 10; i += 2) {
		look(START + i * MS, crossed, to);
		look(START + (i + 1) * MS, own, to);
		expect(to, 10, 11, 12);
	}
}

/* Two clients on one processor: its worker's own client keeps it. */
static void test_no_two_on_one(void **state)
{
	static const int both[3] = { 11, 11, 12 };
	int to[3];

	for (unsigned i = 1; i < 5; i++)
		look(START + i * MS, both, to);
	expect(to, 10, 11, 12);
}

static void test_three_in_a_circle(void **state)
{
	static const int circle[3] = { 11, 12, 10 };
	int to[3];

	for (unsigned i = 1; i < 8; i++)
		look(START + i * MS, circle, to);
	expect(to, 11, 12, 10);
}

/* What a client says of itself may be nonsense. */
static void test_a_processor_that_is_not_ours(void **state)
{
	static const int bad[3] = { 99, -5, 1 << 30 };
	int to[3];

	for (unsigned i = 1; i < 5; i++)
		look(START + i * MS, bad, to);
	expect(to, 10, 11, 12);
}

static void test_as_many_workers_as_processors(void **state)
{
	cpu_set_t set;
	unsigned n;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	n = (unsigned)CPU_COUNT(&set);
	soda_homes_init(&real, n + 1);
	assert_int_equal(real.n, 0);
	soda_homes_init(&real, 1);
	assert_int_equal(real.n, 0);
	soda_homes_init(&real, n);
	assert_int_equal(real.n, n >= 2 && n <= SODA_HOMES_MAX ? n : 0);
}

static int setup_thread(void **state)
{
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	memset(&real, 0, sizeof(real));
	soda_homes_init(&real, (unsigned)CPU_COUNT(&before));
	soda_home_init(&mine, &real, 1);
	return 0;
}

static int restore_thread(void **state)
{
	return sched_setaffinity(0, sizeof(before), &before);
}

/* All workers are busy, whatever the time, or none but this one ever was: this one has a look. */
static void look_while(bool busy)
{
	for (unsigned i = 0; i < real.n; i++)
		atomic_store(&real.busy_ns[i], busy ? UINT64_MAX : 0);
	soda_home_look(&mine, -1);
}

static void expect_mask(const cpu_set_t *set)
{
	cpu_set_t now;

	assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
	assert_true(CPU_EQUAL(set, &now));
}

static cpu_set_t only(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return set;
}

/* The thread itself goes where it was decided, and is free again afterwards. */
static void test_binds_the_thread(void **state)
{
	cpu_set_t own;

	if (!real.n)
		skip();
	own = only(atomic_load(&real.cpu[1]));
	look_while(false);
	expect_mask(&before);
	look_while(true);
	expect_mask(&own);
	look_while(false);
	expect_mask(&before);
	look_while(true);
	expect_mask(&own);
}

/* Somebody else has said where a bound worker may run (taskset): so it is from then on. */
static void test_a_bound_worker_is_moved(void **state)
{
	cpu_set_t elsewhere;

	if (!real.n)
		skip();
	elsewhere = only(atomic_load(&real.cpu[0]));
	look_while(true);
	assert_int_equal(sched_setaffinity(0, sizeof(elsewhere), &elsewhere), 0);
	look_while(false);
	expect_mask(&elsewhere);
	look_while(true);
	expect_mask(&elsewhere);
	look_while(false);
	expect_mask(&elsewhere);
}

/* The same of one that was free; not even the mask that it was started with makes a difference. */
static void test_a_free_worker_is_moved(void **state)
{
	cpu_set_t elsewhere;

	if (!real.n)
		skip();
	elsewhere = only(atomic_load(&real.cpu[0]));
	look_while(false);
	assert_int_equal(sched_setaffinity(0, sizeof(elsewhere), &elsewhere), 0);
	look_while(true);
	expect_mask(&elsewhere);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	look_while(true);
	expect_mask(&before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_only_when_all_are_busy, setup),
		cmocka_unit_test_setup(test_two_exchange, setup),
		cmocka_unit_test_setup(test_a_visit_changes_nothing, setup),
		cmocka_unit_test_setup(test_no_two_on_one, setup),
		cmocka_unit_test_setup(test_three_in_a_circle, setup),
		cmocka_unit_test_setup(test_a_processor_that_is_not_ours, setup),
		cmocka_unit_test(test_as_many_workers_as_processors),
		cmocka_unit_test_setup_teardown(test_binds_the_thread, setup_thread,
						restore_thread),
		cmocka_unit_test_setup_teardown(test_a_bound_worker_is_moved, setup_thread,
						restore_thread),
		cmocka_unit_test_setup_teardown(test_a_free_worker_is_moved, setup_thread,
						restore_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
