/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of a chunk in and out again: faults, clean evictions, advice, the hard limit. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/life/advise.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/limit.h"
#include "host_agent/pool/recover.h"
#include "unit/fakes/host_fixture.h"

static const struct host_options plain = { .buffer_chunks = 16 };

/* Drop everything that may go, as a full buffer would. */
static void evict_all(struct soda_region *r)
{
	assert_int_equal(host_cold(r, 0, r->chunks), 0);
	host_settle(r, true);
}

static void round_trip(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(4 << 16);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_ZERO);
	assert_int_equal(host_load(r, 0, 3), 0); /* zeros, no traffic */
	assert_int_equal(host_state(r, 0), SODA_CHUNK_CLEAN);
	host_store(r, 0, 3, 77);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
	assert_int_equal(fake_net.reads + fake_net.writes, 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_CLEAN);
	assert_true(host_word(r, 0) & SODA_CW_BACKED);
	assert_int_equal(fake_server_word(r->id, 3 * 4096), 77);
	evict_all(r);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_REMOTE);
	assert_int_equal(fake_resident(host_at(r, 0, 0), 1 << 16), 0);
	assert_int_equal(host_load(r, 0, 3), 77);
	assert_int_equal(host_load(r, 0, 4), 0);
	assert_int_equal(fake_net.reads, 1);
	host_store(r, 0, 4, 78); /* and again, from CLEAN */
	evict_all(r);
	assert_int_equal(host_load(r, 0, 3), 77);
	assert_int_equal(host_load(r, 0, 4), 78);
	assert_int_equal(host_count(SODA_CNT_FAULTS), 3);
	assert_int_equal(host_count(SODA_CNT_ZERO_FILLS), 1);
	assert_int_equal(host_count(SODA_CNT_FETCHES), 2);
	assert_int_equal(host_count(SODA_CNT_BYTES_FETCHED), 2 << 16);
	assert_int_equal(host_count(SODA_CNT_BYTES_WRITTEN), fake_net.bytes_written);
	host_check(r);
	host_free(r);
	assert_int_equal(soda_agent.buffer.pinned, 0);
	assert_int_equal(soda_buffer_used(&soda_agent.buffer), 1); /* the staging slot */
	host_stop();
}

/* A program larger than the buffer that only reads what nobody wrote. */
static void zeros_come_and_go_for_nothing(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(200 << 16);
	for (int pass = 0; pass < 3; pass++)
		for (uint32_t i = 0; i < r->chunks; i++)
			assert_int_equal(host_load(r, i, i % 16), 0);
	assert_int_equal(fake_net.reads + fake_net.writes, 0);
	assert_true(host_count(SODA_CNT_EVICTED_CLEAN) >= 3 * 200 - 16);
	assert_int_equal(host_count(SODA_CNT_EVICTED_DIRTY), 0);
	for (uint32_t i = 0; i < r->chunks; i++)
		assert_true(host_state(r, i) == SODA_CHUNK_ZERO ||
			    host_state(r, i) == SODA_CHUNK_CLEAN);
	host_check(r);
	host_stop();
}

static void only_what_was_written_is_sent(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(100 << 16);
	for (uint32_t i = 0; i < r->chunks; i++) {
		host_load(r, i, 1);
		if (i % 4 == 0)
			host_store(r, i, 0, i + 1);
	}
	assert_int_equal(host_sync(r), 0);
	assert_in_range(fake_net.log_n, 25, 50);
	for (uint32_t i = 0; i < fake_net.log_n; i++)
		assert_int_equal(fake_net.log[i].offset / 65536 % 4, 0);
	for (uint32_t i = 0; i < r->chunks; i++)
		assert_int_equal(host_load(r, i, 0), i % 4 == 0 ? i + 1 : 0);
	host_check(r);
	host_stop();
}

static void short_last_chunk(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(65536 + 5 * 4096 + 10); /* six pages of a second chunk */
	assert_int_equal(r->chunks, 2);
	for (int round = 1; round < 4; round++) {
		host_store(r, 1, 5, (uint64_t)round);
		host_store(r, 1, 0, (uint64_t)round * 10);
		evict_all(r);
		assert_int_equal(host_state(r, 1), SODA_CHUNK_REMOTE);
		assert_int_equal(host_load(r, 1, 5), round);
		assert_int_equal(host_load(r, 1, 0), round * 10);
	}
	for (uint32_t i = 0; i < fake_net.log_n; i++)
		assert_in_range(fake_net.log[i].offset + fake_net.log[i].bytes, 0, r->span);
	host_check(r);
	host_free(r);
	host_stop();
}

static void cold(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(4 << 16);
	for (uint32_t i = 0; i < 3; i++)
		host_store(r, i, i, i + 5);
	host_load(r, 3, 0);
	assert_int_equal(host_cold(r, 0, 4), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(host_state(r, i), SODA_CHUNK_REMOTE);
	assert_int_equal(host_state(r, 3), SODA_CHUNK_ZERO);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(host_load(r, i, i), i + 5);
	fake_net_refuse(true, -EIO, UINT32_MAX);
	host_store(r, 1, 0, 9);
	assert_int_equal(host_cold(r, 1, 1), -EIO); /* not written: it stays */
	assert_int_equal(host_state(r, 1), SODA_CHUNK_DIRTY);
	assert_int_equal(host_load(r, 1, 0), 9);
	host_check(r);
	host_stop();
}

static int discard(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct soda_why why;
	int ret;

	fake_lock();
	fake_page_ops.discarding = true;
	fake_unlock();
	ret = soda_advise_range(r, host_at(r, first, 0), (size_t)n << 16, SODA_DISCARD, &why);
	fake_lock();
	fake_page_ops.discarding = false;
	fake_unlock();
	return ret;
}

static void discard_gives_zeros(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 6; i++)
		host_store(r, i, 2, i + 5);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(host_cold(r, 0, 1), 0); /* 0: remote */
	host_store(r, 1, 3, 6);			 /* 1: dirty, the server has an old one */
	assert_int_equal(discard(r, 0, 4), 0);	 /* 2 and 3: clean */
	assert_int_equal(discard(r, 6, 1), 0);	 /* never touched */
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(host_state(r, i), SODA_CHUNK_ZERO);
	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t p = 0; p < 16; p++)
			assert_int_equal(host_load(r, i, p), p == 2 && i >= 4 && i < 6 ? i + 5 : 0);
	host_check(r);
	host_stop();
}

/*
 * What the server still has of a discarded chunk must never come back, not even
 * when only one block of the chunk is written and travels.
 */
static void discard_then_sparse_store(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(8 << 16);
	for (uint32_t p = 0; p < 16; p++)
		host_store(r, 0, p, 100 + p);
	evict_all(r);
	assert_int_equal(discard(r, 0, 1), 0);
	r->sparse_score = 16; /* as after many sparse stores */
	host_store(r, 0, 7, 1);
	evict_all(r);
	for (uint32_t p = 0; p < 16; p++)
		assert_int_equal(host_load(r, 0, p), p == 7 ? 1 : 0);
	host_check(r);
	host_stop();
}

static void pinned_stay(void **state)
{
	struct soda_region *r;
	struct soda_why why;

	host_start(&plain);
	r = host_alloc(100 << 16);
	host_store(r, 2, 0, 22);
	assert_int_equal(soda_advise_range(r, host_at(r, 0, 0), 4 << 16, SODA_PIN, &why), 0);
	for (int pass = 0; pass < 3; pass++) {
		for (uint32_t i = 4; i < r->chunks; i++)
			host_store(r, i, 0, i);
		for (uint32_t i = 0; i < 4; i++) {
			assert_true(host_state(r, i) == SODA_CHUNK_CLEAN ||
				    host_state(r, i) == SODA_CHUNK_DIRTY);
			assert_int_equal(fake_resident(host_at(r, i, 0), 65536), 16);
		}
	}
	assert_int_equal(soda_agent.buffer.pinned, 4);
	/* Beyond the buffer less its minimum: refused as a whole, and said so. */
	assert_int_equal(soda_advise_range(r, host_at(r, 10, 0), 12 << 16, SODA_PIN, &why),
			 -ENOMEM);
	assert_non_null(why.text);
	assert_int_equal(soda_agent.buffer.pinned, 4);
	assert_int_equal(soda_advise_range(r, host_at(r, 0, 0), 4 << 16, SODA_UNPIN, &why), 0);
	assert_int_equal(soda_agent.buffer.pinned, 0);
	for (uint32_t i = 4; i < r->chunks; i++)
		assert_int_equal(host_load(r, i, 0), i);
	assert_int_equal(host_load(r, 2, 0), 22);
	host_check(r);
	host_stop();
}

static int pin(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct soda_why why;

	return soda_advise_range(r, host_at(r, first, 0), (size_t)n << 16, SODA_PIN, &why);
}

static int64_t pins(struct soda_region *r)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < r->chunks; i++)
		n += !!(host_word(r, i) & SODA_CW_PINNED);
	return n;
}

/* A PIN that fails leaves the pins as they were, however far it came. */
static void failed_pin_undoes_its_own(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(100 << 16);
	assert_int_equal(pin(r, 2, 2), 0);
	assert_int_equal(pin(r, 6, 1), 0);
	assert_int_equal(pin(r, 0, 60), -ENOMEM); /* more than there may be */
	assert_int_equal(pins(r), 3);
	assert_int_equal(soda_agent.buffer.pinned, 3);
	host_store(r, 8, 0, 8);
	assert_int_equal(host_cold(r, 8, 1), 0);
	r->lost = true; /* chunk 8 cannot be had */
	assert_int_equal(pin(r, 1, 8), -EIO);
	assert_int_equal(pins(r), 3);
	assert_int_equal(soda_agent.buffer.pinned, 3);
	assert_true(host_word(r, 2) & host_word(r, 3) & host_word(r, 6) & SODA_CW_PINNED);
	r->lost = false;
	host_check(r);
	host_stop();
}

struct pinning {
	struct soda_region *r;
	_Atomic uint32_t *turn;
};

static void *pin_in_turn(void *arg)
{
	struct pinning *p = arg;

	for (uint32_t round = 1; round <= 2000; round++) {
		for (int spins = 0; atomic_load(p->turn) < round;)
			if (++spins % 10000 == 0)
				sched_yield();
		if (pin(p->r, 0, 64))
			fake_fail("PIN failed");
		atomic_fetch_add(&p->turn[1], 1);
	}
	return NULL;
}

/* Two at once pin a chunk once. */
static void pins_at_once(void **state)
{
	_Atomic uint32_t turn[2] = { 0, 0 };
	const struct host_options o = { .buffer_chunks = 100, .threads = 3 };
	struct pinning p = { .turn = turn };
	struct soda_why why;
	pthread_t t[2];

	host_start(&o);
	p.r = host_alloc(64 << 16);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, pin_in_turn, &p), 0);
	for (uint32_t round = 1; round <= 2000; round++) {
		atomic_store(&turn[0], round);
		while (atomic_load(&turn[1]) < 2 * round)
			sched_yield();
		assert_int_equal(soda_agent.buffer.pinned, 64);
		assert_int_equal(
			soda_advise_range(p.r, host_at(p.r, 0, 0), 64 << 16, SODA_UNPIN, &why), 0);
		assert_int_equal(soda_agent.buffer.pinned, 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	host_check(p.r);
	host_stop();
}

struct pin_call {
	struct soda_region *r;
	uint32_t first, n;
	int ret;
};

static void *pin_thread(void *arg)
{
	struct pin_call *p = arg;

	p->ret = pin(p->r, p->first, p->n);
	return NULL;
}

/* Chunks 0 to 2 of an object; chunk 2 is REMOTE and comes when the hold on reads ends. */
static void begin_pin(struct pin_call *p, pthread_t *thread)
{
	uint64_t end = soda_now_ns() + 30000000000u;

	host_start(&plain);
	p->r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 3; i++)
		host_store(p->r, i, 0, i + 1);
	assert_int_equal(host_cold(p->r, 2, 1), 0);
	fake_net_hold(true, false);
	assert_int_equal(pthread_create(thread, NULL, pin_thread, p), 0);
	while (!fake_net_under_way(false)) {
		assert_true(soda_now_ns() < end);
		usleep(100);
	}
	assert_int_equal(pins(p->r), p->n);
}

/* A PIN that fails does not undo what another one has been told meanwhile, and undoes the rest. */
static void a_pin_beside_one_that_fails(void **state)
{
	struct pin_call a = { .n = 3 };
	pthread_t thread;

	begin_pin(&a, &thread);
	assert_int_equal(pin(a.r, 1, 1), 0);
	fake_net_refuse(false, -EINVAL, 1);
	fake_net_hold(false, false);
	pthread_join(thread, NULL);
	assert_int_equal(a.ret, -EIO);
	assert_int_equal(pins(a.r), 1);
	assert_true(host_word(a.r, 1) & SODA_CW_PINNED);
	assert_int_equal(soda_agent.buffer.pinned, 1);
	host_check(a.r);
	host_stop();
}

/* Two that wait for one chunk: both fail, and nothing of either stays. */
static void two_pins_that_fail(void **state)
{
	struct pin_call a = { .n = 3 }, b = { .first = 1, .n = 2 };
	pthread_t threads[2];

	begin_pin(&a, &threads[0]);
	b.r = a.r;
	assert_int_equal(pthread_create(&threads[1], NULL, pin_thread, &b), 0);
	usleep(50000);
	fake_net_refuse(false, -EINVAL, 100);
	fake_net_hold(false, false);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	fake_net_refuse(false, 0, 0);
	assert_int_equal(a.ret, -EIO);
	assert_int_equal(b.ret, -EIO);
	assert_int_equal(pins(a.r), 0);
	assert_int_equal(soda_agent.buffer.pinned, 0);
	host_check(a.r);
	host_stop();
}

/* As many pins as are allowed leave room for a program that goes on. */
static void most_of_the_buffer_pinned(void **state)
{
	const struct host_options o = { .buffer_chunks = 100, .fault_timeout_ms = 5000 };
	int64_t most = 100 - soda_limit_minimum(1);
	struct soda_region *r;
	struct soda_why why;
	uint64_t start;

	host_start(&o);
	r = host_alloc(300 << 16);
	assert_int_equal(soda_advise_range(r, host_at(r, 0, 0), (size_t)most << 16, SODA_PIN, &why),
			 0);
	start = soda_now_ns();
	for (uint32_t i = (uint32_t)most; i < r->chunks; i++)
		host_load(r, i, 0);
	assert_true(soda_now_ns() - start < 4000000000u);
	host_check(r);
	host_stop();
}

/* The last chunks of a thread are held: what an instruction needs at once is there. */
static void last_chunks_stay(void **state)
{
	const struct host_options o = { .buffer_chunks = 10 };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(64 << 16);
	for (uint32_t k = 0; k < 1000; k++) {
		host_load(r, k * 7 % 64, 0);
		for (uint32_t back = 0; back < 4 && back <= k; back++)
			assert_int_equal(host_state(r, (k - back) * 7 % 64), SODA_CHUNK_CLEAN);
	}
	host_check(r);
	host_stop();
}

/* The smallest buffer that the settings allow serves one thread without a wait. */
static void smallest_buffer(void **state)
{
	const struct host_options o = { .buffer_chunks = (uint32_t)soda_limit_minimum(1) };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(64 << 16);
	for (uint32_t k = 0; k < 200; k++)
		host_load(r, k * 7 % 64, 0);
	assert_int_equal(host_count(SODA_CNT_EVICT_WAITS), 0);
	host_check(r);
	host_stop();
}

static void drop_fails_in(int64_t pages)
{
	fake_lock();
	fake_page_ops.drop_fails_in = pages;
	fake_unlock();
}

static void drop_refused_by_the_kernel(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(40 << 16);
	for (uint32_t i = 0; i < 12; i++)
		host_load(r, i, 0);
	drop_fails_in(0);
	for (uint32_t i = 12; i < 40; i++)
		host_load(r, i, 0);
	assert_int_equal(fake_page_ops.drop_fails_in, -1);
	host_check(r);
	host_stop();
}

/*
 * A batch that comes to an end in the middle of a chunk: those before it are gone, those after it
 * are there, and what is missing of the one between is fetched again.
 */
static void drop_comes_half_way(void **state)
{
	const struct host_options o = { .buffer_chunks = 32 };
	struct soda_region *r;

	for (int64_t pages = 1; pages < 64; pages += 9) {
		host_start(&o);
		r = host_alloc(100 << 16);
		for (uint32_t i = 0; i < 100; i++)
			host_store(r, i, i % 16, i + 1);
		evict_all(r);
		fake_page_ops.peer = true; /* pages may be left where others come */
		for (uint32_t i = 0; i < 24; i++)
			host_load(r, i, 0);
		drop_fails_in(pages);
		for (uint32_t i = 24; i < 100; i++)
			assert_int_equal(host_load(r, i, i % 16), i + 1);
		assert_int_equal(fake_page_ops.drop_fails_in, -1);
		for (uint32_t i = 0; i < 100; i++)
			for (uint32_t p = 0; p < 16; p++)
				assert_int_equal(host_load(r, i, p), p == i % 16 ? i + 1 : 0);
		for (uint32_t i = 0; i < 100; i++)
			host_store(r, i, i % 16, i + 2);
		for (uint32_t i = 0; i < 100; i++)
			assert_int_equal(host_load(r, i, i % 16), i + 2);
		host_check(r);
		host_stop();
	}
}

/* DISCARD of a chunk that the kernel does not let go of says so, and the chunk can be used. */
static void discard_refused_by_the_kernel(void **state)
{
	struct soda_region *r;

	for (int64_t pages = 0; pages < 16; pages += 5) {
		host_start(&plain);
		r = host_alloc(2 << 16);
		for (uint32_t p = 0; p < 16; p++)
			host_store(r, 0, p, 100 + p);
		assert_int_equal(host_sync(r), 0);
		drop_fails_in(pages);
		assert_int_equal(discard(r, 0, 1), -ENOMEM);
		for (uint32_t p = 0; p < 16; p++)
			assert_int_equal(host_load(r, 0, p), p < pages ? 0 : 100 + p);
		evict_all(r);
		for (uint32_t p = 0; p < 16; p++)
			assert_int_equal(host_load(r, 0, p), p < pages ? 0 : 100 + p);
		assert_int_equal(discard(r, 0, 1), 0);
		for (uint32_t p = 0; p < 16; p++)
			assert_int_equal(host_load(r, 0, p), 0);
		host_check(r);
		host_stop();
	}
}

/* Start where there are so few addresses that objects soon come to lie where others were. */
static void start_with_1_gib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	struct rlimit before, little;
	unsigned long pages;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	little = before;
	little.rlim_cur = pages * 4096 + (1800ul << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
	host_start(&plain);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(soda_agent.bytes, 1 << 30);
}

/* Addresses whose old content stays are nobody's again. */
static void end_refused_by_the_kernel(void **state)
{
	struct soda_region *r;
	char *was;

	start_with_1_gib();
	r = host_alloc(8 << 16);
	was = host_at(r, 0, 0);
	for (uint32_t i = 0; i < 8; i++)
		host_store(r, i, 0, i + 5);
	drop_fails_in(20);
	host_free(r);
	assert_int_equal(fake_page_ops.drop_fails_in, -1);
	for (int n = 0; n < 12; n++) {
		r = host_alloc(120 << 20);
		assert_false(was >= (char *)host_at(r, 0, 0) &&
			     was < (char *)host_at(r, 0, 0) + r->span);
		host_free(r);
	}
	assert_null(soda_region_of(soda_chunk_of(was)));
	host_stop();
}

static void refuse(struct soda_region *r, int err)
{
	soda_regions_lock();
	soda_recover_set_refused(r, err);
	soda_regions_unlock();
}

static void expect_sound(const struct soda_region *a, const struct soda_region *b)
{
	struct soda_why why = { "" };

	host_settle(a, true);
	host_settle(b, true);
	if (soda_audit_live(&why))
		fake_fail("%s", why.text);
	soda_replace_check(&soda_agent.replacer);
}

/*
 * The server does not take an object, whose chunks fill the buffer: they leave its account, up to
 * as many as the buffer has, so that there is room for others; and are in it again when the server
 * takes them, or gone with the object.
 */
static void a_refused_object_makes_room(void **state)
{
	enum { REFUSED = 20 };

	for (int taken = 0; taken < 2; taken++) {
		struct soda_buffer *b = &soda_agent.buffer;
		struct soda_region *r, *other;

		host_start(&plain);
		r = host_alloc(REFUSED << 16);
		other = host_alloc(40 << 16);
		refuse(r, -EBUSY);
		for (uint32_t i = 0; i < REFUSED; i++)
			host_store(r, i, 3, 77 + i);
		for (uint32_t i = 0; i < other->chunks; i++)
			host_store(other, i, 0, i);
		assert_in_range(b->kept, 1, b->limit);
		for (uint32_t i = 0; i < other->chunks; i++)
			assert_int_equal(host_load(other, i, 0), i);
		for (uint32_t i = 0; i < REFUSED; i++)
			assert_int_equal(host_load(r, i, 3), 77 + i);
		assert_int_equal(host_errors(), 0);
		expect_sound(r, other);
		if (taken) {
			refuse(r, 0);
			assert_int_equal(b->kept, 0);
			assert_int_equal(host_sync(r), 0);
			for (uint32_t i = 0; i < other->chunks; i++)
				host_store(other, i, 0, i);
			assert_true(b->free >= 0);
			expect_sound(r, other);
			for (uint32_t i = 0; i < REFUSED; i++)
				assert_int_equal(host_load(r, i, 3), 77 + i);
		} else {
			host_free(r);
			assert_int_equal(b->kept, 0);
			assert_true(b->free >= 0);
			host_check(other);
		}
		host_stop();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(zeros_come_and_go_for_nothing),
		cmocka_unit_test(only_what_was_written_is_sent),
		cmocka_unit_test(short_last_chunk),
		cmocka_unit_test(cold),
		cmocka_unit_test(discard_gives_zeros),
		cmocka_unit_test(discard_then_sparse_store),
		cmocka_unit_test(pinned_stay),
		cmocka_unit_test(failed_pin_undoes_its_own),
		cmocka_unit_test(pins_at_once),
		cmocka_unit_test(a_pin_beside_one_that_fails),
		cmocka_unit_test(two_pins_that_fail),
		cmocka_unit_test(most_of_the_buffer_pinned),
		cmocka_unit_test(last_chunks_stay),
		cmocka_unit_test(smallest_buffer),
		cmocka_unit_test(drop_refused_by_the_kernel),

		cmocka_unit_test(drop_comes_half_way),
		cmocka_unit_test(discard_refused_by_the_kernel),
		cmocka_unit_test(end_refused_by_the_kernel),
		cmocka_unit_test(a_refused_object_makes_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
