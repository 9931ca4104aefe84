/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The budget of what is fetched ahead: its arithmetic on a fake clock, and the prefetcher under it
 * on the fake server (dpu_sim.h), where every stretch of a run is held against what budget.h
 * promises.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dpu_agent/cache/policy/plugin.h"
#include "unit/fakes/dpu_sim.h"

/* An entry is sixteen chunks, and a chunk is a page here. */
enum { CHUNKS = 16, ENTRY = CHUNKS * SIM_PAGE, SLOTS = 64, REGION = 1 << 16 };

#define SECOND 1000000000ull
#define MIB (1ull << 20)

/* The arithmetic; an entry of 1 MiB. */

static struct soda_budget_pool pool;
static struct soda_budget owner;
static uint64_t now;

static void fresh(void)
{
	soda_budget_pool_init(&pool, MIB);
	owner = (struct soda_budget){ 0 };
	now = 1000 * SECOND;
}

static void demand(struct soda_budget *b, uint64_t bytes)
{
	soda_budget_note(b, &pool, now, &(struct soda_budget_news){ .asked = bytes });
}

/* What was bought is asked for. */
static void use(struct soda_budget *b, uint64_t bytes)
{
	struct soda_budget_news news = { .asked = bytes, .given = bytes, .used = bytes };

	soda_budget_note(b, &pool, now, &news);
}

static bool buy(struct soda_budget *b, uint64_t bytes)
{
	return soda_budget_buy(b, &pool, now, bytes);
}

/* All that it can. */
static uint64_t buy_all(struct soda_budget *b)
{
	uint64_t bought = 0;

	while (buy(b, MIB)) {
		bought += MIB;
		assert_true(bought <= 100 * MIB);
	}
	return bought;
}

static void show(struct soda_budget *b)
{
	for (int i = 0; i < SODA_BUDGET_SHOWN; i++) {
		assert_true(buy(b, MIB));
		use(b, MIB);
	}
}

static void a_newcomer_has_a_line(void **state)
{
	fresh();
	assert_int_equal(soda_budget_left(&owner, &pool), SODA_BUDGET_LINE * MIB);
	for (int i = 0; i < SODA_BUDGET_LINE; i++)
		assert_true(buy(&owner, MIB));
	assert_false(buy(&owner, 4096));
	assert_int_equal(owner.lent, SODA_BUDGET_LINE * MIB);
	assert_int_equal(pool.bytes, (SODA_BUDGET_POOL - SODA_BUDGET_LINE) * MIB);
	/* what is used buys as much again, for ever */
	for (int i = 0; i < 1000; i++) {
		use(&owner, MIB);
		assert_true(buy(&owner, MIB));
	}
	assert_false(owner.ended);
	use(&owner, SODA_BUDGET_LINE * MIB);
	assert_int_equal(owner.lent, 0);
}

/* Who wastes nothing may have more under way, and who wastes a little may not. */
static void trust_is_earned_and_lost(void **state)
{
	const uint64_t most = SODA_BUDGET_LINE + SODA_BUDGET_TRUST;
	struct soda_budget_news waste = { .unused = 7 * MIB };
	uint64_t owed;

	fresh();
	for (uint64_t n = 1; n <= SODA_BUDGET_TRUST * SODA_BUDGET_TRUST_USED; n++) {
		assert_true(buy(&owner, MIB));
		use(&owner, MIB);
		assert_true(soda_budget_left(&owner, &pool) >=
			    SODA_BUDGET_LINE * MIB + n * MIB / SODA_BUDGET_TRUST_USED);
	}
	assert_true(buy_all(&owner) >= most * MIB);
	assert_int_equal(owner.lent_reserve, SODA_BUDGET_TRUST * MIB);
	assert_in_range(owner.lent, (SODA_BUDGET_LINE - 1) * MIB, SODA_BUDGET_LINE * MIB);
	/* what comes back repays the pool first, which newcomers need */
	use(&owner, SODA_BUDGET_LINE * MIB);
	assert_int_equal(owner.lent, 0);
	assert_int_equal(pool.bytes, SODA_BUDGET_POOL * MIB);
	use(&owner, (SODA_BUDGET_TRUST - 7) * MIB);
	owed = owner.lent_reserve;
	assert_in_range(owed, 6 * MIB, 7 * MIB);
	/* more than 3 % of what was used: no trust is left, and no debt to the reserve, whose loss
	 * it is */
	soda_budget_note(&owner, &pool, now, &waste);
	assert_int_equal(owner.trust, 0);
	assert_int_equal(owner.lent_reserve, 0);
	assert_in_range(pool.reserve, SODA_BUDGET_RESERVE * MIB - owed,
			SODA_BUDGET_RESERVE * MIB - owed + MIB / 4);
	assert_true(soda_budget_left(&owner, &pool) < (SODA_BUDGET_LINE + 1) * MIB);
}

/* At the request a late hit counts as given; one that fails is charged again. */
static void what_was_not_given_after_all_is_charged(void **state)
{
	struct soda_budget_news failed = { .failed = 3 * MIB };

	fresh();
	assert_true(buy(&owner, MIB));
	soda_budget_note(&owner, &pool, now,
			 &(struct soda_budget_news){ .asked = MIB, .given = MIB, .used = MIB });
	assert_int_equal(owner.lent, 0);
	owner.own = 0;
	soda_budget_note(&owner, &pool, now, &failed);
	/* its line and its trust; what those do not pay is the pool's loss, as if a rule had it */
	assert_int_equal(owner.lent, SODA_BUDGET_LINE * MIB);
	assert_int_equal(owner.lent_reserve, MIB / SODA_BUDGET_TRUST_USED);
	assert_int_equal(pool.bytes + pool.reserve,
			 (SODA_BUDGET_POOL + SODA_BUDGET_RESERVE - 3) * MIB);
	assert_int_equal(pool.window.all.bought - pool.window.all.given, 3 * MIB);
}

static void demand_earns_and_what_is_saved_fades(void **state)
{
	fresh();
	demand(&owner, 1000 * MIB);
	/* two percent were earned: a line of it may be kept; the pool was full */
	assert_int_equal(owner.own, SODA_BUDGET_LINE * MIB);
	/* of one that has shown itself half a percent */
	show(&owner);
	demand(&owner, 1000 * MIB - owner.window.all.asked);
	assert_int_equal(owner.own, 5 * MIB);
	assert_int_equal(pool.bytes, SODA_BUDGET_POOL * MIB);
	now += SODA_BUDGET_WINDOW_MS * 1000000ull / 2;
	demand(&owner, 0);
	assert_int_equal(owner.own, 5 * MIB);
	now += SODA_BUDGET_WINDOW_MS * 1000000ull;
	demand(&owner, 0);
	assert_int_equal(owner.own, 0);
	/* a purchase sees that, too */
	demand(&owner, 1000 * MIB);
	assert_int_equal(owner.own, 5 * MIB);
	now += 3600 * SECOND;
	for (int i = 0; i < SODA_BUDGET_LINE + SODA_BUDGET_SHOWN / SODA_BUDGET_TRUST_USED; i++)
		assert_true(buy(&owner, MIB));
	assert_false(buy(&owner, MIB));
}

/* Two percent of demand go to the debt before anything else. */
static void what_was_lent_is_earned_back(void **state)
{
	fresh();
	assert_true(buy(&owner, MIB) && buy(&owner, MIB));
	demand(&owner, 10 * MIB);
	assert_int_equal(owner.lent, 2 * MIB - 10 * MIB / 50);
	assert_int_equal(owner.own, 0);
	assert_false(buy(&owner, MIB));
	assert_true(buy(&owner, MIB / 8));
}

static uint64_t demand_until_let_in(void)
{
	uint64_t asked = 0;

	while (owner.ended) {
		demand(&owner, MIB);
		asked += MIB;
		assert_true(asked < 100000 * MIB);
		now += SECOND / 100;
	}
	return asked;
}

static uint64_t waste_until_ended(void)
{
	uint64_t bought = 0;

	while (!owner.ended) {
		demand(&owner, MIB);
		bought += buy_all(&owner);
		assert_true(bought <= 100 * MIB);
		now += SECOND / 100;
	}
	return bought;
}

static void who_wastes_is_ended_and_waits_longer_each_time(void **state)
{
	uint64_t hold = SODA_BUDGET_HOLD * MIB;

	fresh();
	for (int i = 0; i <= SODA_BUDGET_HOLD_DOUBLED + 2; i++) {
		/* its line, what it saved, and 2 % of three turns */
		assert_true(waste_until_ended() <= 6 * MIB);
		assert_int_equal(soda_budget_left(&owner, &pool), 0);
		assert_false(buy(&owner, 4096));
		assert_in_range(demand_until_let_in(), hold, hold + 50 * MIB);
		if (i < SODA_BUDGET_HOLD_DOUBLED)
			hold *= 2;
	}
	assert_int_equal(owner.ends, SODA_BUDGET_HOLD_DOUBLED + 3);
	assert_int_equal(pool.ends, owner.ends);
	/* good for a while: the next end is a first one */
	for (int i = 0; i < 100; i++)
		if (buy(&owner, MIB))
			use(&owner, MIB);
	waste_until_ended();
	assert_int_equal(owner.hold, SODA_BUDGET_HOLD * MIB);
}

static void who_computes_for_an_hour_is_not_ended(void **state)
{
	fresh();
	for (int i = 0; i < 200; i++) {
		buy_all(&owner);
		now += 3600 * SECOND;
		use(&owner, MIB);
		demand(&owner, 7 * MIB);
	}
	assert_int_equal(owner.ends, 0);
}

static void others_cannot_end_an_owner(void **state)
{
	static struct soda_budget many[SODA_BUDGET_POOL];

	fresh();
	memset(many, 0, sizeof(many));
	for (int i = 0; i < SODA_BUDGET_POOL; i++)
		buy_all(&many[i]);
	assert_int_equal(pool.bytes, 0);
	/* nothing to be lent: a newcomer waits, and is not the one to blame */
	for (int i = 0; i < 4 * SODA_BUDGET_TURN; i++) {
		buy(&owner, MIB);
		demand(&owner, MIB / 2);
	}
	assert_false(owner.ended);
	/* what those owed is lost when they go, and demand fills the pool again */
	pool.bytes = 0;
	for (int i = 0; i < SODA_BUDGET_POOL; i++)
		soda_budget_leave(&many[i], &pool);
	assert_int_equal(pool.bytes, 0);
	demand(&owner, 1600 * MIB);
	assert_int_equal(pool.bytes, SODA_BUDGET_POOL * MIB);
	/* what one owed, and owes no more, has come back to the pool */
	assert_true(buy(&many[0], MIB));
	use(&many[0], MIB);
	soda_budget_leave(&many[0], &pool);
	assert_int_equal(pool.bytes, SODA_BUDGET_POOL * MIB);
}

static void what_was_never_asked_of_the_server_is_free(void **state)
{
	fresh();
	for (int i = 0; i < 100; i++) {
		assert_true(buy(&owner, MIB));
		soda_budget_refund(&owner, &pool, now, MIB);
	}
	assert_int_equal(owner.lent, 0);
	assert_int_equal(pool.bytes, SODA_BUDGET_POOL * MIB);
	assert_int_equal(pool.window.all.bought - pool.window.all.given, 0);
}

static void what_a_rule_loads_is_owed_by_the_pool(void **state)
{
	fresh();
	soda_budget_ruled(&pool, 100 * MIB);
	assert_int_equal(pool.bytes, 0);
	assert_int_equal(pool.owed, (100 - SODA_BUDGET_POOL) * MIB);
	assert_false(buy(&owner, MIB));
	/* an owner's own credit is its own */
	demand(&owner, 1000 * MIB);
	assert_true(buy(&owner, MIB));
	/* half a percent, and what the owner may not save */
	assert_int_equal(pool.owed, (100 - SODA_BUDGET_POOL - 5 - 18) * MIB);
	soda_budget_ruled_given(&pool, 1000 * MIB);
	assert_int_equal(pool.owed, 0);
	assert_int_equal(pool.bytes, 0); /* that programs read it makes no new credit */
}

static void the_window_is_the_last_seconds(void **state)
{
	struct soda_budget_window w = { 0 };
	struct soda_budget_sums sums = { .asked = 100, .given = 50, .bought = 80 };

	assert_true(soda_budget_surplus(&w.all) == 0);
	assert_true(soda_budget_surplus(&sums) > 0.29 && soda_budget_surplus(&sums) < 0.31);
	sums.bought = 0;
	assert_true(soda_budget_surplus(&sums) < -0.49);
	fresh();
	owner.window = w;
	for (int i = 0; i < 100; i++) {
		demand(&owner, 1000);
		now += SODA_BUDGET_WINDOW_MS * 1000000ull / SODA_BUDGET_PARTS;
	}
	assert_int_equal(owner.window.all.asked, SODA_BUDGET_PARTS * 1000);
	now -= SECOND; /* threads see one clock at different times */
	demand(&owner, 1000);
	assert_int_equal(owner.window.all.asked, SODA_BUDGET_PARTS * 1000 + 1000);
}

/* Runs. */

/*
 * How much more the network carries than 1.03 of what programs ask for, and the most that this has
 * grown over any stretch of the run, long or short; and what budget.h allows it to: the pool, the
 * reserve, and what owners may have saved when the stretch began.
 */
struct excess {
	double least, most_growth, saved;
};

static struct excess excess;
static struct sim *sim;
static uint64_t dice;

static void begin_on(const struct soda_cache_policy *policy, enum soda_prefetch_limit limit,
		     uint32_t regions, bool busy)
{
	struct sim_config cfg = { .policy = policy,
				  .cache_bytes = SLOTS * (uint64_t)ENTRY,
				  .entry_bytes = ENTRY,
				  .fill_takes = 4,
				  .workers = 2,
				  .limit = limit,
				  .ratio = 0.1,
				  .think_ns = 1000000 };

	if (busy) {
		cfg.fill_takes = 4 * CHUNKS;
		cfg.window = 4 * CHUNKS;
		cfg.batch = CHUNKS / 2;
	}
	uint32_t pages[SIM_REGIONS] = { 0 };

	for (uint32_t i = 0; i < regions; i++)
		pages[i] = REGION;
	sim = sim_open(&cfg, pages);
	excess = (struct excess){ 0 };
}

static void begin(const struct soda_cache_policy *policy, enum soda_prefetch_limit limit,
		  uint32_t regions)
{
	begin_on(policy, limit, regions, false);
}

/*
 * A link that is the bottleneck: two fetches take as long as what programs ask for of four entries,
 * every request waits, and they come in batches, as hosts read ahead themselves.
 */
static void begin_busy(void)
{
	begin_on(NULL, SODA_LIMIT_BUDGET, 1, true);
}

static void look_at_saved(void)
{
	struct sim_result r;
	double saved;

	sim_get(sim, &r);
	saved = (double)r.stats.pool.window.all.asked * SODA_BUDGET_SAVED / 1000;
	if (saved > excess.saved)
		excess.saved = saved;
}

static void look_at_excess(void)
{
	const struct sim_result *r = sim_peek(sim);
	double now_excess = (double)(r->missed + r->fetched) - 1.03 * (double)r->asked;

	if (now_excess < excess.least)
		excess.least = now_excess;
	if (now_excess - excess.least > excess.most_growth)
		excess.most_growth = now_excess - excess.least;
	if (r->requests % 256 == 0)
		look_at_saved();
}

static void page(uint32_t region, uint32_t at)
{
	sim_do(sim, &(struct sim_access){ region, at % REGION, 1, false });
	look_at_excess();
}

static void check_owner(void *arg, const struct soda_owner_stats *o)
{
	/* the rest is there and young */
	assert_true(o->budget.used + o->budget.unused <= o->bytes_fetched);
}

static struct sim_result finish(const char *what)
{
	double most = (SODA_BUDGET_POOL + SODA_BUDGET_RESERVE) * ENTRY + excess.saved;
	struct sim_result r;

	sim_get(sim, &r);
	print_message("%-32s traffic %.4f, most growth %.1f of %.1f entries, hits %.1f %%, "
		      "ended %llu, unpaid %llu\n",
		      what, sim_traffic(&r), excess.most_growth / ENTRY, most / ENTRY,
		      100 * sim_hit_rate(&r), (unsigned long long)r.stats.pool.ends,
		      (unsigned long long)r.stats.unpaid);
	soda_prefetch_each(sim_prefetch(sim), check_owner, NULL);
	sim_close(sim);
	assert_true(excess.most_growth <= most);
	return r;
}

static struct soda_owner_stats seen[SIM_REGIONS];

static void keep(void *arg, const struct soda_owner_stats *o)
{
	seen[o->name.id[1]] = *o;
}

static const struct soda_owner_stats *look(uint32_t region)
{
	soda_prefetch_each(sim_prefetch(sim), keep, NULL);
	return &seen[region];
}

static void scan(uint32_t region, uint32_t from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		page(region, from + i);
}

/* Three pages in a row look like a stream, and are none. */
static void mislead(uint32_t region, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 3)
		scan(region, (uint32_t)(roll(&dice) % (REGION / CHUNKS)) * CHUNKS + 4, 3);
}

static void a_wasteful_owner_is_ended(void **state)
{
	static const struct soda_cache_policy *const policies[] = { &soda_cache_policy_stream,
								    &soda_cache_policy_random };

	for (int i = 0; i < 2; i++) {
		const struct soda_owner_stats *o;
		struct sim_result r;

		begin(policies[i], SODA_LIMIT_BUDGET, 1);
		mislead(0, 100000);
		o = look(0);
		assert_true(o->budget.ends > 2);
		assert_true(o->bytes_fetched > 2 * o->budget.used);
		/* its tries become rare: it does not even waste what it might */
		r = finish("misleading");
		assert_true(sim_traffic(&r) <= 1.01);
		assert_int_equal(r.stats.owners_ended, o->budget.ended);
	}
}

/* The model alone lets the same owner move several times of what is asked for. */
static void the_model_alone_allows_it(void **state)
{
	struct sim_result r;

	begin(&soda_cache_policy_random, SODA_LIMIT_MODEL, 1);
	soda_prefetch_advise(sim_prefetch(sim), sim_owner(sim, 0), SODA_OWNER_CACHED);
	mislead(0, 10000);
	assert_true(look(0)->on);
	assert_int_equal(look(0)->budget.ends, 0);
	assert_true(soda_budget_surplus(&look(0)->budget.window.all) > 1);
	sim_get(sim, &r);
	assert_true(sim_traffic(&r) > 2);
	sim_close(sim);
	/* an advice outranks the model, not the budget */
	begin(&soda_cache_policy_random, SODA_LIMIT_BOTH, 1);
	soda_prefetch_advise(sim_prefetch(sim), sim_owner(sim, 0), SODA_OWNER_CACHED);
	mislead(0, 10000);
	assert_int_equal(look(0)->budget.ended, !look(0)->on);
	r = finish("misleading, advised");
	assert_true(r.fetched > 0 && r.stats.pool.ends > 0);
}

static void a_stream_is_never_ended(void **state)
{
	/* beside one request a millisecond: 4 MB/s to 40 KB/s */
	static const uint64_t think_ns[] = { 0, 1000000, 10000000, 100000000 };

	for (int i = 0; i < 4; i++) {
		struct sim_result r;

		begin(NULL, SODA_LIMIT_BUDGET, 1);
		for (uint32_t at = 0; at < REGION; at++) {
			sim_sleep(sim, think_ns[i]);
			if (at % 10000 == 9999)
				sim_sleep(sim, 60 * SECOND);
			page(0, at);
		}
		assert_int_equal(look(0)->budget.ends, 0);
		r = finish("a stream");
		assert_true(sim_hit_rate(&r) > 0.99);
		assert_true(sim_traffic(&r) < 1.001);
	}
}

static void eight_streams_are_never_ended(void **state)
{
	struct sim_result r;

	begin(NULL, SODA_LIMIT_BUDGET, 1);
	for (uint32_t i = 0; i < REGION / 8; i++)
		for (uint32_t k = 0; k < 8; k++)
			page(0, k * (REGION / 8) + i);
	assert_int_equal(look(0)->budget.ends, 0);
	r = finish("eight streams of an owner");
	assert_true(sim_hit_rate(&r) > 0.95);
}

/* How many of the requests of fn's n-th turns from `from` on were hits. */
static double share_of_hits(void (*fn)(uint32_t n), uint32_t from, uint32_t to)
{
	uint64_t hits = 0, requests = 0;

	for (uint32_t n = from; n < to; n++) {
		const struct sim_result *r = sim_peek(sim);
		uint64_t before = r->hits + r->late, asked = r->requests;

		fn(n);
		hits += r->hits + r->late - before;
		requests += r->requests - asked;
	}
	return (double)hits / (double)requests;
}

static void two_streams(uint32_t n)
{
	page(0, n);
	page(0, REGION / 2 + n);
}

/*
 * Streams of which nothing is wasted have all of their reading ahead after a few entries, also
 * where each byte of it is waited for, and again after a rest.
 */
static void streams_on_a_busy_link(void **state)
{
	enum { WARM = 40 * CHUNKS };
	struct sim_result r;

	begin_busy();
	share_of_hits(two_streams, 0, WARM);
	assert_true(share_of_hits(two_streams, WARM, REGION / 4) >= 0.95);
	sim_sleep(sim, 60 * SECOND);
	assert_true(share_of_hits(two_streams, REGION / 4, REGION / 2) >= 0.95);
	assert_int_equal(look(0)->budget.ends, 0);
	r = finish("two streams, busy link");
	assert_true(sim_traffic(&r) < 1.001);
}

static void one_page_of_the_stream(uint32_t n)
{
	page(0, n);
}

/*
 * Two threads, each over a part of a region, then over another one: what is ahead of the streams at
 * the ends of these is wasted, and that is no reason to hold back the next ones.
 */
static void streams_that_end(void **state)
{
	enum { LENGTH = 256 * CHUNKS, APART = LENGTH + 4 * CHUNKS, LAPS = REGION / APART / 2 };
	struct sim_result r;
	double least = 1;

	begin_busy();
	for (uint32_t lap = 0; lap < LAPS; lap++) {
		double hits = 0;

		for (uint32_t n = 0; n < LENGTH; n++) {
			const struct sim_result *at = sim_peek(sim);
			uint64_t before = at->hits + at->late;

			page(0, 2 * lap * APART + n);
			page(0, (2 * lap + 1) * APART + n);
			hits += (double)(at->hits + at->late - before);
		}
		hits /= 2 * LENGTH;
		least = lap && hits < least ? hits : least;
		sim_sleep(sim, 10 * SECOND);
	}
	r = finish("streams that end");
	print_message("  at least %.3f, useless %.4f\n", least,
		      (double)r.useless / (double)r.asked);
	assert_true(least >= 0.95);
	assert_true(r.useless > 0 && (double)r.useless <= 0.03 * (double)r.asked);
}

/* Of an owner that is read as a stream and at random in turns only what is used is fetched. */
static void half_a_stream_half_random(void **state)
{
	for (int busy = 0; busy < 2; busy++) {
		struct sim_result r;
		double hits = 0;

		begin_on(NULL, SODA_LIMIT_BUDGET, 1, busy);
		for (uint32_t at = 0; at < REGION / 2; at++) {
			hits += share_of_hits(one_page_of_the_stream, at, at + 1);
			page(0, REGION / 2 + (uint32_t)(roll(&dice) % (REGION / 2)));
		}
		assert_int_equal(look(0)->budget.ends, 0);
		r = finish("a stream and random, in turns");
		print_message("  of the stream %.3f\n", hits / (REGION / 2));
		assert_true((double)r.useless <= 0.03 * (double)r.asked);
		assert_true(hits / (REGION / 2) >= 0.95);
	}
}

/* Random accesses cause no more waste than that, whatever the policy makes of them. */
static void random_wastes_little(void **state)
{
	static const struct soda_cache_policy *const policies[] = { &soda_cache_policy_stream,
								    &soda_cache_policy_random };

	for (int i = 0; i < 2; i++) {
		struct sim_result r;

		begin(policies[i], SODA_LIMIT_BUDGET, 1);
		for (int n = 0; n < 100000; n++)
			page(0, (uint32_t)(roll(&dice) % REGION));
		assert_true(look(0)->budget.ends > 0 || i == 0);
		r = finish("random");
		assert_true((double)r.useless <= 0.03 * (double)r.asked);
	}
}

static void a_newcomer_shows_itself_at_once(void **state)
{
	struct sim_result r;

	begin(NULL, SODA_LIMIT_BUDGET, 1);
	scan(0, 0, 4 * CHUNKS);
	sim_get(sim, &r);
	assert_true(sim_hit_rate(&r) > 0.85);
	finish("a newcomer");
}

/* Working sets pay for themselves: a byte that is given twice has saved one. */
static void a_working_set_is_fetched(void **state)
{
	struct sim_result r;

	begin(NULL, SODA_LIMIT_BUDGET, 1);
	for (int i = 0; i < 60000; i++)
		page(0, (uint32_t)(roll(&dice) % (SLOTS * CHUNKS * 3 / 4)));
	r = finish("a working set");
	assert_true(sim_traffic(&r) < 0.1);
	assert_int_equal(r.stats.pool.ends, 0);
}

static void who_was_ended_may_try_again(void **state)
{
	struct sim_result before, after;

	begin(NULL, SODA_LIMIT_BUDGET, 1);
	for (int i = 0; i < 100 && !look(0)->budget.ended; i++)
		mislead(0, 300);
	assert_true(look(0)->budget.ended);
	sim_get(sim, &before);
	scan(0, 0, 2 * SODA_BUDGET_HOLD * CHUNKS);
	assert_false(look(0)->budget.ended);
	sim_get(sim, &before);
	scan(0, 2 * SODA_BUDGET_HOLD * CHUNKS, 2000);
	sim_get(sim, &after);
	assert_true(after.hits + after.late - before.hits - before.late > 1900);
	assert_int_equal(look(0)->budget.ends, 1);
	finish("ended and back");
}

static void owners_do_not_pay_for_one_another(void **state)
{
	struct sim_result r;
	uint64_t hits;

	begin(NULL, SODA_LIMIT_BUDGET, 3);
	for (uint32_t i = 0; i < 60000; i++) {
		mislead(0, 3);
		page(1, i);
		mislead(2, 3);
	}
	assert_true(look(0)->budget.ends > 0 && look(2)->budget.ends > 0);
	assert_int_equal(look(1)->budget.ends, 0);
	hits = look(1)->hits + look(1)->late_hits;
	assert_true(hits > 59000);
	r = finish("a stream between two others");
	assert_true(sim_traffic(&r) < 1.03);
}

static void many_owners_share_one_allowance(void **state)
{
	begin(NULL, SODA_LIMIT_BUDGET, SIM_REGIONS);
	for (uint32_t i = 0; i < 20000; i++)
		mislead((uint32_t)(roll(&dice) % SIM_REGIONS), 3);
	finish("sixteen owners");
}

/* Owners that waste their line and go; programs of a second, one behind the other. */
static void owners_that_come_and_go(void **state)
{
	begin(NULL, SODA_LIMIT_BUDGET, 1);
	for (uint64_t n = 0; n < 300; n++) {
		mislead(0, 300);
		sim_reopen(sim, 0);
	}
	finish("owners that come and go");
}

/*
 * Who knows the budget: shows itself as well as can be (a stream, or a working set that saves much)
 * and then wastes what it can, again and again.
 */
static void phases_against_it(void **state)
{
	for (int kind = 0; kind < 2; kind++) {
		begin(NULL, SODA_LIMIT_BUDGET, 1);
		for (uint32_t n = 0; n < 12; n++) {
			for (uint32_t i = 0; i < 6000; i++)
				page(0, kind ? (uint32_t)(roll(&dice) % 512) : n * 5000 + i);
			mislead(0, 2000 + 500 * (n % 4));
			if (n % 3 == 0)
				sim_sleep(sim, 10 * SECOND);
		}
		finish(kind ? "saves, then wastes" : "streams, then wastes");
	}
}

/*
 * What is not asked of the server after all is paid back, and what the server refuses; what fails
 * on its way is not.
 */
static void fetches_that_do_not_come_to_an_end(void **state)
{
	const struct soda_owner_stats *o;
	struct soda_fill *fill;

	for (int i = 0; i < 3; i++) {
		struct soda_cache_ref ref;

		begin(NULL, SODA_LIMIT_BUDGET, 1);
		soda_prefetch_advise(sim_prefetch(sim), sim_owner(sim, 0), SODA_OWNER_ADAPTIVE);
		for (uint64_t at = 0; at < 3; at++)
			soda_prefetch_read(sim_prefetch(sim), sim_owner(sim, 0), at * SIM_PAGE,
					   SIM_PAGE, NULL, NULL, &ref);
		soda_prefetch_step(sim_prefetch(sim));
		o = look(0);
		assert_true(o->bytes_fetched > ENTRY && o->budget.lent > ENTRY / 2);
		if (i == 0) {
			soda_prefetch_advise(sim_prefetch(sim), sim_owner(sim, 0),
					     SODA_OWNER_UNCACHED);
			assert_null(soda_prefetch_take(sim_prefetch(sim)));
		}
		while ((fill = soda_prefetch_take(sim_prefetch(sim)))) {
			fill->read = i == 2 ? fill->bytes : 0;
			soda_prefetch_filled(sim_prefetch(sim), fill, i == 2 ? -ECONNRESET : -EIO);
		}
		assert_int_equal(look(0)->bytes_fetched > 0, i == 2);
		assert_int_equal(look(0)->budget.lent > 0, i == 2);
		sim_close(sim);
	}
}

static void any_policy_on_anything(void **state)
{
	static const struct soda_cache_policy *const policies[] = { &soda_cache_policy_stream,
								    &soda_cache_policy_random };

	for (int i = 0; i < 4; i++) {
		begin(policies[i % 2], i / 2 ? SODA_LIMIT_BOTH : SODA_LIMIT_BUDGET, 4);
		for (int n = 0; n < 1500; n++) {
			uint32_t region = (uint32_t)(roll(&dice) % 4);
			uint32_t at = (uint32_t)(roll(&dice) % REGION);
			uint32_t pages = (uint32_t)(roll(&dice) % 64);

			switch (roll(&dice) % 4) {
			case 0:
				scan(region, at, 4 * pages);
				break;
			case 1:
				mislead(region, pages);
				break;
			case 2:
				for (uint32_t k = 0; k < pages; k++)
					page(region, (uint32_t)(roll(&dice) % 1024));
				break;
			default:
				for (uint32_t k = 0; k < pages; k++)
					sim_do(sim, &(struct sim_access){ region, (at + k) % REGION,
									  1, true });
			}
		}
		finish(policies[i % 2]->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_newcomer_has_a_line),
		cmocka_unit_test(trust_is_earned_and_lost),
		cmocka_unit_test(what_was_not_given_after_all_is_charged),
		cmocka_unit_test(demand_earns_and_what_is_saved_fades),
		cmocka_unit_test(what_was_lent_is_earned_back),
		cmocka_unit_test(who_wastes_is_ended_and_waits_longer_each_time),
		cmocka_unit_test(who_computes_for_an_hour_is_not_ended),
		cmocka_unit_test(others_cannot_end_an_owner),
		cmocka_unit_test(what_was_never_asked_of_the_server_is_free),
		cmocka_unit_test(what_a_rule_loads_is_owed_by_the_pool),
		cmocka_unit_test(the_window_is_the_last_seconds),
		cmocka_unit_test(a_wasteful_owner_is_ended),
		cmocka_unit_test(the_model_alone_allows_it),
		cmocka_unit_test(a_stream_is_never_ended),
		cmocka_unit_test(eight_streams_are_never_ended),
		cmocka_unit_test(streams_on_a_busy_link),
		cmocka_unit_test(streams_that_end),
		cmocka_unit_test(half_a_stream_half_random),
		cmocka_unit_test(random_wastes_little),
		cmocka_unit_test(a_newcomer_shows_itself_at_once),
		cmocka_unit_test(a_working_set_is_fetched),
		cmocka_unit_test(who_was_ended_may_try_again),
		cmocka_unit_test(owners_do_not_pay_for_one_another),
		cmocka_unit_test(many_owners_share_one_allowance),
		cmocka_unit_test(owners_that_come_and_go),
		cmocka_unit_test(phases_against_it),
		cmocka_unit_test(fetches_that_do_not_come_to_an_end),
		cmocka_unit_test(any_policy_on_anything),
	};

	dice = seed_of();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
