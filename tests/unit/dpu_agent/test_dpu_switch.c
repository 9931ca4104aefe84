/* SPDX-License-Identifier: BSD-3-Clause */
/* The prefetcher on the fake server (dpu_sim.h): the switch at work, and coherence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "dpu_agent/cache/policy/plugin.h"
#include "unit/fakes/dpu_sim.h"

enum { CHUNKS = 16, ENTRY = CHUNKS * SIM_PAGE, SLOTS = 64, REGION = 16384 };

static struct sim_config config(const struct soda_cache_policy *policy, bool always)
{
	return (struct sim_config){ .policy = policy,
				    .cache_bytes = SLOTS * (uint64_t)ENTRY,
				    .entry_bytes = ENTRY,
				    .fill_takes = 8,
				    .workers = 2,
				    .always = always,
				    .limit = SODA_LIMIT_MODEL,
				    .ratio = 0.1 };
}

static void one(struct sim *sim, uint32_t page, bool write)
{
	sim_do(sim, &(struct sim_access){ 0, page, 1, write });
}

static struct soda_owner_stats first_owner;

static void keep_first(void *arg, const struct soda_owner_stats *o)
{
	int *n = arg;

	if (!(*n)++)
		first_owner = *o;
}

static struct soda_owner_stats look(struct sim *sim)
{
	int n = 0;

	soda_prefetch_each(sim_prefetch(sim), keep_first, &n);
	assert_int_equal(n, 1);
	return first_owner;
}

static void alternate(const struct soda_cache_policy *policy)
{
	struct sim_config cfg = config(policy, false);
	uint32_t pages[SIM_REGIONS] = { REGION };
	struct sim *sim = sim_open(&cfg, pages);
	uint64_t dice = seed_of();
	struct sim_result r;

	for (uint32_t turn = 0; turn < 4; turn++) {
		struct soda_owner_stats o;

		for (uint32_t i = 0; i < REGION / 4; i++)
			one(sim, turn * (REGION / 4) + i, false);
		o = look(sim);
		assert_true(o.model.on);
		assert_true(o.model.hit_rate > 0.9);
		assert_true(o.model.gain > o.model.ratio);
		assert_int_equal(o.ghosts, 0);
		assert_int_equal(o.model.switched_on, turn + 1);
		for (uint32_t i = 0; i < REGION / 4; i++)
			one(sim, (uint32_t)(roll(&dice) % REGION), false);
		o = look(sim);
		assert_false(o.model.on);
		assert_true(o.model.gain < o.model.ratio);
		assert_int_equal(o.model.switched_off, turn + 1);
	}
	sim_get(sim, &r);
	assert_int_equal(r.stats.switched_on, 4);
	assert_int_equal(r.stats.owners_on, 0);
	sim_close(sim);
}

static void it_switches_both_ways(void **state)
{
	alternate(&soda_cache_policy_stream);
	alternate(&soda_cache_policy_random);
}

static void advice_outranks_the_switch(void **state)
{
	struct sim_config cfg = config(NULL, false);
	uint32_t pages[SIM_REGIONS] = { REGION };
	struct sim *sim = sim_open(&cfg, pages);
	struct sim_result before, after;

	for (uint32_t i = 0; i < 1024; i++)
		one(sim, i, false);
	sim_get(sim, &before);
	assert_true(before.hits > 900);
	soda_prefetch_advise(sim_prefetch(sim), sim_owner(sim, 0), SODA_OWNER_UNCACHED);
	for (uint32_t i = 900; i < 1200; i++)
		one(sim, i, false);
	sim_get(sim, &after);
	assert_int_equal(after.misses - before.misses, 300);
	assert_int_equal(after.fetched, before.fetched);
	assert_int_equal(after.stats.cache.entries, 0);
	sim_close(sim);

	/* CACHED does not wait for the model. */
	sim = sim_open(&cfg, pages);
	soda_prefetch_advise(sim_prefetch(sim), sim_owner(sim, 0), SODA_OWNER_CACHED);
	for (uint32_t i = 0; i < 8; i++)
		one(sim, i, false);
	sim_get(sim, &after);
	assert_true(after.fetched > 0);
	assert_int_equal(after.stats.owners_on, 1);
	sim_close(sim);
}

static void writes_are_never_hidden_by_the_cache(void **state)
{
	struct sim_config cfg = config(NULL, true);
	uint32_t pages[SIM_REGIONS] = { 4 * SLOTS * CHUNKS };
	struct sim *sim = sim_open(&cfg, pages);
	uint64_t dice = seed_of();
	struct sim_result r;
	uint32_t at = 0;

	/* Streams and spots, a third of it writes; sim checks each hit. */
	for (int i = 0; i < 100000; i++) {
		if (roll(&dice) % 64 == 0)
			at = (uint32_t)(roll(&dice) % pages[0]);
		one(sim, at, roll(&dice) % 3 == 0);
		at = (at + (roll(&dice) % 4 != 0)) % pages[0];
	}
	sim_get(sim, &r);
	assert_true(r.hits > 10000 && r.late > 100);
	assert_true(r.stats.cache.writes > 10000);
	sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_switches_both_ways),
		cmocka_unit_test(advice_outranks_the_switch),
		cmocka_unit_test(writes_are_never_hidden_by_the_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
