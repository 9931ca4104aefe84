/* SPDX-License-Identifier: BSD-3-Clause */
/* When caching pays: bandwidths, the switch, ghosts, and the recent list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dpu_agent/cache/dynamic/ghost.h"
#include "dpu_agent/cache/dynamic/model.h"
#include "dpu_agent/cache/dynamic/recent_list.h"

enum { CHUNK = 64 << 10, ENTRY = 1 << 20 };

static void rates_are_means_of_the_last(void **state)
{
	struct soda_rate rate = { 0 };

	assert_int_equal(soda_rate_get(&rate), 0);
	soda_rate_note(&rate, 1000000, 1000000);
	assert_int_equal(soda_rate_get(&rate), 1000000000);
	soda_rate_note(&rate, 3000000, 1000000);
	assert_int_equal(soda_rate_get(&rate), 2000000000);
	for (int i = 0; i < 200; i++)
		soda_rate_note(&rate, 1000, 1000000);
	assert_in_range(soda_rate_get(&rate), 1000000, 1100000);
	soda_rate_note(&rate, 1000, 0); /* a clock that stood still */
	assert_true(soda_rate_get(&rate) > 1000000);
}

static void set_rates(struct soda_model_rates *rates, uint64_t net, uint64_t intra)
{
	*rates = (struct soda_model_rates){ 0 };
	soda_rate_note(&rates->net, net, 1000000000);
	soda_rate_note(&rates->intra, intra, 1000000000);
}

/* n requests, of which h in 100 hit, each causing `fetched` bytes. How often it switched. */
static int feed(struct soda_model *m, const struct soda_model_rates *rates, int n, int h,
		uint64_t fetched)
{
	int switches = 0;

	for (int i = 0; i < n; i++)
		switches += soda_model_note(m, rates, CHUNK, i * 37 % 100 < h ? CHUNK : 0, fetched);
	return switches;
}

static void off_until_both_bandwidths_are_known(void **state)
{
	struct soda_model_rates rates = { 0 };
	struct soda_model m = { 0 };

	assert_true(soda_model_ratio(&rates) < 0);
	soda_rate_note(&rates.net, 1, 1);
	assert_true(soda_model_ratio(&rates) < 0);
	assert_int_equal(feed(&m, &rates, 1000, 100, CHUNK), 0);
	assert_false(m.on);
}

static void a_scan_pays_and_random_does_not(void **state)
{
	struct soda_model_rates rates;
	struct soda_model m = { 0 };

	set_rates(&rates, 250000000, 5000000000);
	assert_int_equal(feed(&m, &rates, SODA_MODEL_WINDOW, 94, CHUNK), 1);
	assert_true(m.on);
	assert_int_equal(feed(&m, &rates, 1000, 94, CHUNK), 0);
	assert_true(m.gain > 0.8 && m.ratio > 0.049 && m.ratio < 0.051);
	/* Each miss fetches an entry. */
	assert_int_equal(feed(&m, &rates, 2 * SODA_MODEL_WINDOW, 6, ENTRY), 1);
	assert_false(m.on);
	assert_int_equal(feed(&m, &rates, 5000, 6, ENTRY), 0);
	assert_int_equal(m.switched_on, 1);
	assert_int_equal(m.switched_off, 1);
}

/* The same hits pay on a slow network and do not on a fast one. */
static void the_threshold_is_the_ratio(void **state)
{
	struct soda_model_rates slow, fast;
	struct soda_model m = { 0 };

	set_rates(&slow, 1, 10);
	set_rates(&fast, 8, 10);
	assert_int_equal(feed(&m, &fast, 3200, 60, 0), 0);
	assert_int_equal(feed(&m, &slow, 3200, 60, 0), 1);
	assert_true(m.on);
	assert_int_equal(feed(&m, &fast, 3200, 60, 0), 1);
	assert_false(m.on);
}

static void between_the_thresholds_nothing_changes(void **state)
{
	struct soda_model_rates rates;
	struct soda_model off = { 0 }, on = { 0 };

	set_rates(&rates, 50, 100);
	feed(&on, &rates, 100 * SODA_MODEL_WINDOW, 80, 0);
	assert_true(on.on);
	/* 50 of 100 is R; 100 and 32 have 4 in common: feed whole periods. */
	assert_int_equal(feed(&on, &rates, 3200, 53, 0), 0);
	assert_int_equal(feed(&off, &rates, 3200, 47, 0), 0);
	assert_true(on.on);
	assert_false(off.on);
}

static void who_is_switched_off_soon_waits_longer(void **state)
{
	struct soda_model_rates rates;
	struct soda_model m = { 0 };
	int before = 0, waits[5];

	set_rates(&rates, 10, 100);
	for (int turn = 0; turn < 5; turn++) {
		int n = 0;

		while (!m.on) {
			feed(&m, &rates, SODA_MODEL_WINDOW, 90, 0);
			assert_true(++n < 1000);
		}
		waits[turn] = n;
		while (m.on)
			feed(&m, &rates, SODA_MODEL_WINDOW, 0, ENTRY);
	}
	for (int turn = 0; turn < 5; turn++) {
		assert_true(waits[turn] >= before);
		before = waits[turn];
	}
	assert_true(waits[4] > waits[0]);
	assert_true(m.hold > 0);
}

static void what_the_ghosts_had_is_free_of_charge(void **state)
{
	struct soda_model_rates rates;
	struct soda_model charged = { 0 }, credited = { 0 };

	set_rates(&rates, 10, 100);
	feed(&charged, &rates, 3200, 90, 0);
	feed(&credited, &rates, 3200, 90, 0);
	soda_model_credit(&credited, 64ull * ENTRY);
	/* A cold cache: few hits, everything is fetched. */
	assert_int_equal(feed(&charged, &rates, 64, 30, ENTRY), 1);
	assert_int_equal(feed(&credited, &rates, 64, 30, ENTRY), 0);
}

static void ghosts_remember_as_many_as_fit(void **state)
{
	struct soda_ghost *g = soda_ghost_create(64, 100000, 3);
	unsigned n = 0;

	assert_non_null(g);
	for (uint64_t e = 0; e < 1000; e++)
		if (!soda_ghost_has(g, e))
			soda_ghost_insert(g, e);
	for (uint64_t e = 0; e < 1000; e++)
		n += soda_ghost_has(g, e);
	assert_int_equal(n, soda_ghost_count(g));
	assert_in_range(n, 48, 64);
	assert_true(soda_ghost_has(g, 999));
	soda_ghost_clear(g);
	assert_int_equal(soda_ghost_count(g), 0);
	assert_false(soda_ghost_has(g, 999));
	soda_ghost_destroy(g);
}

static void a_small_owner_has_a_ghost_for_all(void **state)
{
	struct soda_ghost *g = soda_ghost_create(1024, 130, 3);

	assert_non_null(g);
	for (uint64_t e = 0; e < 130; e++) {
		assert_false(soda_ghost_has(g, e));
		soda_ghost_insert(g, e);
	}
	for (uint64_t e = 0; e < 130; e++)
		assert_true(soda_ghost_has(g, e));
	assert_int_equal(soda_ghost_count(g), 130);
	assert_true(soda_ghost_bytes(1024, 130) < 128);
	assert_true(soda_ghost_bytes(1024, 1 << 30) < 9000);
	soda_ghost_destroy(g);
}

static void the_recent_list_keeps_the_last(void **state)
{
	static struct soda_recent_list list;
	struct soda_recent items[SODA_RECENT_MAX], item = { .bytes = 1 };

	soda_recent_init(&list);
	assert_int_equal(soda_recent_take(&list, items, 8), 0);
	for (uint64_t i = 0; i < SODA_RECENT_MAX + 10; i++) {
		item.offset = i;
		assert_int_equal(soda_recent_push(&list, &item),
				 i < SODA_RECENT_MAX ? i + 1 : SODA_RECENT_MAX);
	}
	assert_int_equal(list.lost, 10);
	assert_int_equal(soda_recent_take(&list, items, 3), 3);
	assert_int_equal(items[0].offset, 10);
	assert_int_equal(items[2].offset, 12);
	assert_int_equal(soda_recent_take(&list, items, SODA_RECENT_MAX), SODA_RECENT_MAX - 3);
	assert_int_equal(items[SODA_RECENT_MAX - 4].offset, SODA_RECENT_MAX + 9);
}

static void what_a_client_has_is_known_in_parts(void **state)
{
	enum { UNIT = 65536, PART = 16384 };
	struct soda_recent items[2] = {
		{ .offset = 10 * UNIT, .residency = { { 1ull << 5, 1 }, 10 * UNIT, UNIT } },
		{ .offset = 12 * UNIT, .residency = { { 0, 0 }, 12 * UNIT, UNIT } },
	};
	struct soda_recent untold = { .offset = 10 * UNIT };

	/* its own, the one before, and the sixth behind */
	assert_true(soda_recent_resident(&items[0], 0, PART) == 0xffull << 36);
	assert_true(soda_recent_resident(&items[0], 16 * UNIT, PART) == 0xf);
	assert_true(soda_recent_resident(&items[0], 75 * UNIT, PART) == 0);
	/* parts of several chunks: all of them, or not */
	assert_true(soda_recent_resident(&items[0], 8 * UNIT, 2 * UNIT) == 0);
	assert_true(soda_recent_resident(&items[0], 9 * UNIT, 2 * UNIT) == 1);
	assert_true(soda_recent_resident(&untold, 0, PART) == 0);
	/* a later one says that the sixth is gone */
	soda_recent_refresh(items, 2);
	assert_true(soda_recent_resident(&items[0], 16 * UNIT, PART) == 0);
	/* what others say does not count, nor what is far away */
	items[0].residency.near.after = 1ull << 5;
	items[0].residency.at = items[0].offset;
	items[1].owner = 1;
	soda_recent_refresh(items, 2);
	assert_true(soda_recent_resident(&items[0], 16 * UNIT, PART) == 0xf);
	items[1].owner = 0;
	items[1].offset = 80 * UNIT;
	soda_recent_refresh(items, 2);
	assert_true(soda_recent_resident(&items[0], 16 * UNIT, PART) == 0xf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rates_are_means_of_the_last),
		cmocka_unit_test(off_until_both_bandwidths_are_known),
		cmocka_unit_test(a_scan_pays_and_random_does_not),
		cmocka_unit_test(the_threshold_is_the_ratio),
		cmocka_unit_test(between_the_thresholds_nothing_changes),
		cmocka_unit_test(who_is_switched_off_soon_waits_longer),
		cmocka_unit_test(what_the_ghosts_had_is_free_of_charge),
		cmocka_unit_test(ghosts_remember_as_many_as_fit),
		cmocka_unit_test(a_small_owner_has_a_ghost_for_all),
		cmocka_unit_test(what_a_client_has_is_known_in_parts),
		cmocka_unit_test(the_recent_list_keeps_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
