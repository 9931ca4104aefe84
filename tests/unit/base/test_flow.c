/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates by a clock of the test's own, and turns of flows that wait at workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/flow.h"

#define S 1000000000ull
#define KIB 1024u

/* Requests of a size, as fast as they may go: how many in so long. */
static uint64_t drive(struct soda_flow *flow, uint32_t bytes, uint64_t from, uint64_t ns)
{
	uint64_t n = 0, now = from;

	while (now < from + ns) {
		uint64_t wait = soda_flow_take(flow, bytes, now);

		assert_true(wait <= SODA_FLOW_PATIENCE_NS);
		now += wait;
		n += !wait;
		if (!wait && n > 10000000)
			fail();
	}
	return n;
}

static void keeps_rates(void **state)
{
	struct soda_flow flow;
	uint64_t n;

	soda_flow_init(&flow);
	assert_int_equal(soda_flow_take(&flow, 1 << 20, 5), 0);
	/* bytes: a second's worth, the burst, and one that began in time */
	soda_flow_set(&flow, 64000 * KIB, 0, 1);
	n = drive(&flow, 64 * KIB, 10 * S, S);
	assert_in_range(n, 1000, 1000 + 20 + 2);
	/* a pause gives no more than the burst */
	n = drive(&flow, 64 * KIB, 100 * S, S / 10);
	assert_in_range(n, 100, 100 + 20 + 2);
	/* requests, whatever their size; and a rate may be slower than our patience */
	soda_flow_set(&flow, 0, 5, 1);
	n = drive(&flow, 2048 * KIB, 200 * S, 2 * S);
	assert_in_range(n, 10, 12);
	/* both: the stricter one */
	soda_flow_set(&flow, 64000 * KIB, 100, 1);
	n = drive(&flow, 64 * KIB, 300 * S, S);
	assert_in_range(n, 100, 104);
	/* a new rate does not wait for the old one's past */
	soda_flow_set(&flow, 1, 0, 1);
	assert_int_equal(soda_flow_take(&flow, 2048 * KIB, 400 * S), 0);
	assert_true(soda_flow_take(&flow, 1, 400 * S) > 0);
	soda_flow_set(&flow, 1000 * KIB, 0, 1);
	assert_int_equal(soda_flow_take(&flow, 1, 400 * S), 0);
	soda_flow_set(&flow, 0, 0, 1);
	assert_int_equal(soda_flow_take(&flow, 2048 * KIB, 400 * S), 0);
	soda_flow_destroy(&flow);
}

/* Workers at which flows are always waiting, as listen/worker.c does it. */

enum { FLOWS = 3, WORKERS = 2 };

struct worker {
	struct soda_flow_share share[FLOWS];
	bool here[FLOWS]; /* the flow has connections */
	uint64_t round, least, served[FLOWS];
};

/* One round: each flow takes what it may, then waits. */
static void round_of(struct worker *w, uint64_t *budget)
{
	uint64_t least = 0;

	w->round++;
	for (int i = 0; i < FLOWS; i++) {
		if (!w->here[i])
			continue;
		while (*budget &&
		       !soda_flow_share_take(&w->share[i], w->round, false, w->least, 64 * KIB)) {
			w->served[i]++;
			--*budget;
		}
		if (w->share[i].waited_in == w->round && (!least || w->share[i].flow->got < least))
			least = w->share[i].flow->got;
	}
	w->least = least;
}

static void takes_turns(void **state)
{
	struct soda_flow flows[FLOWS];
	struct worker w[WORKERS] = { { .round = 0 } };
	uint64_t all[FLOWS] = { 0 };

	for (int i = 0; i < FLOWS; i++) {
		soda_flow_init(&flows[i]);
		for (int j = 0; j < WORKERS; j++)
			w[j].share[i].flow = &flows[i];
	}
	/* at one worker: by weight */
	soda_flow_set(&flows[0], 0, 0, 3);
	w[0].here[0] = w[0].here[1] = true;
	for (uint64_t budget = 4000; budget;)
		round_of(&w[0], &budget);
	assert_in_range(w[0].served[0], 2900, 3100);
	/* two workers of one speed: the first flow is at both, and two others share one with it */
	soda_flow_set(&flows[0], 0, 0, 1);
	memset(w[0].served, 0, sizeof(w[0].served));
	atomic_store(&flows[0].got, 0);
	atomic_store(&flows[1].got, 0);
	w[0].here[2] = w[1].here[0] = true;
	for (int step = 0; step < 1000; step++) {
		for (int j = 0; j < WORKERS; j++)
			for (uint64_t budget = 16; budget;)
				round_of(&w[j], &budget);
	}
	for (int i = 0; i < FLOWS; i++)
		for (int j = 0; j < WORKERS; j++)
			all[i] += w[j].served[i];
	/* all of the other worker is the first one's alone; of this one the others have nearly all
	 */
	assert_in_range(w[1].served[0], 16000, 16000);
	assert_true(all[1] > 7000 && all[2] > 7000);
	for (int i = 0; i < FLOWS; i++) {
		for (int j = 0; j < WORKERS; j++)
			soda_flow_share_rest(&w[j].share[i]);
		assert_int_equal(flows[i].waits, 0);
		soda_flow_destroy(&flows[i]);
	}
}

/* Nobody else is there: no turn, and no debt for when somebody comes. */
static void alone_it_never_waits(void **state)
{
	struct soda_flow flow;
	struct soda_flow_share share = { .flow = &flow };
	uint64_t rounds = 0;

	soda_flow_init(&flow);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(soda_flow_share_take(&share, 1, true, 0, 2048 * KIB), 0);
	assert_int_equal(soda_flow_share_take(&share, 1, false, 0, 64 * KIB), 1);
	/* but of the last request, which was as large as can be */
	while (rounds < 100 && soda_flow_share_take(&share, 2 + rounds, false, 0, 64 * KIB))
		rounds++;
	assert_in_range(rounds, 1, 2 + 2048 * KIB / SODA_FLOW_TURN);
	soda_flow_share_rest(&share);
	soda_flow_destroy(&flow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_rates),
		cmocka_unit_test(takes_turns),
		cmocka_unit_test(alone_it_never_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
