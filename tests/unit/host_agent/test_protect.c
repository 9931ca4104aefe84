/* SPDX-License-Identifier: BSD-3-Clause */
/* Which blocks a first store opens: learning whether an object's stores are sparse or dense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host_agent/pages/protect.h"
#include "unit/fakes/host_fixture.h"

enum { ALL = 0xffff };

static int setup(void **state)
{
	soda_agent.chunk_shift = 16;
	soda_agent.block_shift = 12;
	return 0;
}

/*
 * A chunk is stored to in `stored` of its blocks (a mask), block by block as it
 * faults, and written back.  Returns how many faults it took; *sent_p: blocks that travel.
 */
static int cycle(struct soda_region *r, uint32_t stored, int *sent_p)
{
	uint32_t dirty = 0;
	int faults = 0;

	for (uint32_t b = 0; b < 16; b++) {
		uint32_t opened;

		if (!(stored >> b & 1) || dirty >> b & 1)
			continue;
		opened = soda_protect_choose(r, dirty, b, false);
		assert_true(opened >> b & 1);	     /* the store can go on */
		assert_int_equal(opened & dirty, 0); /* what is open is not opened again */
		assert_int_equal(opened & ~(uint32_t)ALL, 0);
		dirty |= opened;
		faults++;
	}
	soda_protect_learn(r, dirty);
	*sent_p += __builtin_popcount(dirty);
	return faults;
}

static void run(struct soda_region *r, uint32_t stored, int n, int *faults_p, int *sent_p)
{
	*faults_p = *sent_p = 0;
	for (int i = 0; i < n; i++)
		*faults_p += cycle(r, stored, sent_p);
}

static void dense_stays_dense(void **state)
{
	struct soda_region r = { .flags = 0 };
	int faults, sent;

	/* One fault a chunk, but for probes: five faults each (four blocks, then the rest). */
	run(&r, ALL, 10000, &faults, &sent);
	assert_in_range(faults, 10000, 10000 + 4 * 10000 / 32 + 8);
	assert_int_equal(sent, 160000);
	run(&r, ALL, 10000, &faults, &sent); /* probed ever less often */
	assert_in_range(faults, 10000, 10000 + 4 * 10000 / 256 + 8);
}

static void sparse_is_found(void **state)
{
	static const uint32_t masks[] = { 1, 0x8000, 0x0101, 0x1248 };

	for (int m = 0; m < 4; m++) {
		struct soda_region r = { .flags = 0 };
		int faults, sent, blocks = __builtin_popcount(masks[m]);

		run(&r, masks[m], 512, &faults, &sent); /* to learn */
		run(&r, masks[m], 10000, &faults, &sent);
		assert_int_equal(faults, 10000 * blocks);
		assert_int_equal(sent, 10000 * blocks); /* nothing but what was written */
	}
}

/* More blocks than a few: faults cost more than the travel. */
static void the_limit_between(void **state)
{
	struct soda_region few = { .flags = 0 }, many = { .flags = 0 };
	int faults, sent;

	run(&few, 0x000f, 1000, &faults, &sent);
	run(&few, 0x000f, 1000, &faults, &sent);
	assert_int_equal(sent, 4000);
	run(&many, 0x001f, 1000, &faults, &sent);
	run(&many, 0x001f, 1000, &faults, &sent);
	assert_int_equal(sent, 16000);
	assert_in_range(faults, 1000, 1000 + 4 * 1000 / 32 + 8);
}

static void change_of_mind(void **state)
{
	struct soda_region r = { .flags = 0 };
	int faults, sent;

	run(&r, 1, 1000, &faults, &sent);
	run(&r, ALL, 1000, &faults, &sent);
	run(&r, ALL, 1000, &faults, &sent);
	assert_in_range(faults, 1000, 1000 + 4 * 1000 / 32 + 8);
	run(&r, 1, 20000, &faults, &sent); /* dense for long: probes are rare, but there are some */
	run(&r, 1, 1000, &faults, &sent);
	assert_int_equal(sent, 1000);
}

static void fewer_blocks_than_sixteen(void **state)
{
	struct soda_region r = { .flags = 0 };

	soda_agent.chunk_shift = 14;
	assert_int_equal(soda_blocks_all(), 0xf);
	for (int i = 0; i < 200; i++) {
		uint32_t opened = soda_protect_choose(&r, 0, 3, false);

		assert_true(opened == 0xf || opened == 8);
		soda_protect_learn(&r, opened);
	}
	soda_agent.chunk_shift = 12;
	assert_int_equal(soda_blocks_all(), 1);
	assert_int_equal(soda_protect_choose(&r, 0, 0, false), 1);
	soda_agent.chunk_shift = 21;
	soda_agent.block_shift = 17;
	assert_int_equal(soda_blocks_all(), ALL);
}

/* Runs of blocks become calls; what lies beyond the object's end is left alone. */
static void opening(void **state)
{
	const struct host_options o = { .buffer_chunks = 16 };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(65536 + 6 * 4096);
	host_load(r, 0, 0);
	host_load(r, 1, 0);
	soda_chunk_flags(&soda_agent.table[r->first], 0, 0);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t w = host_word(r, i);

		while (!soda_chunk_begin(&soda_agent.table[r->first + i], &w, SODA_CHUNK_BUSY))
			;
	}
	fake_page_ops.unprotects = 0;
	assert_int_equal(soda_protect_open(r, r->first, 0xf00e), 0);
	assert_int_equal(fake_page_ops.unprotects, 2);
	for (uint32_t p = 0; p < 16; p++) {
		fake_lock();
		assert_int_equal(fake_protected(host_at(r, 0, p)), !(0xf00e >> p & 1));
		fake_unlock();
	}
	assert_int_equal(soda_protect_open(r, r->first + 1, ALL), 0); /* six pages */
	assert_int_equal(fake_page_ops.unprotects, 3);
	assert_int_equal(soda_protect_open(r, r->first + 1, 0xff00), 0); /* none of them */
	assert_int_equal(fake_page_ops.unprotects, 3);
	for (uint32_t i = 0; i < 2; i++)
		soda_chunk_settle(&soda_agent.table[r->first + i], SODA_CHUNK_DIRTY, ALL, 0, 0);
	host_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(dense_stays_dense, setup),
		cmocka_unit_test_setup(sparse_is_found, setup),
		cmocka_unit_test_setup(the_limit_between, setup),
		cmocka_unit_test_setup(change_of_mind, setup),
		cmocka_unit_test_setup(fewer_blocks_than_sixteen, setup),
		cmocka_unit_test(opening),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
