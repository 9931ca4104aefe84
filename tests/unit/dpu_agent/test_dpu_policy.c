/* SPDX-License-Identifier: BSD-3-Clause */
/* Policies: the guard against nonsense, and what the built-in ones decide. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "dpu_agent/cache/policy/plugin.h"
#include "dpu_agent/cache/policy/policy_guard.h"

enum { SLOTS = 64, ENTRY = 1 << 20, CHUNK = 64 << 10 };

static bool used[SLOTS], full[SLOTS];
static unsigned lines;
static char last_line[512];

static void listen_to_log(int level, const char *line, void *arg)
{
	lines++;
	strncpy(last_line, line, sizeof(last_line) - 1);
}

static bool evictable(const void *cache, uint32_t slot)
{
	return slot < SLOTS && full[slot] && !used[slot];
}

static const struct soda_cache_setup setup = {
	.slots = SLOTS, .entry_bytes = ENTRY, .seed = 7, .evictable = evictable
};

static struct soda_guard guard;

static int reset(void **state)
{
	memset(used, 0, sizeof(used));
	memset(full, 0, sizeof(full));
	lines = 0;
	soda_log_setup("test", SODA_LOG_LVL_INFO, listen_to_log, NULL);
	return 0;
}

static int done(void **state)
{
	soda_guard_destroy(&guard);
	return 0;
}

static void start(const struct soda_cache_policy *policy)
{
	assert_int_equal(soda_guard_init(&guard, policy, &setup), 0);
}

static void fill(uint32_t slot, uint32_t owner, uint64_t entry)
{
	struct soda_cache_key key = { owner, entry };

	full[slot] = true;
	soda_guard_fill(&guard, slot, &key, SODA_CACHE_WHOLE);
}

static void fill_all(void)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		fill(slot, 1, slot);
}

static uint32_t predict(uint64_t entry, uint32_t chunk, uint32_t slot,
			struct soda_cache_want out[SODA_CACHE_PREDICT_MAX])
{
	struct soda_cache_touch touch = { .key = { 1, entry },
					  .offset = chunk * CHUNK,
					  .bytes = CHUNK,
					  .slot = slot,
					  .entries = 1000 };

	return soda_guard_predict(&guard, &touch, out);
}

/* A policy whose answers the test sets. */
static uint32_t bad_victim, bad_n;
static uint64_t bad_entry, bad_sectors = SODA_CACHE_WHOLE;

static size_t bad_state_bytes(const struct soda_cache_setup *s)
{
	return 64;
}

static void bad_init(void *state, const struct soda_cache_setup *s)
{
}

static bool bad_admit(void *state, const struct soda_cache_key *key)
{
	return true;
}

static void bad_hit(void *state, const struct soda_cache_touch *touch)
{
}

static void bad_fill(void *state, uint32_t slot, const struct soda_cache_key *key, uint64_t sectors)
{
}

static uint32_t give_victim(void *state)
{
	return bad_victim;
}

static void bad_drop(void *state, uint32_t slot)
{
}

static uint32_t give_entry(void *state, const struct soda_cache_touch *touch,
			   struct soda_cache_want *wants_p, uint32_t max)
{
	wants_p[0] = (struct soda_cache_want){ .entry = bad_entry, .sectors = bad_sectors };
	return bad_n;
}

static struct soda_cache_policy bad = {
	.abi = SODA_CACHE_POLICY_ABI,
	.struct_bytes = sizeof(struct soda_cache_policy),
	.name = "bad",
	.state_bytes = bad_state_bytes,
	.init = bad_init,
	.admit = bad_admit,
	.hit = bad_hit,
	.fill = bad_fill,
	.victim = give_victim,
	.drop = bad_drop,
	.predict = give_entry,
};

static void builtin_ones_have_names(void **state)
{
	assert_ptr_equal(soda_cache_policy_builtin("random"), &soda_cache_policy_random);
	assert_ptr_equal(soda_cache_policy_builtin("stream"), &soda_cache_policy_stream);
	assert_null(soda_cache_policy_builtin("lru"));
}

static void sense_passes(void **state)
{
	struct soda_cache_want out[SODA_CACHE_PREDICT_MAX];

	start(&bad);
	fill(3, 1, 3);
	bad_victim = 3;
	assert_int_equal(soda_guard_victim(&guard), 3);
	bad_victim = SODA_CACHE_NONE;
	assert_int_equal(soda_guard_victim(&guard), SODA_CACHE_NONE);
	bad_n = 1;
	bad_entry = 999;
	assert_int_equal(predict(1, 0, SODA_CACHE_NONE, out), 1);
	assert_int_equal(out[0].entry, 999);
	assert_int_equal(guard.nonsense, 0);
}

static void victims_that_cannot_be_are_refused(void **state)
{
	start(&bad);
	fill(3, 1, 3);
	bad_victim = SLOTS;
	assert_int_equal(soda_guard_victim(&guard), SODA_CACHE_NONE);
	assert_true(guard.nonsense > 0);
	guard.nonsense = 0;
	bad_victim = 4; /* empty */
	assert_int_equal(soda_guard_victim(&guard), SODA_CACHE_NONE);
	assert_true(guard.nonsense > 0);
	guard.nonsense = 0;
	bad_victim = 3;
	used[3] = true;
	assert_int_equal(soda_guard_victim(&guard), SODA_CACHE_NONE);
	assert_int_equal(guard.nonsense, 1);
	used[3] = false;
	soda_guard_drop(&guard, 3);
	assert_int_equal(soda_guard_victim(&guard), SODA_CACHE_NONE);
	assert_true(guard.nonsense > 1);
	assert_false(guard.replaced);
	assert_int_equal(lines, 0);
}

static void predictions_that_cannot_be_are_refused(void **state)
{
	struct soda_cache_want out[SODA_CACHE_PREDICT_MAX];

	start(&bad);
	bad_n = 1;
	bad_entry = 1000;
	assert_int_equal(predict(1, 0, SODA_CACHE_NONE, out), 0);
	bad_n = SODA_CACHE_PREDICT_MAX + 1;
	assert_int_equal(predict(1, 0, SODA_CACHE_NONE, out), 0);
	bad_n = 1;
	bad_entry = 5;
	bad_sectors = 0;
	assert_int_equal(predict(1, 0, SODA_CACHE_NONE, out), 0);
	bad_sectors = SODA_CACHE_WHOLE;
	assert_int_equal(guard.nonsense, 3);
}

static void who_goes_on_with_it_is_replaced(void **state)
{
	struct soda_cache_want out[SODA_CACHE_PREDICT_MAX];

	start(&bad);
	fill(3, 1, 3);
	bad_n = 1;
	bad_entry = UINT64_MAX;
	for (int i = 0; i < SODA_GUARD_PATIENCE - 1; i++)
		assert_int_equal(predict(1, 0, SODA_CACHE_NONE, out), 0);
	assert_int_equal(lines, 0);
	assert_ptr_equal(guard.policy, &bad);
	predict(1, 0, SODA_CACHE_NONE, out);
	assert_true(guard.replaced);
	assert_int_equal(lines, 1);
	assert_non_null(strstr(last_line, "'bad'"));
	assert_non_null(strstr(last_line, "'random'"));
	/* The other one goes on with what is there. */
	assert_int_equal(soda_guard_victim(&guard), 3);
	assert_int_equal(predict(5, 0, SODA_CACHE_NONE, out), 1);
	assert_int_equal(out[0].entry, 5);
	assert_int_equal(lines, 1);
}

static size_t huge_state(const struct soda_cache_setup *s)
{
	return 64 << 20;
}

static void too_much_state_is_refused(void **state)
{
	struct soda_cache_policy greedy = bad;

	greedy.state_bytes = huge_state;
	assert_int_equal(soda_guard_init(&guard, &greedy, &setup), -EINVAL);
	assert_int_equal(lines, 1);
	assert_non_null(strstr(last_line, "67108864"));
}

static void stale_hits_are_not_told(void **state)
{
	struct soda_cache_touch touch = {
		.key = { 1, 3 }, .bytes = CHUNK, .slot = 3, .entries = 1000
	};

	start(&soda_cache_policy_stream);
	fill(3, 1, 3);
	soda_guard_hit(&guard, &touch);
	assert_int_equal(touch.slot, 3);
	touch.key.entry = 4;
	soda_guard_hit(&guard, &touch);
	assert_int_equal(touch.slot, SODA_CACHE_NONE);
	soda_guard_drop(&guard, 3);
	touch = (struct soda_cache_touch){ .key = { 1, 3 }, .bytes = CHUNK, .slot = 3 };
	soda_guard_hit(&guard, &touch);
	assert_int_equal(touch.slot, SODA_CACHE_NONE);
}

/* Of both: with one slot free to go it is found; with none there is none. */
static void the_only_victim_is_found(const struct soda_cache_policy *policy)
{
	for (uint32_t only = 0; only < SLOTS; only += 7) {
		start(policy);
		fill_all();
		for (uint32_t slot = 0; slot < SLOTS; slot++)
			used[slot] = slot != only;
		assert_int_equal(soda_guard_victim(&guard), only);
		used[only] = true;
		assert_int_equal(soda_guard_victim(&guard), SODA_CACHE_NONE);
		assert_int_equal(guard.nonsense, 0);
		done(NULL);
		reset(NULL);
	}
}

static void random_finds_the_only_victim(void **state)
{
	the_only_victim_is_found(&soda_cache_policy_random);
}

static void stream_finds_the_only_victim(void **state)
{
	the_only_victim_is_found(&soda_cache_policy_stream);
}

static void random_takes_each_in_turn(void **state)
{
	bool hit[SLOTS] = { false };
	int distinct = 0;

	start(&soda_cache_policy_random);
	fill_all();
	for (int i = 0; i < 40 * SLOTS; i++) {
		uint32_t slot = soda_guard_victim(&guard);

		assert_true(slot < SLOTS);
		distinct += !hit[slot];
		hit[slot] = true;
	}
	assert_int_equal(distinct, SLOTS);
}

static void random_predicts_the_entry_around(void **state)
{
	struct soda_cache_want out[SODA_CACHE_PREDICT_MAX];

	start(&soda_cache_policy_random);
	assert_int_equal(predict(17, 3, SODA_CACHE_NONE, out), 1);
	assert_int_equal(out[0].entry, 17);
	assert_int_equal(predict(17, 4, 2, out), 0); /* it is there */
}

static void stream_runs_ahead_in_both_directions(void **state)
{
	struct soda_cache_want out[SODA_CACHE_PREDICT_MAX];

	start(&soda_cache_policy_stream);
	assert_int_equal(predict(17, 0, SODA_CACHE_NONE, out), 0);
	assert_int_equal(predict(17, 1, SODA_CACHE_NONE, out), 0);
	assert_int_equal(predict(17, 2, SODA_CACHE_NONE, out), 2);
	assert_int_equal(out[0].entry, 17);
	assert_int_equal(out[1].entry, 18);
	for (uint32_t i = 3; i < 16; i++)
		predict(17, i, 0, out);
	assert_int_equal(predict(18, 0, 1, out), 3);
	assert_int_equal(out[0].entry, 19);
	assert_int_equal(out[2].entry, 21);

	predict(500, 15, SODA_CACHE_NONE, out);
	predict(500, 14, SODA_CACHE_NONE, out);
	assert_int_equal(predict(500, 13, SODA_CACHE_NONE, out), 2);
	assert_int_equal(out[1].entry, 499);
	/* Nothing before the first entry, nothing behind the last. */
	for (uint32_t i = 16; i-- > 0;)
		predict(1, i, SODA_CACHE_NONE, out);
	assert_int_equal(predict(0, 15, 1, out), 0);
	for (uint32_t i = 0; i < 16; i++)
		predict(999, i, SODA_CACHE_NONE, out);
	assert_int_equal(guard.nonsense, 0);
}

static void stream_wants_what_is_asked_for_often(void **state)
{
	struct soda_cache_want out[SODA_CACHE_PREDICT_MAX];

	start(&soda_cache_policy_stream);
	assert_int_equal(predict(17, 9, SODA_CACHE_NONE, out), 0);
	assert_int_equal(predict(17, 3, SODA_CACHE_NONE, out), 0);
	assert_int_equal(predict(17, 12, SODA_CACHE_NONE, out), 1);
	assert_int_equal(out[0].entry, 17);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, reset, done)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(builtin_ones_have_names),
		CASE(sense_passes),
		CASE(victims_that_cannot_be_are_refused),
		CASE(predictions_that_cannot_be_are_refused),
		CASE(who_goes_on_with_it_is_replaced),
		CASE(too_much_state_is_refused),
		CASE(stale_hits_are_not_told),
		CASE(random_finds_the_only_victim),
		CASE(stream_finds_the_only_victim),
		CASE(random_takes_each_in_turn),
		CASE(random_predicts_the_entry_around),
		CASE(stream_runs_ahead_in_both_directions),
		CASE(stream_wants_what_is_asked_for_often),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
