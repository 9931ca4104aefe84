/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of a dirty chunk to the server, with stores, refusals and losses in between. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/lock.h"
#include "host_agent/evict.h"
#include "host_agent/writeback.h"
#include "host_fixture.h"

static const struct host_options plain = { .buffer_chunks = 24 };

/* As the evictor does with a dirty chunk. */
static void send(const struct soda_region *r, uint32_t chunk, int why)
{
	uint32_t id = r->first + chunk;

	assert_int_equal(host_state(r, chunk), SODA_CHUNK_DIRTY);
	soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
	soda_writeback_queue(&id, 1, why);
}

static void let_go(void)
{
	soda_thread_forget(soda_thread_self());
}

static void acknowledged_then_dropped(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(8 << 16);
	host_store(r, 3, 2, 9);
	let_go();
	fake_net_hold(false, true);
	send(r, 3, SODA_WB_EVICT);
	assert_int_equal(soda_agent.buffer.sending, 1);
	host_settle(r, false);
	/* On its way: clean, protected, and not to be dropped. */
	assert_int_equal(host_state(r, 3), SODA_CHUNK_CLEAN);
	assert_true(host_word(r, 3) & SODA_CW_SENDING);
	assert_false(host_word(r, 3) & SODA_CW_BACKED);
	fake_lock();
	assert_true(fake_protected(host_at(r, 3, 2)));
	fake_unlock();
	soda_evict_ahead(soda_thread_self());
	assert_int_equal(host_state(r, 3), SODA_CHUNK_CLEAN);
	assert_int_equal(host_load(r, 3, 2), 9);
	let_go();
	fake_net_hold(false, false);
	host_settle(r, true);
	host_expect(r, 3, SODA_CHUNK_REMOTE);
	assert_int_equal(host_count(SODA_CNT_EVICTED_DIRTY), 1);
	assert_int_equal(host_load(r, 3, 2), 9);
	host_check(r);
	host_stop();
}

static void store_cancels_the_eviction(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(8 << 16);
	for (uint64_t round = 1; round <= 30; round++) {
		uint32_t page = (uint32_t)round % 16;

		r->sparse_score = round & 1 ? 16 : 1;
		host_store(r, 0, 5, round);
		let_go();
		fake_net_hold(false, true);
		send(r, 0, SODA_WB_EVICT);
		while (!fake_net_under_way(true))
			usleep(50);
		host_store(r, 0, page, round + 1000); /* maybe into what is being sent */
		let_go();
		assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
		fake_net_hold(false, false);
		host_settle(r, true);
		assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY); /* it stayed */
		assert_int_equal(fake_resident(host_at(r, 0, 0), 65536), 16);
		assert_int_equal(host_load(r, 0, page), round + 1000);
		let_go();
		send(r, 0, SODA_WB_EVICT); /* the second attempt carries the store */
		host_settle(r, true);
		host_expect(r, 0, SODA_CHUNK_REMOTE);
		assert_int_equal(host_load(r, 0, page), round + 1000);
		if (page != 5)
			assert_int_equal(host_load(r, 0, 5), round);
	}
	assert_int_equal(host_count(SODA_CNT_LOCAL_REFAULTS), 30);
	host_check(r);
	host_stop();
}

static void refused_stays_dirty(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 4; i++)
		host_store(r, i, i, i + 40);
	fake_net_hold(false, true);
	for (uint32_t i = 0; i < 4; i++) {
		send(r, i, SODA_WB_SYNC);
		host_settle(r, false);
	}
	fake_net_refuse(true, -ENOSPC, 2); /* the first two */
	fake_net_hold(false, false);
	host_settle(r, true);
	assert_int_equal(host_errors(), 2);
	assert_non_null(strstr(host_last_error(), "fake://server"));
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_DIRTY);
		assert_int_not_equal(soda_chunk_dirty(host_word(r, i)), 0);
		assert_false(host_word(r, i) & SODA_CW_BACKED);
	}
	assert_int_equal(host_state(r, 3), SODA_CHUNK_CLEAN);
	fake_net_refuse(true, -ENOSPC, UINT32_MAX);
	assert_int_equal(host_sync(r), -ENOSPC);
	/* Refused while being evicted: it is not dropped either. */
	let_go();
	fake_net_refuse(true, -EIO, 1);
	send(r, 0, SODA_WB_EVICT);
	host_settle(r, true);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
	assert_int_equal(soda_agent.buffer.sending, 0);
	fake_net_refuse(true, 0, 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(host_load(r, i, i), i + 40);
	host_store(r, 0, 0, 50); /* a dirty chunk with protected pages can be stored to */
	assert_int_equal(host_sync(r), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(fake_server_word(r->id, i * 65536 + i * 4096), i ? i + 40 : 50);
	host_check(r);
	host_stop();
}

/* One WRITE of several fails: all of the chunk is dirty again, the mask is that of before. */
static void one_part_refused(void **state)
{
	struct soda_region *r;
	uint32_t mask;

	host_start(&plain);
	r = host_alloc(8 << 16);
	r->sparse_score = 16;
	host_store(r, 0, 1, 1);
	host_store(r, 0, 5, 5);
	host_store(r, 0, 9, 9);
	mask = soda_chunk_dirty(host_word(r, 0));
	assert_int_equal(mask, 1 << 1 | 1 << 5 | 1 << 9);
	fake_net_refuse(true, -EIO, 1);
	send(r, 0, SODA_WB_SYNC);
	host_settle(r, true);
	assert_int_equal(fake_net.writes, 3);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
	assert_int_equal(soda_chunk_dirty(host_word(r, 0)), mask);
	host_check(r);
	host_stop();
}

static void sparse_blocks_only(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(8 << 16);
	r->sparse_score = 16;
	host_store(r, 2, 3, 1);
	host_store(r, 2, 4, 1); /* neighbours travel together */
	host_store(r, 2, 15, 1);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_net.log_n, 2);
	assert_int_equal(fake_net.log[0].offset, 2 * 65536 + 3 * 4096);
	assert_int_equal(fake_net.log[0].bytes, 2 * 4096);
	assert_int_equal(fake_net.log[1].offset, 2 * 65536 + 15 * 4096);
	assert_int_equal(fake_net.log[1].bytes, 4096);
	assert_int_equal(host_count(SODA_CNT_BYTES_WRITTEN), 3 * 4096);
	host_check(r);
	host_stop();
}

/* Batches are sorted, and neighbours share a protection change. */
static void sorted_and_joined(void **state)
{
	static const uint32_t order[] = { 6, 1, 5, 2, 0, 7, 3, 4 };
	uint32_t ids[8], protects, flush;
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(16 << 16);
	for (uint32_t i = 0; i < 9; i++)
		host_store(r, i, 0, i + 1);
	let_go();
	assert_int_equal(host_sync(r), 0);
	/* The thread is kept busy with one chunk while the batch is queued. */
	for (uint32_t i = 0; i < 9; i++)
		host_store(r, i, 0, i + 2);
	let_go();
	fake_net_hold(false, true);
	send(r, 8, SODA_WB_SYNC);
	while (!fake_net_under_way(true))
		usleep(50);
	fake_lock();
	protects = fake_pager.protects;
	fake_net.log_n = 0;
	fake_unlock();
	for (int i = 0; i < 8; i++) {
		ids[i] = r->first + order[i];
		soda_chunk_flags(&soda_agent.table[ids[i]], SODA_CW_QUEUED, 0);
	}
	soda_writeback_queue(ids, 8, SODA_WB_EVICT);
	host_settle(r, false); /* taken up in one go, when the poll of the first is over */
	fake_net_hold(false, false);
	host_settle(r, true);
	assert_int_equal(fake_net.log_n, 8);
	flush = fake_net.log[0].flush;
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(fake_net.log[i].offset, i * 65536);
		assert_int_equal(fake_net.log[i].flush, flush); /* one doorbell */
	}
	assert_int_equal(fake_pager.protects, protects + 1);
	for (uint32_t i = 0; i < 8; i++)
		host_expect(r, i, SODA_CHUNK_REMOTE);
	/* Neighbours are dropped as one range. */
	assert_true(fake_pager.dropped_ranges < fake_pager.dropped_chunks);
	host_check(r);
	host_stop();
}

/* As many threads fault as there are processors: they send on their own connections. */
static void the_faulting_thread_helps(void **state)
{
	const struct host_options o = { .buffer_chunks = 64, .help = true };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(256 << 16);
	for (uint32_t round = 1; round <= 4; round++)
		for (uint32_t i = 0; i < 256; i++)
			host_store(r, i, i % 16, round * 1000 + i);
	assert_true(fake_net.writes > 512);
	for (uint32_t i = 0; i < 256; i++)
		assert_int_equal(host_load(r, i, i % 16), 4000 + i);
	let_go();
	assert_int_equal(host_sync(r), 0);
	host_check(r);
	host_stop();
}

/* What a helper's connection takes with it, or a server refuses it, is not lost. */
static void a_helper_fails(void **state)
{
	const struct host_options o = { .buffer_chunks = 64, .help = true };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(256 << 16);
	for (uint32_t round = 1; round <= 8; round++) {
		for (uint32_t i = 0; i < 256; i++) {
			if (i % 64 == 40)
				fake_net_refuse(true, -EIO, 3);
			if (i == 200)
				fake_net_break(0); /* the next attempt to connect succeeds */
			host_store(r, i, i % 16, round * 1000 + i);
		}
	}
	fake_net_refuse(true, 0, 0);
	for (uint32_t i = 0; i < 256; i++)
		assert_int_equal(host_load(r, i, i % 16), 8000 + i);
	let_go();
	assert_int_equal(host_sync(r), 0);
	host_check(r);
	host_stop();
}

/* The kernel refuses a protection change in the middle of a chunk: no store may get lost. */
static void protection_refused(void **state)
{
	for (int64_t nth = 0; nth < 4; nth++) {
		struct soda_region *r;

		host_start(&plain);
		r = host_alloc(8 << 16);
		host_store(r, 0, 0, 1);
		assert_int_equal(host_sync(r), 0);
		r->sparse_score = 16;
		for (uint32_t p = 2; p < 16;
		     p += 3) { /* opens the rest, in several runs, at last */
			fake_lock();
			fake_pager.protect_fails_in = nth;
			fake_unlock();
			host_store(r, 0, p, p + 10);
			host_store(r, 0, p - 1, p + 9);
			fake_lock();
			for (uint32_t q = 0; q < 16; q++)
				if (!fake_protected(host_at(r, 0, q)))
					assert_true(soda_chunk_dirty(host_word(r, 0)) >> q & 1);
			fake_pager.protect_fails_in = -1;
			fake_unlock();
		}
		host_check(r);
		host_stop();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(acknowledged_then_dropped),
		cmocka_unit_test(store_cancels_the_eviction),
		cmocka_unit_test(refused_stays_dirty),
		cmocka_unit_test(one_part_refused),
		cmocka_unit_test(sparse_blocks_only),
		cmocka_unit_test(sorted_and_joined),
		cmocka_unit_test(the_faulting_thread_helps),
		cmocka_unit_test(a_helper_fails),
		cmocka_unit_test(protection_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
