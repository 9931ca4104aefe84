/* SPDX-License-Identifier: BSD-3-Clause */
/* How to wait for an answer: measured on a simulated machine, no clock involved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "host_agent/core/thread.h"

enum { FETCHES = 100000, SETTLING = 200 };

static uint32_t seed;

static uint32_t noise(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/*
 * n fetches that take asleep_ns or polled_ns and up to jitter_pct more; one in
 * 500 takes twenty times as long.  Returns how many were polled.
 */
static uint32_t run(struct soda_waiting *w, uint32_t n, uint64_t asleep_ns, uint64_t polled_ns,
		    uint32_t jitter_pct)
{
	uint32_t polled = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool poll = soda_waiting_choose(w, true);
		uint64_t ns = poll ? polled_ns : asleep_ns;

		ns += ns * noise(jitter_pct + 1) / 100;
		if (jitter_pct && noise(500) == 0)
			ns *= 20;
		soda_waiting_learn(w, poll, ns);
		polled += poll;
	}
	return polled;
}

static void converges_to_polling(void **state)
{
	struct soda_waiting w;

	soda_waiting_init(&w);
	run(&w, SETTLING, 110000, 40000, 0);
	assert_true(w.polls);
	assert_true(run(&w, FETCHES, 110000, 40000, 0) > FETCHES * 97 / 100);
	assert_true(w.polls);
}

static void stays_asleep(void **state)
{
	struct soda_waiting w;

	soda_waiting_init(&w);
	assert_true(run(&w, SETTLING, 34000, 90000, 0) <= 16);
	assert_false(w.polls);
	assert_true(run(&w, FETCHES, 34000, 90000, 0) < FETCHES * 3 / 100);
	assert_false(w.polls);
}

static void equal_means_no_trouble(void **state)
{
	struct soda_waiting w;

	soda_waiting_init(&w); /* no gain: not worth a busy processor */
	assert_true(run(&w, FETCHES, 50000, 50000, 0) < FETCHES * 3 / 100);
	assert_false(w.polls);
}

static void trials_are_cheap(void **state)
{
	static const uint32_t jitters[] = { 0, 10, 30 };

	for (int i = 0; i < 3; i++) {
		struct soda_waiting w;
		uint32_t n;

		seed = 7 + (uint32_t)i;
		soda_waiting_init(&w);
		run(&w, SETTLING, 110000, 40000, jitters[i]);
		n = FETCHES - run(&w, FETCHES, 110000, 40000, jitters[i]);
		assert_in_range(n, 8, FETCHES * 3 / 100 - 1); /* it does look now and then */
		soda_waiting_init(&w);
		run(&w, SETTLING, 34000, 90000, jitters[i]);
		n = run(&w, FETCHES, 34000, 90000, jitters[i]);
		assert_in_range(n, 8, FETCHES * 3 / 100 - 1);
	}
}

/* Conditions turn after a long quiet time, when trials are rarest. */
static void follows_a_change(void **state)
{
	struct soda_waiting w;

	seed = 1;
	soda_waiting_init(&w);
	run(&w, FETCHES, 34000, 90000, 10);
	assert_false(w.polls);
	run(&w, 4096 + 8 + 1, 110000, 40000, 10);
	assert_true(w.polls);
	run(&w, FETCHES, 110000, 40000, 10);
	assert_true(w.polls);
	run(&w, 4096 + 8 + 1, 34000, 90000, 10);
	assert_false(w.polls);
}

/* One very slow answer in a trial must not decide for thousands of fetches. */
static void outliers_do_not_decide(void **state)
{
	struct soda_waiting w;
	uint32_t trial = 0;

	soda_waiting_init(&w);
	for (int i = 0; i < SETTLING && !w.polls; i++) {
		bool poll = soda_waiting_choose(&w, true);

		trial += poll;
		soda_waiting_learn(&w, poll, !poll ? 110000 : trial == 5 ? 5000000 : 40000);
	}
	assert_true(w.polls);
	/* Nor the first of a trial: it finds the peer asleep. */
	soda_waiting_init(&w);
	trial = 0;
	for (int i = 0; i < SETTLING && !w.polls; i++) {
		bool poll = soda_waiting_choose(&w, true);

		trial += poll;
		soda_waiting_learn(&w, poll, !poll ? 110000 : trial == 1 ? 900000000 : 40000);
	}
	assert_true(w.polls);
}

static void never_where_it_may_not(void **state)
{
	struct soda_waiting w;

	soda_waiting_init(&w);
	for (int i = 0; i < FETCHES; i++) {
		assert_false(soda_waiting_choose(&w, false));
		soda_waiting_learn(&w, false, 110000);
	}
	assert_false(w.polls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(converges_to_polling),	  cmocka_unit_test(stays_asleep),
		cmocka_unit_test(equal_means_no_trouble), cmocka_unit_test(trials_are_cheap),
		cmocka_unit_test(follows_a_change),	  cmocka_unit_test(outliers_do_not_decide),
		cmocka_unit_test(never_where_it_may_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
