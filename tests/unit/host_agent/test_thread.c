/* SPDX-License-Identifier: BSD-3-Clause */
/* What the agent knows of threads: last chunks, contexts and their reuse, counters, times. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host_agent/core/thread.h"
#include "host_agent/core/agent.h"

enum { TABLE = 64, THREADS = 4 };

static struct soda_chunk table[TABLE];

static int setup(void **state)
{
	memset(table, 0, sizeof(table));
	for (int i = 0; i < TABLE; i++)
		table[i].word = SODA_CHUNK_CLEAN;
	soda_agent.table = table;
	soda_agent.pid = getpid();
	soda_threads_clear();
	return 0;
}

static uint32_t holds(uint32_t id)
{
	return (table[id].word & SODA_CW_HOLD) / SODA_CW_HOLD_ONE;
}

static uint32_t all_holds(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < TABLE; i++)
		n += holds(i);
	return n;
}

/* Exactly these are held, once each. */
static void expect_held(uint32_t first, uint32_t last)
{
	for (uint32_t i = 0; i < TABLE; i++)
		assert_int_equal(holds(i), i >= first && i <= last);
}

static void ring(void **state)
{
	struct soda_thread *t = soda_thread_self();

	for (uint32_t id = 0; id < 60; id++) { /* several times round */
		soda_thread_remember(t, id, 4);
		expect_held(id < 3 ? 0 : id - 3, id);
	}
	soda_thread_remember(t, 59, 4); /* known: nothing changes */
	soda_thread_remember(t, 57, 4);
	expect_held(56, 59);
	soda_thread_forget(t);
	assert_int_equal(all_holds(), 0);
	soda_thread_forget(t);
	assert_int_equal(all_holds(), 0);
}

static void keep_changes(void **state)
{
	struct soda_thread *t = soda_thread_self();

	for (uint32_t id = 0; id < 30; id++)
		soda_thread_remember(t, id, 16);
	expect_held(14, 29);
	soda_thread_remember(t, 30, 5); /* the buffer became smaller */
	expect_held(26, 30);
	soda_thread_remember(t, 31, 16);
	expect_held(26, 31);
	for (uint32_t id = 32; id < 50; id++)
		soda_thread_remember(t, id, 16);
	expect_held(34, 49);
	soda_thread_trim(t, 3);
	expect_held(47, 49);
	soda_thread_trim(t, 10);
	expect_held(47, 49);
	soda_thread_forget(t);
	assert_int_equal(all_holds(), 0);
}

/* An object ends: its chunks are in no ring, and the other ones go round as before. */
static void an_object_ends(void **state)
{
	struct soda_thread *t = soda_thread_self();

	for (uint32_t id = 0; id < 22; id++) /* past the ring's end */
		soda_thread_remember(t, id, 8);
	soda_threads_forget(16, 3);
	for (uint32_t id = 0; id < TABLE; id++)
		assert_int_equal(holds(id), (id >= 14 && id < 16) || (id >= 19 && id < 22));
	soda_chunk_hold(&table[16]); /* the next object's there */
	soda_thread_remember(t, 16, 8);
	assert_int_equal(holds(16), 2);
	for (uint32_t id = 40; id < 48; id++)
		soda_thread_remember(t, id, 8);
	assert_int_equal(holds(16), 1);
	soda_chunk_unhold(&table[16]);
	expect_held(40, 47);
	soda_threads_forget(0, TABLE);
	assert_int_equal(all_holds(), 0);
	soda_thread_remember(t, 5, 8);
	expect_held(5, 5);
	soda_thread_forget(t);
}

static sem_t arrived, leave;
static struct soda_thread *theirs[THREADS];

static void *thread_holds_and_ends(void *arg)
{
	uintptr_t me = (uintptr_t)arg;

	theirs[me] = soda_thread_self();
	for (uint32_t i = 0; i < 20; i++) /* past the ring's end */
		soda_thread_remember(theirs[me], (uint32_t)me * 16 + i % 6, 4);
	soda_count(theirs[me], SODA_CNT_FAULTS, 5);
	sem_post(&arrived);
	sem_wait(&leave);
	return NULL;
}

static void start_threads(pthread_t thread[THREADS])
{
	sem_init(&arrived, 0, 0);
	sem_init(&leave, 0, 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, thread_holds_and_ends, (void *)i),
				 0);
	for (int i = 0; i < THREADS; i++)
		sem_wait(&arrived);
}

static void end_threads(pthread_t thread[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		sem_post(&leave);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
}

static void dead_threads_are_reaped(void **state)
{
	uint64_t before = soda_threads_sum(SODA_CNT_FAULTS);
	struct soda_thread *first[THREADS], *mine = soda_thread_self();
	pthread_t thread[THREADS];
	int reaped = 0;

	start_threads(thread);
	for (int i = 0; i < THREADS; i++) {
		first[i] = theirs[i];
		assert_ptr_not_equal(first[i], mine);
		for (int k = 0; k < i; k++)
			assert_ptr_not_equal(first[i], first[k]);
	}
	assert_int_equal(all_holds(), 4 * THREADS);
	assert_int_equal(soda_threads_reap(), 0); /* all alive */
	assert_int_equal(all_holds(), 4 * THREADS);
	end_threads(thread);
	for (int i = 0; i < 1000 && reaped < THREADS; i++) { /* join returns a moment before */
		reaped += soda_threads_reap();
		usleep(1000);
	}
	assert_int_equal(reaped, THREADS);
	assert_int_equal(all_holds(), 0);
	assert_int_equal(soda_threads_sum(SODA_CNT_FAULTS),
			 before + 5 * THREADS); /* they count on */
	start_threads(thread);
	for (int i = 0; i < THREADS; i++) { /* the same places */
		bool known = false;

		for (int k = 0; k < THREADS; k++)
			known |= theirs[i] == first[k];
		assert_true(known);
	}
	assert_true(soda_threads_bytes() >= (THREADS + 1) * sizeof(struct soda_thread));
	end_threads(thread);
}

/* Everything is held by threads that are alive: some of them let go, and truly. */
static void stealing(void **state)
{
	struct soda_thread *mine = soda_thread_self();
	pthread_t thread[THREADS];

	soda_thread_remember(mine, 63, 4);
	start_threads(thread);
	assert_int_equal(all_holds(), 4 * THREADS + 1);
	for (int i = 0; i < 4 * THREADS && all_holds() > 1; i++)
		soda_threads_steal(mine);
	assert_int_equal(all_holds(), 1);
	assert_int_equal(holds(63), 1); /* who asks keeps its own */
	end_threads(thread);
	soda_thread_forget(mine);
	assert_int_equal(all_holds(), 0);
}

static void by_thread_id(void **state)
{
	struct soda_thread *mine = soda_thread_self();
	struct soda_thread *other = soda_thread_of(getpid());

	assert_ptr_equal(other, mine); /* the first thread's id is the process's */
	/* A thread that nobody has seen yet: a context of its own, found again. */
	other = soda_thread_of(1);
	assert_ptr_not_equal(other, mine);
	assert_ptr_equal(soda_thread_of(1), other);
	assert_int_equal(other->last_n, 0);
	assert_int_equal(soda_threads_reap(), 1); /* no thread of this process */
}

static void *helper(void *arg)
{
	theirs[(uintptr_t)arg] = soda_thread_internal();
	sem_post(&arrived);
	sem_wait(&leave);
	return NULL;
}

/* Whenever the library's own threads begin, those of the program have channels of their own. */
static void helpers_take_no_index(void **state)
{
	pthread_t thread[THREADS], own;

	sem_init(&arrived, 0, 0);
	sem_init(&leave, 0, 0);
	for (uintptr_t i = 0; i < THREADS - 1; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, helper, (void *)i), 0);
	for (int i = 0; i < THREADS - 1; i++)
		sem_wait(&arrived);
	assert_int_equal(soda_thread_self()->index, 0);
	assert_int_equal(pthread_create(&thread[THREADS - 1], NULL, helper, (void *)(THREADS - 1)),
			 0);
	sem_wait(&arrived);
	assert_int_equal(pthread_create(&own, NULL, thread_holds_and_ends, 0), 0);
	sem_wait(&arrived);
	assert_int_equal(theirs[0]->index, 1);
	sem_post(&leave);
	end_threads(thread);
	assert_int_equal(pthread_join(own, NULL), 0);
}

static void *counter(void *arg)
{
	struct soda_thread *t = soda_thread_self();

	for (int i = 0; i < 10000; i++) {
		soda_count(t, SODA_CNT_FETCHES, 1);
		soda_thread_time(t, 1000000);
	}
	return NULL;
}

static void counters_add_up(void **state)
{
	uint64_t before = soda_threads_sum(SODA_CNT_FETCHES), last = before;
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, counter, NULL), 0);
	for (int i = 0; i < 1000; i++) { /* read meanwhile: never backwards */
		uint64_t now = soda_threads_sum(SODA_CNT_FETCHES);

		assert_true(now >= last);
		last = now;
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_int_equal(soda_threads_sum(SODA_CNT_FETCHES), before + 10000 * THREADS);
}

/* Of the one sample of its kind; buckets are a quarter of an octave wide. */
static void near(uint64_t got, uint64_t expected)
{
	if (got * 100 < expected * 88 || got * 100 > expected * 113)
		fail_msg("%llu, expected about %llu", (unsigned long long)got,
			 (unsigned long long)expected);
}

/* First, while no context has any times. */
static void percentiles(void **state)
{
	struct soda_thread *t = soda_thread_self();

	assert_int_equal(soda_threads_percentile_ns(50), 0);
	for (int i = 0; i < 90; i++)
		soda_thread_time(t, 40000);
	near(soda_threads_percentile_ns(50), 40000);
	near(soda_threads_percentile_ns(99), 40000);
	for (int i = 0; i < 10; i++)
		soda_thread_time(t, 3000000);
	near(soda_threads_percentile_ns(50), 40000);
	near(soda_threads_percentile_ns(90), 40000);
	near(soda_threads_percentile_ns(91), 3000000);
	near(soda_threads_percentile_ns(99), 3000000);
	memset((void *)t->fetch_ns, 0, sizeof(t->fetch_ns));
	for (uint64_t ns = 1100; ns < 10000000000u; ns = ns * 5 / 4) { /* every octave */
		soda_thread_time(t, ns);
		near(soda_threads_percentile_ns(50), ns);
		memset((void *)t->fetch_ns, 0, sizeof(t->fetch_ns));
	}
	soda_thread_time(t, 0); /* the ends */
	assert_in_range(soda_threads_percentile_ns(50), 1, 1250);
	memset((void *)t->fetch_ns, 0, sizeof(t->fetch_ns));
	soda_thread_time(t, UINT64_MAX);
	assert_true(soda_threads_percentile_ns(50) > 10000000000u);
	memset((void *)t->fetch_ns, 0, sizeof(t->fetch_ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(percentiles, setup),
		cmocka_unit_test_setup(ring, setup),
		cmocka_unit_test_setup(keep_changes, setup),
		cmocka_unit_test_setup(an_object_ends, setup),
		cmocka_unit_test_setup(dead_threads_are_reaped, setup),
		cmocka_unit_test_setup(stealing, setup),
		cmocka_unit_test_setup(by_thread_id, setup),
		cmocka_unit_test_setup(helpers_take_no_index, setup),
		cmocka_unit_test_setup(counters_add_up, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
