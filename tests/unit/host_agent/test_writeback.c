/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of a dirty chunk to the server, with stores, refusals and losses in between. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/core/link.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/retire.h"
#include "host_agent/move/sender.h"
#include "host_agent/move/writeback.h"
#include "host_agent/pool/recover.h"
#include "unit/fakes/host_fixture.h"

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
	while (!host_count(SODA_CNT_EVICTED_DIRTY)) /* counted when it has gone */
		usleep(50);
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

/* Its keeper: the server, which had refused the object, has opened it again. */
static void *taken_soon(void *arg)
{
	while (!fake_net_under_way(true))
		usleep(100);
	soda_recover_set_refused(arg, 0);
	fake_net_hold(false, false);
	return NULL;
}

/* What was refused before the server took the object again is sent again by the same soda_sync. */
static void refused_and_taken(void **state)
{
	struct soda_region *r;
	struct soda_why why = { "" };
	pthread_t thread;

	host_start(&plain);
	r = host_alloc(4 << 16);
	host_store(r, 0, 0, 5);
	let_go();
	fake_net_hold(false, true);
	fake_net_refuse(true, -EIO, 1);
	assert_int_equal(pthread_create(&thread, NULL, taken_soon, r), 0);
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), 0);
	pthread_join(thread, NULL);
	assert_int_equal(fake_server_word(r->id, 0), 5);
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
	protects = fake_page_ops.protects;
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
	assert_int_equal(fake_page_ops.protects, protects + 1);
	for (uint32_t i = 0; i < 8; i++)
		host_expect(r, i, SODA_CHUNK_REMOTE);
	/* Neighbours are dropped as one range. */
	assert_true(fake_page_ops.dropped_ranges < fake_page_ops.dropped_chunks);
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

/*
 * What was lost with one connection is not sent over another one of the same epoch, which the
 * server may answer before it comes to the WRITE that was lost: the server counts as away first.
 */
static void nothing_overtakes(void **state)
{
	struct soda_sending ops[4] = { 0 };
	struct soda_sender s = { .ops = ops, .max = 4 };
	struct soda_region *r;

	host_start(&plain);
	s.t = soda_thread_self();
	r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 3; i++)
		host_store(r, i, i, i + 70);
	let_go();
	fake_net_break(-ECONNREFUSED);
	send(r, 0, SODA_WB_EVICT);
	while (soda_server_up(&soda_agent.links[0].server) || !(host_word(r, 0) & SODA_CW_QUEUED))
		usleep(50);
	for (uint32_t i = 1; i < 3; i++)
		send(r, i, SODA_WB_EVICT);
	/* a sender whose connection is as it was: there is none, so that a post would be the end */
	assert_int_equal(soda_sender_send(&s), 0);
	assert_int_equal(s.used, 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_DIRTY);
		assert_true(host_word(r, i) & SODA_CW_QUEUED);
	}
	assert_int_equal(soda_sender_queue_waits_for(&soda_agent.links[0]), 3);
	fake_net_mend();
	host_settle(r, true);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(host_load(r, i, i), i + 70);
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
			fake_page_ops.protect_fails_in = nth;
			fake_unlock();
			host_store(r, 0, p, p + 10);
			host_store(r, 0, p - 1, p + 9);
			fake_lock();
			for (uint32_t q = 0; q < 16; q++)
				if (!fake_protected(host_at(r, 0, q)))
					assert_true(soda_chunk_dirty(host_word(r, 0)) >> q & 1);
			fake_page_ops.protect_fails_in = -1;
			fake_unlock();
		}
		host_check(r);
		host_stop();
	}
}

struct syncing {
	const struct soda_region *r;
	int ret;
};

static void *sync_all(void *arg)
{
	struct syncing *s = arg;

	s->ret = host_sync(s->r);
	return NULL;
}

/* The queue is full, and the connection takes what it had with it: soda_sync brings that, too. */
static void lost_beside_a_full_queue(void **state)
{
	enum { CHUNKS = 9000, UNDER_WAY = 64 };
	const struct host_options o = { .chunk_bytes = 4096, .buffer_chunks = 2 * CHUNKS };
	uint64_t end = soda_now_ns() + 30000000000u;
	struct syncing s = { .ret = 1 };
	struct soda_region *r;
	uint32_t waiting = 0;
	pthread_t thread;

	host_start(&o);
	s.r = r = host_alloc(CHUNKS << 12);
	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(r, i, 0, i + 1);
	let_go();
	fake_net_hold(false, true);
	assert_int_equal(pthread_create(&thread, NULL, sync_all, &s), 0);
	/* It is full where the sync stands still, with chunks to go. */
	while (fake_net_under_way(true) < UNDER_WAY || soda_sender_queue_waiting() != waiting ||
	       !waiting) {
		waiting = soda_sender_queue_waiting();
		assert_true(soda_now_ns() < end);
		usleep(20000);
	}
	assert_true(waiting + UNDER_WAY < CHUNKS);
	fake_net_break(0);
	fake_net_hold(false, false);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(s.ret, 0);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_CLEAN);
		assert_int_equal(fake_server_word(r->id, (uint64_t)i << 12), i + 1);
	}
	host_check(r);
	host_stop();
}

/* A chunk that is BUSY for longer than the writer waits is brought when it is not any more. */
static void busy_keeps_its_place(void **state)
{
	struct soda_region *r;
	uint32_t id, w;

	host_start(&plain);
	r = host_alloc(8 << 16);
	host_store(r, 3, 2, 9);
	let_go();
	id = r->first + 3;
	w = soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0) | SODA_CW_QUEUED;
	/* As a thread that is about to open a block, and has no processor. */
	assert_true(soda_chunk_begin(&soda_agent.table[id], &w, SODA_CHUNK_BUSY));
	soda_writeback_queue(&id, 1, SODA_WB_EVICT);
	for (int i = 0; i < 100 && host_word(r, 3) & SODA_CW_QUEUED; i++)
		usleep(1000);
	assert_true(host_word(r, 3) & SODA_CW_QUEUED); /* soda_sync goes by it */
	assert_int_equal(soda_agent.buffer.sending, 1);
	soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_DIRTY, soda_chunk_dirty(w), 0, 0);
	host_settle(r, true);
	host_expect(r, 3, SODA_CHUNK_REMOTE);
	assert_int_equal(host_load(r, 3, 2), 9);
	host_check(r);
	host_stop();
}

static void *answer_soon(void *arg)
{
	while (fake_net_under_way(true) < 2)
		usleep(100);
	fake_net_hold(false, false);
	return NULL;
}

/* What the server refuses of one object is not told by another's soda_sync. */
static void refused_of_another(void **state)
{
	struct soda_region *r[2];
	pthread_t thread;
	uint32_t id;

	host_start(&plain);
	for (int k = 0; k < 2; k++) {
		r[k] = host_alloc(4 << 16);
		host_store(r[k], 0, 0, k + 5);
	}
	let_go();
	fake_net_hold(false, true);
	id = r[0]->first;
	soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
	assert_int_equal(soda_writeback_queue(&id, 1, SODA_WB_SYNC), 1);
	while (!fake_net_under_way(true))
		usleep(100);
	fake_net_refuse(true, -EIO, 1);
	assert_int_equal(pthread_create(&thread, NULL, answer_soon, NULL), 0);
	assert_int_equal(host_sync(r[1]), 0);
	pthread_join(thread, NULL);
	assert_int_equal(host_state(r[0], 0), SODA_CHUNK_DIRTY);
	assert_int_equal(host_sync(r[0]), 0);
	for (int k = 0; k < 2; k++)
		assert_int_equal(fake_server_word(r[k]->id, 0), k + 5);
	host_stop();
}

/* Places that were given up, however many, are no reason for the writer to sleep. */
static void places_given_up(void **state)
{
	enum { GIVEN_UP = 8000 }; /* 250 batches: a sleep after each would take a minute */
	uint64_t end;
	struct soda_region *r;
	uint32_t id, real;

	host_start(&plain);
	r = host_alloc(8 << 16);
	host_store(r, 0, 0, 1);
	host_store(r, 1, 0, 2);
	let_go();
	assert_int_equal(soda_sync_chunks(r->first, 1), 0);
	id = r->first;
	real = r->first + 1;
	end = soda_now_ns() + 10000000000u;
	for (int i = 0; i < GIVEN_UP; i++) /* queued, and discarded before their turn */
		assert_int_equal(soda_sender_queue_put(&id, 1, SODA_WB_EVICT), 1);
	soda_chunk_flags(&soda_agent.table[real], SODA_CW_QUEUED, 0);
	assert_int_equal(soda_writeback_queue(&real, 1, SODA_WB_SYNC), 1);
	while (host_word(r, 1) & (SODA_CW_QUEUED | SODA_CW_SENDING)) {
		assert_true(soda_now_ns() < end);
		usleep(1000);
	}
	assert_int_equal(host_state(r, 1), SODA_CHUNK_CLEAN);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_CLEAN);
	host_check(r);
	host_stop();
}

/* What the server has is dropped, and can be stored to, while it is silent about other chunks. */
static void acknowledged_beside_silence(void **state)
{
	const struct host_options o = { .buffer_chunks = 64, .fault_timeout_ms = 3000 };
	struct soda_region *r;
	uint32_t ids[24];

	host_start(&o);
	r = host_alloc(24 << 16);
	for (uint32_t i = 0; i < 24; i++)
		host_store(r, i, 0, i + 1);
	let_go();
	fake_net_hold(false, true);
	for (uint32_t i = 0; i < 24; i++) {
		ids[i] = r->first + i;
		soda_chunk_flags(&soda_agent.table[ids[i]], SODA_CW_QUEUED, 0);
	}
	assert_int_equal(soda_writeback_queue(ids, 24, SODA_WB_EVICT), 24);
	while (fake_net_under_way(true) < 24)
		usleep(50);
	fake_net_let(1);
	while (fake_net_under_way(true) == 24)
		usleep(50);
	while (host_state(r, 0) == SODA_CHUNK_CLEAN)
		usleep(50);
	host_store(r, 0, 1, 9);
	assert_int_equal(host_load(r, 0, 0), 1);
	let_go();
	fake_net_hold(false, false);
	host_settle(r, true);
	host_check(r);
	host_stop();
}

/*
 * An evictor has marked a chunk and finds the queue full, so that it takes the mark back: who
 * waits for that chunk meanwhile must not take it for sent.
 */
static void a_mark_taken_back(void **state)
{
	enum { CHUNKS = 9000 };
	const struct host_options o = { .chunk_bytes = 4096, .buffer_chunks = 3 * CHUNKS };
	struct soda_region *full, *r;
	uint64_t end = soda_now_ns() + 30000000000u;
	struct syncing s = { .ret = 1 };
	struct soda_why why = { "" };
	uint32_t id;
	pthread_t thread;

	host_start(&o);
	full = host_alloc(CHUNKS << 12);
	s.r = r = host_alloc(4096);
	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(full, i, 0, i + 1);
	host_store(r, 0, 0, 7);
	let_go();
	fake_net_hold(false, true);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		id = full->first + i;
		soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
		soda_writeback_queue(&id, 1, SODA_WB_EVICT); /* the last of them in vain */
	}
	id = r->first;
	soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
	assert_int_equal(pthread_create(&thread, NULL, sync_all, &s), 0);
	usleep(50000); /* it waits for the mark to go */
	while (soda_writeback_queue(&id, 1, SODA_WB_EVICT)) {
		assert_true(soda_now_ns() < end); /* the writer had taken some more */
		soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
	}
	usleep(50000);
	fake_net_hold(false, false);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(s.ret, 0);
	assert_int_not_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
	assert_int_equal(fake_server_word(r->id, 0), 7);
	host_settle(full, true);
	host_settle(r, true);
	assert_int_equal(soda_audit_live(&why), 0);
	host_stop();
}

/* Dirty data that the program has closed are written back all the same. */
static void closed_to_all(void **state)
{
	const struct host_options o = { .buffer_chunks = 24, .fault_timeout_ms = 3000 };
	struct soda_region *r;
	uint32_t connects;

	host_start(&o);
	r = host_alloc((7 << 16) + 4096); /* the last chunk is a page */
	for (uint32_t i = 0; i < 8; i++)
		host_store(r, i, 0, i + 1);
	let_go();
	assert_int_equal(mprotect(host_at(r, 3, 2), 4096, PROT_NONE), 0);
	assert_int_equal(mprotect(host_at(r, 7, 0), 4096, PROT_NONE), 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(host_state(r, 3), SODA_CHUNK_CLEAN);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(fake_server_word(r->id, i << 16), i + 1);
	assert_int_equal(host_errors(), 0);
	/* From now on it costs no connection. */
	connects = fake_net.connects;
	host_store(r, 0, 0, 100);
	host_store(r, 3, 0, 300);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_net.connects, connects);
	assert_int_equal(fake_server_word(r->id, 0), 100);
	assert_int_equal(fake_server_word(r->id, 3 << 16), 300);
	assert_int_equal(mprotect(host_at(r, 3, 2), 4096, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(mprotect(host_at(r, 7, 0), 4096, PROT_READ | PROT_WRITE), 0);
	host_check(r);
	host_stop();
}

/*
 * At the runtime's end other pages, of zeros, which nobody may read, take the place of the
 * program's: a thread that still writes back then does not send them.
 */
static void pages_taken_away(void **state)
{
	const struct host_options o = { .buffer_chunks = 24, .fault_timeout_ms = 3000 };
	enum soda_agent_life life;
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(8 << 16);
	host_store(r, 3, 0, 4);
	let_go();
	assert_int_equal(mprotect(host_at(r, 3, 2), 4096, PROT_NONE), 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, 3 << 16), 4);
	host_store(r, 3, 0, 300);
	let_go();
	life = atomic_exchange(&soda_agent.life, SODA_LIFE_ENDED);
	send(r, 3, SODA_WB_SYNC);
	while (host_word(r, 3) & (SODA_CW_QUEUED | SODA_CW_SENDING))
		usleep(50);
	assert_int_equal(fake_server_word(r->id, 3 << 16), 4);
	assert_int_equal(host_state(r, 3), SODA_CHUNK_DIRTY);
	assert_int_equal(host_errors(), 0);
	atomic_store(&soda_agent.life, life);
	assert_int_equal(mprotect(host_at(r, 3, 2), 4096, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, 3 << 16), 300);
	host_check(r);
	host_stop();
}

/* Data that nothing can read are refused; others go, over a connection that lives. */
static void out_of_reach(void **state)
{
	const struct host_options o = { .buffer_chunks = 24, .fault_timeout_ms = 3000 };
	struct soda_region *r;
	char *elsewhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *page;
	uint32_t connects;

	assert_ptr_not_equal(elsewhere, MAP_FAILED);
	host_start(&o);
	r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 8; i++)
		host_store(r, i, 0, i + 1);
	let_go();
	page = host_at(r, 3, 2);
	assert_ptr_equal(mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere),
			 elsewhere);
	assert_int_equal(host_sync(r), -EFAULT);
	assert_int_equal(host_sync(r), -EFAULT);
	assert_int_equal(host_state(r, 3), SODA_CHUNK_DIRTY);
	for (uint32_t i = 0; i < 8; i++)
		if (i != 3)
			assert_int_equal(fake_server_word(r->id, i << 16), i + 1);
	assert_int_equal(host_errors(), 1); /* it is said once */
	assert_non_null(strstr(host_last_error(), "mprotect"));
	connects = fake_net.connects;
	send(r, 3, SODA_WB_EVICT);
	host_settle(r, true);
	host_store(r, 0, 0, 100);
	assert_int_equal(soda_sync_chunks(r->first, 1), 0);
	assert_int_equal(host_sync(r), -EFAULT);
	assert_int_equal(fake_net.connects, connects);
	assert_ptr_equal(mremap(elsewhere, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page), page);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, 3 << 16), 4);
	assert_int_equal(fake_server_word(r->id, 0), 100);
	host_check(r);
	host_stop();
}

static void *sync_range(void *arg)
{
	struct syncing *s = arg;
	struct soda_why why = { "" };

	s->ret = soda_sync_range((struct soda_region *)s->r, s->r->first, s->r->chunks, &why);
	return NULL;
}

/* The server starts anew while soda_sync is at work: what the old one has acknowledged goes again.
 */
static void restart_under_a_sync(void **state)
{
	uint64_t end = soda_now_ns() + 30000000000u;
	struct syncing s = { .ret = 1 };
	struct soda_region *r;
	pthread_t thread;

	host_start(&plain);
	s.r = r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 8; i++)
		host_store(r, i, 0, i + 1);
	let_go();
	fake_net_hold(false, true);
	assert_int_equal(pthread_create(&thread, NULL, sync_range, &s), 0);
	while (fake_net_under_way(true) < 8 && soda_now_ns() < end)
		usleep(50);
	fake_net_let(4);
	while (host_word(r, 3) & SODA_CW_SENDING && soda_now_ns() < end)
		usleep(50);
	assert_int_equal(host_state(r, 3), SODA_CHUNK_CLEAN);
	fake_net_restart();
	fake_net_hold(false, false);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(s.ret, 0);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(fake_server_word(r->id, i << 16), i + 1);
		assert_int_equal(host_state(r, i), SODA_CHUNK_CLEAN);
	}
	host_check(r);
	host_stop();
}

/* A DISCARD whose time is over leaves the chunk as it was, in the queue if it was there. */
static void discard_out_of_time(void **state)
{
	enum { TRIALS = 20000 };
	struct soda_region *r;
	uint32_t id;
	int late = 0;

	host_start(&plain);
	r = host_alloc(8 << 16);
	fake_net_break(-ECONNREFUSED); /* nobody takes it from the queue */
	fake_page_ops.discarding = true;
	id = r->first;
	for (uint64_t i = 0; i < TRIALS; i++) {
		bool backed;
		int ret;

		host_store(r, 0, 0, i + 1);
		let_go();
		soda_chunk_flags(&soda_agent.table[id], SODA_CW_QUEUED, 0);
		ret = soda_retire_discard(id, soda_now_ns() + i % 500, &backed);
		if (!ret)
			continue;
		assert_int_equal(ret, -ETIMEDOUT);
		assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
		assert_true(host_word(r, 0) & SODA_CW_QUEUED);
		late++;
	}
	assert_int_not_equal(late, 0);
	fake_page_ops.discarding = false;
	fake_net_mend();
	soda_chunk_flags(&soda_agent.table[id], 0, SODA_CW_QUEUED);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 30000000000u, NULL),
		0);
	host_check(r);
	host_stop();
}

/* What becomes of a store cannot be told while another thread has the chunk: that is no success. */
static void busy_for_too_long(void **state)
{
	const struct host_options o = { .buffer_chunks = 24, .fault_timeout_ms = 300 };
	struct soda_chunk *c;
	struct soda_region *r;
	uint32_t w;

	host_start(&o);
	r = host_alloc(8 << 16);
	host_store(r, 3, 2, 9);
	let_go();
	c = &soda_agent.table[r->first + 3];
	w = soda_chunk_load(c);
	assert_true(soda_chunk_begin(c, &w, SODA_CHUNK_BUSY));
	assert_int_equal(host_sync(r), -ETIMEDOUT);
	soda_chunk_settle(c, SODA_CHUNK_DIRTY, soda_chunk_dirty(w), 0, 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, (3 << 16) + (2 << 12)), 9);
	host_check(r);
	host_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(acknowledged_then_dropped),
		cmocka_unit_test(store_cancels_the_eviction),
		cmocka_unit_test(refused_stays_dirty),
		cmocka_unit_test(refused_and_taken),
		cmocka_unit_test(one_part_refused),
		cmocka_unit_test(sparse_blocks_only),
		cmocka_unit_test(sorted_and_joined),
		cmocka_unit_test(the_faulting_thread_helps),
		cmocka_unit_test(a_helper_fails),
		cmocka_unit_test(nothing_overtakes),
		cmocka_unit_test(protection_refused),
		cmocka_unit_test(lost_beside_a_full_queue),
		cmocka_unit_test(busy_keeps_its_place),
		cmocka_unit_test(places_given_up),
		cmocka_unit_test(refused_of_another),
		cmocka_unit_test(acknowledged_beside_silence),
		cmocka_unit_test(a_mark_taken_back),
		cmocka_unit_test(closed_to_all),
		cmocka_unit_test(pages_taken_away),
		cmocka_unit_test(out_of_reach),
		cmocka_unit_test(restart_under_a_sync),
		cmocka_unit_test(discard_out_of_time),
		cmocka_unit_test(busy_for_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
