/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that are as many as their work needs: workers.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpu_agent/cache/dynamic/workers.h"

static struct soda_workers w;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static unsigned wanted, blocked, quick; /* guarded by lock; wanted: turns that shall block */
static bool let;

static void block(void)
{
	soda_workers_block(&w);
	pthread_mutex_lock(&lock);
	blocked++;
	pthread_cond_broadcast(&moved);
	while (!let)
		pthread_cond_wait(&moved, &lock);
	blocked--;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	soda_workers_unblock(&w);
}

static bool turn(void *arg)
{
	bool blocks;

	pthread_mutex_lock(&lock);
	blocks = wanted;
	wanted -= blocks;
	quick++;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	if (blocks)
		block();
	return blocks;
}

static void start(unsigned least, unsigned most, unsigned rest_ms)
{
	w = (struct soda_workers){
		.name = "test", .turn = turn, .least = least, .most = most, .rest_ms = rest_ms
	};
	let = false;
	assert_int_equal(soda_workers_start(&w), 0);
	assert_int_equal(soda_workers_count(&w), least);
}

/* One turn more that blocks; and wait until it does. */
static void block_one(unsigned before)
{
	pthread_mutex_lock(&lock);
	wanted++;
	pthread_mutex_unlock(&lock);
	soda_workers_ring(&w);
	pthread_mutex_lock(&lock);
	while (blocked < before + 1)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

/* A thread that is not blocked takes a turn. */
static void await_turn(void)
{
	unsigned before;

	pthread_mutex_lock(&lock);
	before = quick;
	pthread_mutex_unlock(&lock);
	soda_workers_ring(&w);
	pthread_mutex_lock(&lock);
	while (quick == before)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

static void let_all(void)
{
	pthread_mutex_lock(&lock);
	let = true;
	pthread_cond_broadcast(&moved);
	while (blocked)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

static void one_is_always_free(void **state)
{
	start(2, 12, 0);
	for (unsigned i = 0; i < 11; i++) {
		block_one(i);
		await_turn();
		assert_int_equal(soda_workers_count(&w), i + 2);
	}
	block_one(11); /* as many as may be */
	assert_int_equal(soda_workers_count(&w), 12);
	let_all();
	soda_workers_stop(&w);
	soda_workers_stop(&w);
}

/* Those beyond the least end, and their places are used again. */
static void others_end(void **state)
{
	start(2, 40, 1);
	for (int round = 0; round < 5; round++) {
		pthread_mutex_lock(&lock);
		let = false;
		pthread_mutex_unlock(&lock);
		for (unsigned i = 0; i < 20; i++)
			block_one(i);
		assert_true(soda_workers_count(&w) >= 20);
		let_all();
		while (soda_workers_count(&w) > 2)
			sched_yield();
		await_turn();
	}
	soda_workers_stop(&w);
}

/* Whatever they are just doing: also where some are just started, or end. */
static void all_end(void **state)
{
	for (int round = 0; round < 300; round++) {
		start(2, 8, 1);
		pthread_mutex_lock(&lock);
		wanted = round % 6;
		let = true;
		pthread_mutex_unlock(&lock);
		for (int i = 0; i < round % 4; i++)
			soda_workers_ring(&w);
		for (int i = 0; i < round % 8; i++)
			sched_yield();
		soda_workers_stop(&w);
		assert_int_equal(blocked, 0);
		wanted = 0;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_is_always_free),
		cmocka_unit_test(others_end),
		cmocka_unit_test(all_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
