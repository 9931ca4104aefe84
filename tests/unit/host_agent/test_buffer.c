/* SPDX-License-Identifier: BSD-3-Clause */
/* The page buffer's credits: a hard limit, under threads, resizing and waiting. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/core/buffer.h"

enum { THREADS = 4, ROUNDS = 50000, LIMIT = 7 };

static struct soda_buffer b;

static void limit_is_hard(void **state)
{
	soda_buffer_init(&b, 95, 90);
	assert_false(soda_buffer_take(&b)); /* no limit yet: nothing to be had */
	soda_buffer_resize(&b, 3);
	for (int i = 1; i <= 3; i++) {
		assert_true(soda_buffer_take(&b));
		assert_int_equal(soda_buffer_used(&b), i);
	}
	assert_false(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_used(&b), 3);
	assert_int_equal(b.peak, 3);
	soda_buffer_give(&b, 2);
	assert_int_equal(soda_buffer_used(&b), 1);
	assert_true(soda_buffer_take(&b));
	assert_int_equal(b.peak, 3);
}

static void resize(void **state)
{
	soda_buffer_init(&b, 95, 90);
	soda_buffer_resize(&b, 10);
	for (int i = 0; i < 10; i++)
		assert_true(soda_buffer_take(&b));
	soda_buffer_resize(&b, 4); /* six over the limit now: what is used is not taken back */
	assert_int_equal(soda_buffer_used(&b), 10);
	assert_int_equal(b.free, -6);
	for (int i = 0; i < 6; i++) {
		assert_false(soda_buffer_take(&b));
		soda_buffer_give(&b, 1);
	}
	assert_false(soda_buffer_take(&b));
	soda_buffer_give(&b, 1);
	assert_true(soda_buffer_take(&b));
	assert_false(soda_buffer_take(&b));
	soda_buffer_resize(&b, 6);
	assert_true(soda_buffer_take(&b));
	assert_true(soda_buffer_take(&b));
	assert_false(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_used(&b), 6);
	soda_buffer_give(&b, 6);
	assert_int_equal(soda_buffer_used(&b), 0);
	assert_int_equal(b.free, 6);
}

static void excess_marks(void **state)
{
	soda_buffer_init(&b, 95, 90);
	soda_buffer_resize(&b, 200);
	for (int i = 0; i < 189; i++)
		assert_true(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_excess(&b), 0); /* 94.5 % */
	assert_true(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_excess(&b), 10); /* 95 %: down to 180 */
	atomic_store(&b.sending, 1);		      /* as good as gone */
	assert_int_equal(soda_buffer_excess(&b), 0);
	atomic_store(&b.sending, 0);
	for (int i = 0; i < 10; i++)
		assert_true(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_excess(&b), 20);
	atomic_store(&b.sending, 4);
	assert_int_equal(soda_buffer_excess(&b), 16);
	atomic_store(&b.sending, 0);
	soda_buffer_resize(&b, 100);
	assert_int_equal(soda_buffer_excess(&b), 110);
	soda_buffer_init(&b, 100, 0);
	soda_buffer_resize(&b, 2);
	assert_true(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_excess(&b), 0);
	assert_true(soda_buffer_take(&b));
	assert_int_equal(soda_buffer_excess(&b), 2); /* down to nothing */
}

static void pins(void **state)
{
	soda_buffer_init(&b, 95, 90);
	soda_buffer_resize(&b, 10);
	for (int i = 0; i < 6; i++)
		assert_true(soda_buffer_pin(&b, 4));
	assert_false(soda_buffer_pin(&b, 4));
	assert_int_equal(b.pinned, 6);
	soda_buffer_unpin(&b);
	assert_true(soda_buffer_pin(&b, 4));
	assert_int_equal(b.pinned, 6);
}

static _Atomic int out, most_out, taken[THREADS];

static void *worker(void *arg)
{
	uintptr_t me = (uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		int now, most = atomic_load(&most_out);

		if (!soda_buffer_take(&b)) {
			sched_yield();
			continue;
		}
		now = atomic_fetch_add(&out, 1) + 1;
		while (now > most && !atomic_compare_exchange_weak(&most_out, &most, now))
			;
		atomic_fetch_add(&taken[me], 1);
		if (i % 16 == 0)
			sched_yield();
		atomic_fetch_sub(&out, 1);
		soda_buffer_give(&b, 1);
	}
	return NULL;
}

static void never_over_the_limit(void **state)
{
	pthread_t thread[THREADS];

	soda_buffer_init(&b, 95, 90);
	soda_buffer_resize(&b, THREADS - 1); /* fewer than want one */
	atomic_store(&most_out, 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, worker, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_in_range(most_out, 1, THREADS - 1);
	assert_in_range(b.peak, most_out, THREADS - 1);
	assert_int_equal(soda_buffer_used(&b), 0);
	for (int i = 0; i < THREADS; i++)
		assert_true(taken[i] > 0);
}

static _Atomic int got;

/* Takes without giving back, so that every credit must come from the main thread. */
static void *sleeper(void *arg)
{
	for (int i = 0; i < LIMIT * 20; i++) {
		while (!soda_buffer_take(&b))
			soda_buffer_wait(&b, 10000000000); /* a lost wake-up costs ten seconds */
		atomic_fetch_add(&got, 1);
	}
	return NULL;
}

static void giving_wakes(void **state)
{
	const int all = 2 * LIMIT * 20;
	uint64_t start = soda_now_ns();
	pthread_t thread[2];
	int given = LIMIT;

	soda_buffer_init(&b, 95, 90);
	soda_buffer_resize(&b, LIMIT);
	atomic_store(&got, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, sleeper, NULL), 0);
	while (given < all) {
		while (atomic_load(&got) < given)
			usleep(20);
		/* all are in use; who tries in vain counts, too, for a moment */
		assert_in_range(soda_buffer_used(&b), LIMIT, LIMIT + 2);
		soda_buffer_give(&b, 1);
		given++;
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_int_equal(b.waiters, 0);
	assert_int_equal(soda_buffer_used(&b), LIMIT);
	assert_true(soda_now_ns() - start < 9000000000u);
}

static void waiting_ends(void **state)
{
	uint64_t start;

	soda_buffer_init(&b, 95, 90);
	soda_buffer_resize(&b, 1);
	start = soda_now_ns();
	soda_buffer_wait(&b, 10000000000); /* one is free: no wait */
	assert_true(soda_now_ns() - start < 5000000000u);
	assert_true(soda_buffer_take(&b));
	start = soda_now_ns();
	soda_buffer_wait(&b, 20000000);
	assert_true(soda_now_ns() - start >= 15000000u);
	assert_int_equal(b.waiters, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limit_is_hard),	cmocka_unit_test(resize),
		cmocka_unit_test(excess_marks),		cmocka_unit_test(pins),
		cmocka_unit_test(never_over_the_limit), cmocka_unit_test(giving_wakes),
		cmocka_unit_test(waiting_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
