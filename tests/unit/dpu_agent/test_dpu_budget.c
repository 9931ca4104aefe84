/* SPDX-License-Identifier: BSD-3-Clause */
/* What all programs together may have of the DPU agent's memory, however many they are. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dpu_agent/base/blocks.h"
#include "unit/fakes/fake_upstream.h"

enum {
	REGION = 7,
	PAGES = 1024,
	PROGRAMS = 8,
	READS = 200,
	BYTES = 65536,
	HALF = 1 << 20,	   /* of the budget: for READs, and for WRITEs */
	ALWAYS = 256 << 10 /* a client's, of READs */
};

static struct program programs[PROGRAMS];

static void start(void)
{
	fake_options_reset();
	fake_options.buffers = 2 * HALF;
	fake_up();
	for (int i = 0; i < PROGRAMS; i++) {
		programs[i] = (struct program){ 0 };
		assert_int_equal(program_hello(&programs[i]), 0);
		assert_int_equal(program_open(&programs[i], REGION, PAGES, 0), 0);
	}
}

static void stop(void)
{
	for (int i = 0; i < PROGRAMS; i++)
		program_vanish(&programs[i]);
	assert_int_equal(fake_down(), 0);
}

static uint64_t charged(void)
{
	return atomic_load(&fake_dpu.paging.gates.charged) & ((UINT64_C(1) << 48) - 1);
}

/* What is not let in waits, and is answered in the end. */
static void reads_of_all(void **state)
{
	static struct fake_rq *reads[PROGRAMS][READS];

	start();
	FAKE_SET(hold_reads, true);
	for (int i = 0; i < PROGRAMS; i++)
		for (int n = 0; n < READS; n++)
			reads[i][n] = program_post_read(&programs[i], REGION, (uint64_t)(2 * n));
	assert_true(charged() >= HALF / 2);
	assert_true(charged() <= HALF + PROGRAMS * ALWAYS);
	FAKE_SET(hold_reads, false);
	for (int i = 0; i < PROGRAMS; i++)
		for (int n = 0; n < READS; n++)
			assert_int_equal(program_await(reads[i][n]), 0);
	AWAIT(!charged());
	stop();
}

/*
 * A program that takes no answers has all the room that it gets, and goes.  Its connection ends
 * when all requests of it have ended: those that wait for that room must not keep it.
 */
static void reads_of_one_that_goes(void **state)
{
	static struct fake_rq *reads[READS];
	struct program *p = &programs[0];
	bool waits = false;

	fake_options_reset();
	fake_options.client_credit = READS / 4 * PAGE;
	fake_up();
	*p = (struct program){ 0 };
	assert_int_equal(program_hello(p), 0);
	assert_int_equal(program_open(p, REGION, PAGES, 0), 0);
	FAKE_SET(hold_sent, true);
	for (int n = 0; n < READS; n++)
		reads[n] = program_post_read(p, REGION, (uint64_t)(2 * n));
	assert_int_equal(program_await(reads[0]), 0);
	for (int n = 0; n < READS; n++)
		waits = waits || !program_answered(reads[n]);
	assert_true(waits);
	program_vanish(p);
	AWAIT(!charged());
	FAKE_SET(hold_sent, false);
	assert_int_equal(fake_down(), 0);
}

/* As a transport does that has no memory for WRITEs of its own. How many got some. */
static int reserve(struct soda_session *s, struct soda_span *spans, int max)
{
	int n = 0;

	while (n < max && !soda_writes_reserve(s, NULL, REGION, (uint64_t)n * 64, BYTES, &spans[n]))
		n++;
	return n;
}

/* One of each client is always taken, so that everybody comes on. */
static void writes_of_all(void **state)
{
	enum { MAX = 64 };
	static struct soda_span spans[PROGRAMS][MAX];
	int n[PROGRAMS], all = 0, i = 0;

	start();
	for (struct soda_session *s = fake_dpu.sessions.list; s; s = s->next, i++) {
		n[i] = reserve(s, spans[i], MAX);
		assert_true(n[i] >= 1);
		all += n[i];
	}
	assert_int_equal(i, PROGRAMS);
	assert_true(all >= HALF / BYTES);
	assert_true(all <= HALF / BYTES + PROGRAMS);
	i = 0;
	for (struct soda_session *s = fake_dpu.sessions.list; s; s = s->next, i++)
		for (int k = 0; k < n[i]; k++)
			soda_writes_unreserve(s, spans[i][k].hold, BYTES);
	/* what was given back is there for one alone */
	assert_true(reserve(fake_dpu.sessions.list, spans[0], HALF / BYTES) == HALF / BYTES);
	for (int k = 0; k < HALF / BYTES; k++)
		soda_writes_unreserve(fake_dpu.sessions.list, spans[0][k].hold, BYTES);
	stop();
}

/*
 * WRITEs of which each second one continues the one before, and no third: what is taken from the
 * system for them is of the order of what is counted.
 */
static void writes_in_pairs(void **state)
{
	enum { MAX = HALF / PAGE };
	static struct soda_span spans[MAX];
	struct soda_session *s;
	uint64_t before;
	int n = 0;

	start();
	s = fake_dpu.sessions.list;
	before = soda_blocks_bytes();
	while (n < MAX && !soda_writes_reserve(s, NULL, REGION, (uint64_t)(n / 2 * 64 + n % 2),
					       PAGE, &spans[n]))
		n++;
	/* the second of a pair has a block with room for two */
	assert_true(n >= MAX / 2);
	assert_true(soda_blocks_bytes() - before <= 2 * HALF);
	while (n)
		soda_writes_unreserve(s, spans[--n].hold, PAGE);
	stop();
}

/*
 * One WRITE of each block that WRITEs share stays, as if its data were still being read: the block
 * counts until that one has gone, too.
 */
static void writes_that_stay(void **state)
{
	enum { MAX = 8 * HALF / PAGE };
	static struct soda_span stays[MAX];
	struct soda_session *s;
	struct soda_span span;
	uint64_t before;
	int n = 0, i = 0;

	start();
	s = fake_dpu.sessions.list;
	before = soda_blocks_bytes();
	for (; i < MAX && !soda_writes_reserve(s, NULL, REGION, (uint64_t)i, PAGE, &span); i++) {
		if (n && span.hold == stays[n - 1].hold)
			soda_writes_unreserve(s, span.hold, PAGE);
		else
			stays[n++] = span;
	}
	assert_true(i < MAX);
	assert_true(soda_blocks_bytes() - before <= 2 * HALF);
	while (n)
		soda_writes_unreserve(s, stays[--n].hold, PAGE);
	/* all of it is there again */
	for (i = 0; i < HALF / PAGE / 2; i++)
		assert_int_equal(
			soda_writes_reserve(s, NULL, REGION, (uint64_t)(64 * i), PAGE, &stays[i]),
			0);
	while (i)
		soda_writes_unreserve(s, stays[--i].hold, PAGE);
	stop();
}

/* Many that continue each other lie behind each other, in memory that grows as they come. */
static void writes_in_a_row(void **state)
{
	enum { MAX = HALF / PAGE, BLOCKS = 12 };
	static struct soda_span spans[MAX];
	struct soda_session *s;
	int n = 0, behind = 0;

	start();
	s = fake_dpu.sessions.list;
	for (; n < MAX; n++) {
		assert_int_equal(soda_writes_reserve(s, NULL, REGION, (uint64_t)n, PAGE, &spans[n]),
				 0);
		behind += n && spans[n].memory == spans[n - 1].memory + PAGE;
	}
	assert_true(behind >= MAX - BLOCKS);
	while (n)
		soda_writes_unreserve(s, spans[--n].hold, PAGE);
	stop();
}

/* Tenants: the first one's is the first program of the table, and all others are the second's. */
static struct soda_tenants tenants = { .lock = PTHREAD_MUTEX_INITIALIZER, .there = 2 };
static struct soda_tenant first = { .number = 1 }, second = { .number = 2 };

static void start_tenants(void)
{
	fake_options_reset();
	fake_options.buffers = 8 * HALF; /* HALF is kept for each */
	fake_options.write_budget = 4 * HALF;
	fake_up();
	for (int i = 0; i < PROGRAMS; i++) {
		programs[i] = (struct program){ 0 };
		assert_int_equal(program_hello(&programs[i]), 0);
	}
	fake_dpu.sessions.tenants = &tenants;
	for (struct soda_session *s = fake_dpu.sessions.list; s; s = s->next) {
		s->tenant = s == fake_dpu.sessions.list ? &first : &second;
		soda_pager(s)->writes.charge->tenant = s->tenant->number;
		assert_int_equal(soda_allotment_prepare(&fake_dpu.paging.writes, s->tenant->number),
				 0);
		assert_int_equal(
			soda_allotment_prepare(&fake_dpu.paging.gates.reads, s->tenant->number), 0);
	}
}

static void stop_tenants(void)
{
	for (struct soda_session *s = fake_dpu.sessions.list; s; s = s->next)
		s->tenant = NULL; /* as they have come */
	fake_dpu.sessions.tenants = NULL;
	stop();
}

static uint64_t share_of(struct soda_session *s)
{
	uint64_t share;

	pthread_mutex_lock(&s->lock);
	share = soda_gate_share_locked(s);
	pthread_mutex_unlock(&s->lock);
	return share;
}

/* One tenant's READs leave the other one its part, however many clients it has. Promise S12. */
static void reads_of_tenants(void **state)
{
	struct soda_allotment *reads = &fake_dpu.paging.gates.reads;
	struct soda_session *hers, *greedy;

	start_tenants();
	hers = fake_dpu.sessions.list;
	greedy = hers->next;
	assert_int_equal(share_of(greedy), 3 * HALF);
	soda_allotment_count(reads, second.number, 3 * HALF);
	assert_int_equal(share_of(greedy), ALWAYS);
	assert_int_equal(share_of(hers), HALF);
	/* each of many clients has a little more */
	soda_allotment_count(reads, second.number, 4 * HALF);
	assert_int_equal(share_of(hers), HALF);
	soda_allotment_count(reads, first.number, HALF);
	assert_int_equal(share_of(hers), ALWAYS);
	soda_allotment_count(reads, second.number, -7 * HALF);
	assert_int_equal(share_of(hers), 2 * HALF);
	soda_allotment_count(reads, first.number, -HALF);
	stop_tenants();
}

/* The same of WRITEs. Promise S12. */
static void writes_of_tenants(void **state)
{
	enum { MAX = 8 * HALF / BYTES };
	static struct soda_span spans[PROGRAMS][MAX];
	struct soda_session *hers, *s;
	int n[PROGRAMS], all = 0, i = 1;

	start_tenants();
	hers = fake_dpu.sessions.list;
	for (s = hers->next; s; s = s->next, i++)
		all += n[i] = reserve(s, spans[i], MAX);
	assert_true(all >= 3 * HALF / BYTES);
	assert_true(all <= 3 * HALF / BYTES + PROGRAMS);
	n[0] = reserve(hers, spans[0], MAX);
	assert_int_equal(n[0], HALF / BYTES);
	for (s = hers, i = 0; s; s = s->next, i++)
		while (n[i])
			soda_writes_unreserve(s, spans[i][--n[i]].hold, BYTES);
	/* memory that was given back is for one alone, but for the part kept for the other one */
	n[0] = reserve(hers, spans[0], MAX);
	assert_int_equal(n[0], 3 * HALF / BYTES);
	while (n[0])
		soda_writes_unreserve(hers, spans[0][--n[0]].hold, BYTES);
	stop_tenants();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_of_all),	    cmocka_unit_test(reads_of_one_that_goes),
		cmocka_unit_test(writes_of_all),    cmocka_unit_test(writes_in_pairs),
		cmocka_unit_test(writes_that_stay), cmocka_unit_test(writes_in_a_row),
		cmocka_unit_test(reads_of_tenants), cmocka_unit_test(writes_of_tenants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
