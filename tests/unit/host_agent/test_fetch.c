/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks on their way in: refusals, late answers, fetching ahead, equal faults. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/fault/fault.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/fetch.h"
#include "host_agent/core/link.h"
#include "host_agent/life/advise.h"
#include "unit/fakes/host_fixture.h"

static const struct host_options plain = { .buffer_chunks = 16 };

static void evict_all(struct soda_region *r)
{
	assert_int_equal(host_cold(r, 0, r->chunks), 0);
	host_settle(r, true);
}

/* Chunk i holds i + 1 in its first word, on the server only. */
static struct soda_region *numbered(uint32_t chunks)
{
	struct soda_region *r = host_alloc((uint64_t)chunks * soda_chunk_bytes());

	for (uint32_t i = 0; i < chunks; i++)
		host_store(r, i, 0, i + 1);
	evict_all(r);
	fake_net.reads = 0;
	return r;
}

static void copy_refused_by_the_kernel(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(40 << 16);
	host_store(r, 1, 0, 5);
	evict_all(r);
	for (int64_t pages = 0; pages < 16; pages += 5) {
		fake_lock();
		fake_page_ops.copy_fails_in = pages;
		fake_unlock();
		assert_int_equal(soda_fault_touch(soda_thread_self(), r, r->first + 1), -ENOMEM);
		assert_int_equal(host_state(r, 1), SODA_CHUNK_REMOTE);
		assert_int_equal(fake_resident(host_at(r, 1, 0), 65536), 0);
	}
	assert_true(host_errors() > 0);
	assert_int_equal(host_load(r, 1, 0), 5);
	host_check(r);
	host_stop();
}

static void read_refused_by_the_server(void **state)
{
	struct soda_region *r;
	uint64_t v;

	host_start(&plain);
	r = host_alloc(40 << 16);
	host_store(r, 1, 0, 5);
	evict_all(r);
	fake_net_refuse(false, -EACCES, 1);
	assert_int_equal(fake_load(host_at(r, 1, 0), &v), -EACCES); /* never zeros */
	assert_int_equal(host_state(r, 1), SODA_CHUNK_REMOTE);
	assert_true(host_errors() > 0);
	assert_int_equal(host_load(r, 1, 0), 5);
	host_check(r);
	host_stop();
}

/* An answer that does not come in time fails the fault, and cannot land in a page later. */
static void read_that_is_late(void **state)
{
	struct soda_region *r;
	uint64_t v;

	host_start(&plain);
	r = host_alloc(40 << 16);
	host_store(r, 1, 0, 5);
	evict_all(r);
	soda_agent.settings.fault_timeout_ms = 100; /* too short for a slow machine to evict in */
	fake_net_hold(true, false);
	assert_int_equal(fake_load(host_at(r, 1, 0), &v), -ETIMEDOUT);
	assert_int_equal(host_state(r, 1), SODA_CHUNK_REMOTE);
	fake_net_hold(false, false);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	host_store(r, 1, 0, 6);
	host_settle(r, true);
	assert_int_equal(host_load(r, 1, 0), 6);
	host_check(r);
	host_stop();
}

/*
 * Handler mode: its thread has as many requests under way on its channel as there are slots, and a
 * thread of the program that needs a chunk by itself (PIN) has that channel, too.
 */
static void channel_that_is_full(void **state)
{
	struct soda_thread *t;
	struct soda_region *r;
	uint32_t posted = 0;
	int ret = 0;

	host_start(&plain);
	t = soda_thread_self();
	assert_int_equal(soda_channel_demand(t, &soda_agent.links[0]), 0);
	r = numbered(40);
	for (; !ret && posted < 12; posted++) {
		struct soda_fault f = { .region = r, .id = r->first + posted };

		assert_int_equal(soda_fault_step(t, &f), SODA_STEP_FETCH);
		ret = soda_fetch_post(t, r, r->first + posted, -1);
	}
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(soda_fault_touch(t, r, r->first + 20), 0);
	assert_int_equal(host_load(r, 20, 0), 21);
	for (uint32_t i = 0; i < posted; i++)
		assert_int_equal(host_load(r, i, 0), i + 1);
	host_check(r);
	host_stop();
}

static void direct_reads(void **state)
{
	const struct host_options o = { .buffer_chunks = 16, .direct = true };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(50 << 16);
	for (int pass = 0; pass < 3; pass++)
		for (uint32_t i = 0; i < r->chunks; i++) {
			assert_int_equal(host_load(r, i, i % 16), pass ? i + pass : 0);
			host_store(r, i, i % 16, i + (uint32_t)pass + 1);
		}
	assert_int_equal(fake_net.reads, 0);
	assert_true(host_count(SODA_CNT_FETCHES) > 50);
	host_check(r);
	host_stop();
}

/* An agent that fetches ahead hears what it need not fetch: what is here, and what is zeros. */
static void tells_what_it_has(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = numbered(100);
	evict_all(r);
	fake_net.asks = true;
	for (uint32_t i = 7; i <= 10; i += 3)
		host_load(r, i, 0);
	assert_int_equal(fake_net.residency.before, 1u << 2);
	host_load(r, 9, 0);
	assert_int_equal(fake_net.residency.before, 1u << 1);
	assert_int_equal(fake_net.residency.after, 1u);
	host_load(r, 99, 0);
	assert_int_equal(fake_net.residency.after, 0);
	host_load(r, 72, 0);
	assert_int_equal(fake_net.residency.before, 1ull << 61 | 1ull << 62);
	assert_int_equal(fake_net.residency.after, 1ull << 26);
	host_check(r);
	host_stop();
}

/* The peer installs some, we install the others from its memory. */
static void peer_installs(void **state)
{
	const struct host_options o = {
		.buffer_chunks = 100, .prefetch = 8, .installs = true, .seed = 3
	};
	struct soda_region *r;
	uint32_t installed;

	host_start(&o);
	r = numbered(300);
	installed = fake_net.installed;
	for (uint32_t i = 0; i < r->chunks; i++)
		assert_int_equal(host_load(r, i, 0), i + 1);
	assert_int_equal(fake_net.reads, 300);
	assert_in_range(fake_net.installed - installed, 50, 250);
	assert_int_equal(host_count(SODA_CNT_INSTALLED), fake_net.installed);
	for (uint32_t i = 0; i < r->chunks; i++)
		host_store(r, i, i % 16, i + 2);
	evict_all(r);
	for (uint32_t i = 0; i < r->chunks; i++)
		assert_int_equal(host_load(r, i, i % 16), i + 2);
	host_check(r);
	host_stop();
}

/* What may be stored to before we know is not given out of our hands. */
static void peer_installs_no_stores(void **state)
{
	const struct host_options o = { .buffer_chunks = 16, .installs = true };
	struct soda_region *r;

	host_start(&o);
	r = numbered(40);
	fake_net.installed = 0;
	for (uint32_t i = 0; i < r->chunks; i++)
		host_store(r, i, i % 16, i + 2);
	assert_int_equal(fake_net.reads, 40);
	assert_int_equal(fake_net.installed, 0);
	for (uint32_t i = 0; i < r->chunks; i++)
		assert_int_equal(host_load(r, i, i % 16), i + 2);
	host_check(r);
	host_stop();
}

/* The peer fails while it installs: half a chunk does not stay, nor is it installed later. */
static void peer_dies_installing(void **state)
{
	/* for what is in time, too: not too little for a busy machine */
	const struct host_options o = { .fault_timeout_ms = 1000, .installs = true, .seed = 5 };
	struct soda_region *r;
	uint64_t v;

	host_start(&o);
	r = numbered(40);
	for (uint32_t busy = 0; busy < 4; busy++) {
		fake_net_hold(true, false);
		fake_lock();
		fake_net.revokes = 0;
		fake_net.revoke_busy = busy;
		fake_unlock();
		assert_int_equal(fake_load(host_at(r, busy, 0), &v), -ETIMEDOUT);
		fake_net_hold(false, false);
		assert_int_equal(soda_server_wait(&soda_agent.links[0].server,
						  soda_now_ns() + 60000000000u, NULL),
				 0);
		assert_int_equal(fake_net.revokes, busy + 1);
		assert_int_equal(host_state(r, busy), SODA_CHUNK_REMOTE);
		assert_int_equal(fake_resident(host_at(r, busy, 0), 65536), 0);
		assert_int_equal(host_load(r, busy, 0), busy + 1);
	}
	host_check(r);
	host_stop();
}

static void streams_run_ahead(void **state)
{
	const struct host_options o = { .buffer_chunks = 100, .prefetch = 8 };
	struct soda_region *r;
	uint64_t faults;

	host_start(&o);
	r = numbered(300);
	faults = host_count(SODA_CNT_FAULTS);
	for (uint32_t i = 0; i < r->chunks; i++)
		assert_int_equal(host_load(r, i, 0), i + 1);
	/* Nothing twice, nothing beyond the end, few demands. */
	assert_int_equal(fake_net.reads, 300);
	assert_true(host_count(SODA_CNT_PREFETCHED) > 250);
	assert_true(host_count(SODA_CNT_FAULTS) - faults < 150);
	assert_int_equal(host_count(SODA_CNT_PREFETCH_USELESS), 0);
	host_check(r);
	host_stop();
}

static void willneed_chunks(const struct soda_region *r, uint32_t first, uint32_t last)
{
	struct iovec range = { soda_chunk_address(r->first + first),
			       (last - first + 1) * soda_chunk_bytes() };

	soda_advise_willneed(&range, 1);
}

static void willneed(void **state)
{
	const struct host_options o = { .buffer_chunks = 100, .prefetch = 16 };
	struct soda_region *r;

	host_start(&o);
	r = numbered(50);
	fake_net_hold(true, false);
	willneed_chunks(r, 10, 13);
	assert_int_equal(fake_net.reads, 4);
	for (uint32_t i = 10; i < 14; i++)
		assert_int_equal(host_state(r, i), SODA_CHUNK_FETCHING);
	willneed_chunks(r, 10, 13); /* already under way */
	assert_int_equal(fake_net.reads, 4);
	fake_net_hold(false, false);
	for (uint32_t i = 10; i < 14; i++)
		assert_int_equal(host_load(r, i, 0), i + 1);
	assert_int_equal(fake_net.reads, 4);
	/* More than there are slots or chunks: as far as it goes, without waiting. */
	fake_net_hold(true, false);
	willneed_chunks(r, 0, 49);
	fake_net_hold(false, false);
	host_settle(r, true);
	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(host_load(r, i, 0), i + 1);
	host_check(r);
	host_stop();
}

static struct soda_region *shared;

static void *loader(void *arg)
{
	uint64_t v = 0;
	int ret = fake_load(host_at(shared, 7, 0), &v);

	soda_thread_forget(soda_thread_self());
	return (void *)(uintptr_t)(ret ? 0 : v);
}

/* Many threads, one chunk: one READ. */
static void equal_faults_join(void **state)
{
	enum { THREADS = 4 };
	const struct host_options o = { .buffer_chunks = 40, .threads = THREADS };
	uint64_t end = soda_now_ns() + 30000000000u;
	pthread_t thread[THREADS];

	host_start(&o);
	shared = numbered(16);
	fake_net_hold(true, false);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, loader, NULL), 0);
	while (host_count(SODA_CNT_JOINED) < THREADS - 1) {
		assert_true(soda_now_ns() < end);
		usleep(100);
	}
	fake_net_hold(false, false);
	for (int i = 0; i < THREADS; i++) {
		void *v;

		assert_int_equal(pthread_join(thread[i], &v), 0);
		assert_int_equal((uintptr_t)v, 8);
	}
	assert_int_equal(fake_net.reads, 1);
	assert_int_equal(host_count(SODA_CNT_FETCHES), 1);
	host_check(shared);
	host_stop();
}

/* The connection goes while a fault waits: it is asked again on the next one. */
static void lost_under_a_fault(void **state)
{
	struct soda_region *r;
	pthread_t thread;
	void *v;

	host_start(&plain);
	shared = r = numbered(16);
	fake_net_hold(true, false);
	assert_int_equal(pthread_create(&thread, NULL, loader, NULL), 0);
	while (!fake_net_under_way(false))
		usleep(100);
	fake_net_break(0);
	fake_net_hold(false, false);
	assert_int_equal(pthread_join(thread, &v), 0);
	assert_int_equal((uintptr_t)v, 8);
	assert_int_equal(fake_net.reads, 2);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	host_check(r);
	host_stop();
}

/*
 * An object that came back as another one: nothing of it is fetched any more, neither ahead nor by
 * a fault that began before that was known.
 */
static void nothing_of_a_lost_object(void **state)
{
	for (int direct = 0; direct < 2; direct++) {
		const struct host_options o = { .buffer_chunks = 64,
						.prefetch = 8,
						.direct = direct };
		struct soda_plan plan = { .stride = 1, .n = 4 };
		struct soda_thread *t = soda_thread_self();
		struct soda_region *r;
		uint32_t id, w;

		host_start(&o);
		r = host_alloc(8 << 16);
		for (uint32_t i = 0; i < 6; i++)
			host_store(r, i, 0, i + 1);
		assert_int_equal(host_cold(r, 0, 6), 0);
		id = plan.first = r->first;
		w = host_word(r, 5);
		assert_true(soda_buffer_take(&soda_agent.buffer));
		assert_true(soda_chunk_begin(&soda_agent.table[id + 5], &w, SODA_CHUNK_FETCHING));
		atomic_store(&r->lost, true);
		assert_int_equal(soda_fetch_demand(t, r, id + 5, -1, soda_now_ns() + 5000000000u),
				 -EIO);
		soda_fetch_ahead(t, r, &plan);
		host_settle(r, true);
		for (uint32_t i = 0; i < 6; i++)
			assert_int_equal(host_state(r, i), SODA_CHUNK_REMOTE);
		assert_int_equal(fake_net.reads, 0);
		host_check(r);
		host_stop();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_refused_by_the_kernel),
		cmocka_unit_test(read_refused_by_the_server),
		cmocka_unit_test(read_that_is_late),
		cmocka_unit_test(channel_that_is_full),
		cmocka_unit_test(direct_reads),
		cmocka_unit_test(tells_what_it_has),
		cmocka_unit_test(peer_installs),
		cmocka_unit_test(peer_installs_no_stores),
		cmocka_unit_test(peer_dies_installing),
		cmocka_unit_test(streams_run_ahead),
		cmocka_unit_test(willneed),
		cmocka_unit_test(equal_faults_join),
		cmocka_unit_test(lost_under_a_fault),
		cmocka_unit_test(nothing_of_a_lost_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
