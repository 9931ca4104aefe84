/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams in faults: what is fetched ahead, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host_agent/core/stream.h"

enum { CHUNKS = 4096, WINDOW = 16 };

/* An object [0, CHUNKS): a chunk that was asked for does not fault. */
static struct world {
	struct soda_streams st;
	bool there[CHUNKS];
	uint32_t faults, fetched, useless, longest;
} w;

static void begin(void)
{
	memset(&w, 0, sizeof(w));
	soda_streams_init(&w.st);
}

static void obey(const struct soda_plan *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		int64_t id = p->first + (int64_t)i * p->stride;

		assert_in_range(id, 0, CHUNKS - 1); /* a negative one is huge there */
		if (w.there[id])
			fail_msg("chunk %d is asked for twice", (int)id);
		w.there[id] = true;
	}
	w.fetched += p->n;
	w.useless += p->useless;
	w.longest = p->n > w.longest ? p->n : w.longest;
}

static void touch(int64_t id)
{
	struct soda_plan p;

	if (w.there[id])
		return;
	w.there[id] = true;
	w.faults++;
	p = soda_streams_note(&w.st, id, 0, CHUNKS, WINDOW, false);
	obey(&p);
}

static void expect(struct soda_plan p, int64_t first, int32_t stride, uint32_t n)
{
	if (p.n != n || (n && (p.first != first || p.stride != stride)))
		fail_msg("%u from %d by %d, expected %u from %d by %d", p.n, (int)p.first, p.stride,
			 n, (int)first, stride);
}

static struct soda_plan fault(int64_t id)
{
	return soda_streams_note(&w.st, id, 0, CHUNKS, WINDOW, false);
}

static void growth(void **state)
{
	begin();
	expect(fault(100), 0, 0, 0);
	expect(fault(101), 0, 0, 0);
	expect(fault(102), 103, 1, 4);	/* two equal steps: a window of four */
	expect(fault(103), 107, 1, 5);	/* confirmed: eight from 104 on */
	expect(fault(107), 112, 1, 12); /* sixteen from 108 on; the chunks between were hits */
	expect(fault(108), 0, 0, 0);	/* more than half a window is under way */
	expect(fault(114), 0, 0, 0);	/* nine are */
	expect(fault(116), 124, 1, 9);	/* seven of 117..123 are left: filled up to sixteen */
	expect(fault(133), 134, 1, 16); /* the end of the window: all of it was used */
}

static void sequential(void **state)
{
	begin();
	for (int64_t id = 0; id < CHUNKS; id++)
		touch(id);
	/* Three to find it, two to grow; then one fault for each window. */
	assert_in_range(w.faults, CHUNKS / (WINDOW + 1), CHUNKS / (WINDOW + 1) + 6);
	assert_int_equal(w.faults + w.fetched, CHUNKS);
	assert_int_equal(w.longest, WINDOW);
	assert_int_equal(w.useless, 0);
	begin();
	for (int64_t id = CHUNKS - 1; id >= 0; id--)
		touch(id);
	assert_in_range(w.faults, CHUNKS / (WINDOW + 1), CHUNKS / (WINDOW + 1) + 6);
	assert_int_equal(w.faults + w.fetched, CHUNKS);
}

static void strides(void **state)
{
	static const int64_t steps[] = { 2, 3, 7, 16, 64, -2, -5, -64 };

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int64_t s = steps[i];
		uint32_t n = (uint32_t)(CHUNKS / (s < 0 ? -s : s));

		begin();
		for (uint32_t k = 0; k < n; k++)
			touch((s < 0 ? CHUNKS - 1 : 0) + s * k);
		assert_in_range(w.faults, 1, n / (WINDOW + 1) + 7);
		/* Nothing off the stride; at most what lies on it. */
		assert_in_range(w.faults + w.fetched, n, n + 1);
	}
	begin(); /* too far apart to be a stream */
	for (int64_t id = 0; id < CHUNKS; id += 65)
		touch(id);
	assert_int_equal(w.fetched, 0);
}

/* As many as a thread can have, each its own direction, one after the other. */
static void interleaved(void **state)
{
	static const int64_t from[] = { 0, 1023, 2000, 3500 }, step[] = { 1, -1, 2, 1 };
	enum { N = 500 };

	begin();
	/* Interleaving begins once each is known: steps between streams look like no stream. */
	for (int s = 0; s < SODA_STREAMS; s++)
		for (int k = 0; k < 3; k++)
			touch(from[s] + step[s] * k);
	for (int k = 3; k < N; k++)
		for (int s = 0; s < SODA_STREAMS; s++)
			touch(from[s] + step[s] * k);
	assert_in_range(w.faults, 1, SODA_STREAMS * (N / (WINDOW + 1) + 7));
	assert_int_equal(w.useless, 0);
	/* What was asked for and not used yet: at most a window each. */
	assert_in_range(w.faults + w.fetched, SODA_STREAMS * N, SODA_STREAMS * (N + WINDOW));
}

static void object_end(void **state)
{
	begin();
	fault(CHUNKS - 5);
	fault(CHUNKS - 4);
	expect(fault(CHUNKS - 3), CHUNKS - 2, 1, 2); /* not four */
	expect(fault(CHUNKS - 2), 0, 0, 0);
	expect(fault(CHUNKS - 1), 0, 0, 0);
	begin();
	fault(4);
	fault(3);
	expect(fault(2), 1, -1, 2);
	expect(fault(1), 0, 0, 0);
	begin();
	fault(CHUNKS - 8);
	fault(CHUNKS - 6);
	expect(fault(CHUNKS - 4), CHUNKS - 2, 2, 1);
	/* Two objects side by side: a stream ends with its own. */
	begin();
	soda_streams_note(&w.st, 97, 90, 100, WINDOW, false);
	soda_streams_note(&w.st, 98, 90, 100, WINDOW, false);
	expect(soda_streams_note(&w.st, 99, 90, 100, WINDOW, false), 0, 0, 0);
	expect(soda_streams_note(&w.st, 100, 100, 200, WINDOW, false), 0, 0, 0);
}

static void random_gives_nothing(void **state)
{
	uint32_t seed = 12345;

	begin();
	for (int i = 0; i < 100000; i++) {
		struct soda_plan p;

		seed = seed * 1664525u + 1013904223u;
		p = soda_streams_note(&w.st, seed >> 4, 0, 1 << 28, WINDOW, false);
		assert_int_equal(p.n, 0);
	}
}

static void useless_is_accounted(void **state)
{
	struct soda_plan p;

	begin();
	for (int64_t s = 0; s < SODA_STREAMS; s++) { /* each with four chunks unconfirmed */
		fault(1000 * s);
		fault(1000 * s + 1);
		p = fault(1000 * s + 2);
		expect(p, 1000 * s + 3, 1, 4);
		assert_int_equal(p.useless, 0);
	}
	fault(1003); /* the second is confirmed: eight */
	/* A fifth takes the place of the one that was not used for longest: the first. */
	fault(500);
	fault(501);
	p = fault(502);
	assert_int_equal(p.useless, 4);
	expect(p, 503, 1, 4);
	fault(600);
	fault(601);
	p = fault(602); /* the third goes */
	assert_int_equal(p.useless, 4);
	fault(700);
	fault(701);
	p = fault(702); /* the fourth; twelve in vain by now: one chunk only, to begin with */
	assert_int_equal(p.useless, 4);
	expect(p, 703, 1, 1);
	fault(800);
	fault(801);
	p = fault(802); /* the second, which had eight under way */
	assert_int_equal(p.useless, 8);
	/* Streams that go on make up for it. */
	for (int64_t id = 803; id < 900; id++)
		fault(id);
	fault(3500);
	fault(3501);
	expect(fault(3502), 3503, 1, 4);
}

static void cut(void **state)
{
	struct soda_plan p;

	begin();
	fault(10);
	fault(11);
	p = fault(12);
	expect(p, 13, 1, 4);
	soda_streams_cut(&w.st, &p, 1); /* 13 only */
	p = fault(13);
	expect(p, 14, 1, 8);
	soda_streams_cut(&w.st, &p, 0); /* no room at all */
	expect(fault(14), 15, 1, 16);	/* nothing is left out for good */
	/* The others are not touched. */
	begin();
	fault(10);
	fault(11);
	fault(12);
	fault(1000);
	fault(1002);
	p = fault(1004);
	expect(p, 1006, 2, 4);
	soda_streams_cut(&w.st, &p, 2);
	expect(fault(1006), 1010, 2, 7);
	expect(fault(13), 17, 1, 5);
}

static void eager(void **state)
{
	begin();
	expect(soda_streams_note(&w.st, 50, 0, CHUNKS, WINDOW, true), 0, 0, 0);
	expect(soda_streams_note(&w.st, 51, 0, CHUNKS, WINDOW, true), 52, 1, 4);
	begin(); /* only for a step of one */
	expect(soda_streams_note(&w.st, 50, 0, CHUNKS, WINDOW, true), 0, 0, 0);
	expect(soda_streams_note(&w.st, 52, 0, CHUNKS, WINDOW, true), 0, 0, 0);
	begin(); /* off: nothing, and nothing is remembered */
	for (int64_t id = 0; id < 100; id++)
		expect(soda_streams_note(&w.st, id, 0, CHUNKS, 0, true), 0, 0, 0);
	expect(fault(100), 0, 0, 0);
}

static void small_windows(void **state)
{
	for (uint32_t max = 1; max <= 3; max++) {
		uint32_t longest = 0;

		begin();
		for (int64_t id = 0; id < 100; id++) {
			struct soda_plan p = soda_streams_note(&w.st, id, 0, CHUNKS, max, false);

			obey(&p);
			longest = p.n > longest ? p.n : longest;
		}
		assert_int_equal(longest, max);
	}
}

/* Streams that meet, and plans that are cut: what is useless is never less than nothing. */
static void useless_with_cuts(void **state)
{
	unsigned seed = 1;

	begin();
	for (int i = 0; i < 200000; i++) {
		struct soda_plan p =
			soda_streams_note(&w.st, rand_r(&seed) % 64, 0, 64, WINDOW, false);

		assert_in_range(p.useless, 0, 64);
		if (p.n && rand_r(&seed) % 2)
			soda_streams_cut(&w.st, &p, (uint32_t)rand_r(&seed) % p.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growth),
		cmocka_unit_test(sequential),
		cmocka_unit_test(strides),
		cmocka_unit_test(interleaved),
		cmocka_unit_test(object_end),
		cmocka_unit_test(random_gives_nothing),
		cmocka_unit_test(useless_is_accounted),
		cmocka_unit_test(useless_with_cuts),
		cmocka_unit_test(cut),
		cmocka_unit_test(eager),
		cmocka_unit_test(small_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
