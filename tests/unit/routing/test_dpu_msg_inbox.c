/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's inbox: packets come out as they went in, round the ring's end, and phases apart. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "routing/inbox.h"

enum { SIZE = 4096, HEAD = SODA_WIRE_MSG_PACKET_BYTES };

static struct soda_inbox in;
static uint8_t ring[SIZE], out[2 * SIZE];
static bool ended, made_room;
static struct soda_inbox_view view;
static uint64_t at; /* what has arrived, as the rank says, and so the next */
static uint32_t ends;

static int setup(void **state)
{
	memset(ring, 0xee, sizeof(ring));
	soda_inbox_init(&in, ring, SIZE);
	at = ends = 0;
	view = (struct soda_inbox_view){ 0 };
	return 0;
}

static int teardown(void **state)
{
	soda_inbox_destroy(&in);
	return 0;
}

/* A packet whose bytes are all `what`. */
static bool put(uint32_t from, uint32_t bytes, uint8_t what)
{
	static uint8_t runs[SIZE];
	struct soda_wire_msg_packet p = { 99, bytes, what, 0 };

	memset(runs, what, bytes);
	return soda_inbox_put(&in, from, &p, runs);
}

/* Show, and say what was shown before. What is shown arrives. */
static uint32_t take(uint32_t room)
{
	uint32_t bytes;

	assert_int_equal(soda_inbox_arrived(&in, &view, at, ends, &made_room), 0);
	bytes = soda_inbox_show(&in, &view, out, room, &ended);
	at += bytes;
	ends += ended;
	return bytes;
}

/* The packet at out + where. Returns where the next one is. */
static uint32_t check(uint32_t where, uint32_t from, uint32_t bytes, uint8_t what)
{
	struct soda_wire_msg_packet p;

	assert_int_equal(soda_wire_get_msg_packet(out + where, sizeof(out) - where, &p), 0);
	assert_int_equal(p.rank, from);
	assert_int_equal(p.bytes, bytes);
	assert_int_equal(p.messages, what);
	for (uint32_t i = 0; i < bytes; i++)
		assert_int_equal(out[where + HEAD + i], what);
	return where + HEAD + bytes;
}

/* Sizes that end everywhere in the ring, also within a head. */
static void test_round(void **state)
{
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t a = i * 8 % 1000 / 8 * 8, b = i * 56 % 2000 / 8 * 8;

		assert_true(put(i % 7, a, (uint8_t)i));
		assert_true(put(1, b, (uint8_t)(i + 1)));
		assert_int_equal(take(sizeof(out)), a + b + 2 * HEAD);
		assert_int_equal(check(check(0, i % 7, a, (uint8_t)i), 1, b, (uint8_t)(i + 1)),
				 a + b + 2 * HEAD);
		assert_false(ended || made_room);
		assert_int_equal(soda_inbox_arrived(&in, &view, at, ends, &made_room), 0);
	}
	assert_int_equal(take(sizeof(out)), 0);
}

/* All of the ring can be used; who was refused is told of room, once. */
static void test_full(void **state)
{
	assert_true(put(0, SIZE - 2 * HEAD, 1));
	assert_true(put(1, 0, 2));
	assert_false(put(2, 0, 3));
	assert_false(put(3, 8, 3));
	assert_int_equal(take(HEAD), 0); /* no room for the first one */
	assert_false(made_room);
	assert_int_equal(take(SIZE - HEAD), SIZE - HEAD);
	assert_false(made_room); /* it may have to be shown again */
	assert_int_equal(take(SIZE), HEAD);
	assert_true(made_room);
	assert_int_equal(take(SIZE), 0);
	assert_false(made_room);
	assert_true(put(2, SIZE - HEAD, 3));
	take(SIZE);
	check(0, 2, SIZE - HEAD, 3);
}

/* What is put after an end is not taken before it was told. */
static void test_end(void **state)
{
	assert_true(put(0, 8, 1));
	assert_true(put(0, 16, 2));
	soda_inbox_end(&in);
	assert_true(put(0, 24, 3));
	assert_int_equal(take(HEAD + 8), HEAD + 8);
	assert_false(ended);
	assert_int_equal(take(SIZE), HEAD + 16);
	assert_true(ended);
	assert_int_equal(take(SIZE), HEAD + 24);
	assert_false(ended);
	soda_inbox_end(&in); /* of an empty one */
	assert_true(soda_inbox_has_locked(&in, &view));
	assert_int_equal(take(SIZE), 0);
	assert_true(ended);
	assert_int_equal(take(SIZE), 0);
	assert_false(soda_inbox_has_locked(&in, &view));
}

/* Of a new connection: what has not arrived by the older one is shown again. */
static uint32_t show_again(uint32_t room)
{
	view = (struct soda_inbox_view){ 0 };
	return soda_inbox_show(&in, &view, out, room, &ended);
}

/* What has not arrived is shown again, and perhaps more; nothing else can have arrived. */
static void test_again(void **state)
{
	assert_true(put(0, 8, 1));
	assert_true(put(0, 16, 2));
	assert_int_equal(show_again(HEAD + 8), HEAD + 8);
	assert_int_equal(show_again(HEAD + 8), HEAD + 8);
	check(0, 0, 8, 1);
	assert_int_equal(soda_inbox_arrived(&in, &view, HEAD, 0, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, 1, 0, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, UINT64_MAX, 0, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, 2 * HEAD + 24, 0, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 1, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 0, &made_room), 0);
	soda_inbox_end(&in);
	assert_int_equal(show_again(SIZE), 2 * HEAD + 24);
	assert_true(ended);
	/* an older connection was shown less, and that is what has arrived */
	assert_int_equal(show_again(HEAD + 8), HEAD + 8);
	assert_int_equal(soda_inbox_arrived(&in, &view, HEAD + 16, 0, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 1, &made_room), -EPROTO);
	assert_true(put(0, 24, 3));
	assert_int_equal(show_again(SIZE), 2 * HEAD + 24);
	assert_true(ended);
	assert_int_equal(soda_inbox_arrived(&in, &view, 2 * HEAD + 24, 2, &made_room), -EPROTO);
	assert_int_equal(soda_inbox_arrived(&in, &view, 2 * HEAD + 24, 1, &made_room), 0);
	assert_int_equal(show_again(SIZE), HEAD + 24);
	assert_false(ended);
	check(0, 0, 24, 3);
}

/* Several PULLs under way: each is shown what is behind that of the one before, and none twice. */
static void test_ahead(void **state)
{
	assert_true(put(0, 8, 1));
	assert_true(put(0, 16, 2));
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 0, &made_room), 0);
	assert_int_equal(soda_inbox_show(&in, &view, out, HEAD + 8, &ended), HEAD + 8);
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 0, &made_room), 0);
	assert_int_equal(soda_inbox_show(&in, &view, out, SIZE, &ended), HEAD + 16);
	check(0, 0, 16, 2);
	assert_int_equal(soda_inbox_show(&in, &view, out, SIZE, &ended), 0);
	/* it waits, unless somebody else does for what has been shown to arrive */
	assert_false(soda_inbox_has_locked(&in, &view));
	assert_false(put(0, SIZE - HEAD, 3));
	assert_true(soda_inbox_has_locked(&in, &view));
	assert_int_equal(soda_inbox_arrived(&in, &view, 2 * HEAD + 24, 0, &made_room), 0);
	assert_true(made_room);
	assert_false(soda_inbox_has_locked(&in, &view));
}

/* A PULL under way behind one that was told an end brings nothing: it does not know of it. */
static void test_ahead_of_end(void **state)
{
	assert_true(put(0, 8, 1));
	soda_inbox_end(&in);
	assert_true(put(0, 16, 2));
	soda_inbox_end(&in);
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 0, &made_room), 0);
	assert_int_equal(soda_inbox_show(&in, &view, out, SIZE, &ended), HEAD + 8);
	assert_true(ended);
	assert_int_equal(soda_inbox_arrived(&in, &view, 0, 0, &made_room), 0);
	assert_true(soda_inbox_has_locked(&in, &view)); /* nor does it wait */
	assert_int_equal(soda_inbox_show(&in, &view, out, SIZE, &ended), 0);
	assert_false(ended);
	assert_int_equal(soda_inbox_arrived(&in, &view, HEAD + 8, 1, &made_room), 0);
	assert_int_equal(soda_inbox_show(&in, &view, out, SIZE, &ended), HEAD + 16);
	assert_true(ended);
	check(0, 0, 16, 2);
}

/* A connection that is lost may still be answered: it neither shows nor says what cannot be. */
static void test_older(void **state)
{
	struct soda_inbox_view older;

	assert_true(put(0, 8, 1));
	assert_true(put(0, 16, 2));
	assert_int_equal(soda_inbox_show(&in, &view, out, HEAD + 8, &ended), HEAD + 8);
	older = view;
	assert_int_equal(show_again(SIZE), 2 * HEAD + 24);
	soda_inbox_end(&in);
	assert_int_equal(soda_inbox_show(&in, &view, out, SIZE, &ended), 0);
	assert_true(ended);
	assert_int_equal(soda_inbox_arrived(&in, &view, 2 * HEAD + 24, 1, &made_room), 0);
	assert_true(put(0, 24, 3));
	assert_int_equal(soda_inbox_show(&in, &older, out, SIZE, &ended), HEAD + 24);
	check(0, 0, 24, 3);
}

/* A link looks at the oldest packets, and drops those that were taken. */
static void test_link(void **state)
{
	uint64_t behind;

	for (uint8_t i = 1; i < 6; i++)
		assert_true(put(i, 8u * i, i));
	assert_int_equal(soda_inbox_look(&in, 0, out, SIZE, 2, &behind), 2 * HEAD + 24);
	assert_int_equal(behind, 3 * HEAD + 96);
	/* the next ones, before it is known what has become of these */
	assert_int_equal(soda_inbox_look(&in, 2 * HEAD + 24, out, SIZE, 1, &behind), HEAD + 24);
	assert_int_equal(behind, 2 * HEAD + 72);
	check(0, 3, 24, 3);
	assert_int_equal(soda_inbox_drop(&in, HEAD + 8, &made_room), HEAD + 8);
	assert_false(made_room);
	assert_int_equal(soda_inbox_look(&in, HEAD + 8, out, 2 * HEAD + 40 + 8, 9, &behind),
			 2 * HEAD + 40);
	check(check(0, 2, 16, 2), 3, 24, 3);
	while (put(9, 512, 9))
		;
	soda_inbox_drop(&in, HEAD + 16, &made_room);
	assert_true(made_room);
	soda_inbox_drop(&in, 0, &made_room);
	assert_false(made_room);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_round, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ahead_of_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_older, setup, teardown),
		cmocka_unit_test_setup_teardown(test_link, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
