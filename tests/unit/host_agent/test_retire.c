/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks that are to go while others use them: between any two steps something comes in between. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/move/fetch.h"
#include "host_agent/core/link.h"
#include "host_agent/life/advise.h"
#include "host_agent/life/publish.h"
#include "unit/fakes/host_fixture.h"

/* In place of the C library's, which the runtime asks for the time: this thread's n-th call. */
static __thread int calls_left = -1;
static __thread void (*between)(void);

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	if (calls_left >= 0 && calls_left-- == 0)
		between();
	return (int)syscall(SYS_clock_gettime, clock, ts);
}

/* Likewise: the fake kernel stores to pages that soda_publish() has made read-only. */
static bool stay_open;

int mprotect(void *addr, size_t bytes, int prot)
{
	return stay_open && soda_agent_owns(addr) ? 0
						  : (int)syscall(SYS_mprotect, addr, bytes, prot);
}

static struct soda_region *object;

static int discard(uint32_t first, uint32_t n)
{
	struct soda_why why;
	int ret;

	fake_lock();
	fake_page_ops.discarding = true;
	fake_unlock();
	ret = soda_advise_range(object, host_at(object, first, 0), (size_t)n << 16, SODA_DISCARD,
				&why);
	fake_lock();
	fake_page_ops.discarding = false;
	fake_unlock();
	return ret;
}

/* As a stream, or soda_prefetch() of another thread. */
static void fetch_ahead(void)
{
	const struct soda_plan plan = { .first = object->first, .stride = 1, .n = 1 };

	soda_fetch_ahead(soda_thread_self(), object, &plan);
}

/* Whenever a chunk begins to be fetched during DISCARD: its old content does not come back. */
static void discard_beside_prefetch(void **state)
{
	const struct host_options o = { .buffer_chunks = 64, .prefetch = 8 };
	int began = 0;

	for (int n = 0; n < 6; n++) {
		host_start(&o);
		object = host_alloc(8 << 16);
		for (uint32_t p = 0; p < 16; p++)
			host_store(object, 0, p, 100 + p);
		assert_int_equal(host_cold(object, 0, 1), 0);
		assert_int_equal(host_state(object, 0), SODA_CHUNK_REMOTE);
		between = fetch_ahead;
		calls_left = n;
		assert_int_equal(discard(0, 1), 0);
		calls_left = -1;
		began += fake_net.reads > 0;
		host_settle(object, true);
		for (uint32_t p = 0; p < 16; p++)
			assert_int_equal(host_load(object, 0, p), 0);
		host_check(object);
		host_stop();
	}
	assert_true(began >= 2);
}

/* Pages that the kernel kept when their chunk was evicted are not there after DISCARD, either. */
static void discard_of_what_was_kept(void **state)
{
	const struct host_options o = { .buffer_chunks = 64 };

	host_start(&o);
	object = host_alloc(2 << 16);
	for (uint32_t p = 0; p < 16; p++)
		host_store(object, 0, p, 100 + p);
	assert_int_equal(host_sync(object), 0);
	fake_lock();
	fake_page_ops.drop_fails_in = 5;
	fake_unlock();
	assert_int_equal(host_cold(object, 0, 1), 0);
	assert_int_equal(host_state(object, 0), SODA_CHUNK_REMOTE);
	assert_int_equal(fake_resident(host_at(object, 0, 0), 65536), 11);
	assert_int_equal(discard(0, 1), 0);
	for (uint32_t p = 0; p < 16; p++)
		assert_int_equal(host_load(object, 0, p), 0);
	host_check(object);
	host_stop();
}

/* The agent is stopped while it installs chunk 0; what it was to answer is held. */
static void agent_stops(void)
{
	const struct host_options o = {
		.buffer_chunks = 64, .prefetch = 8, .installs = true, .fault_timeout_ms = 1000
	};

	host_start(&o);
	object = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t p = 0; p < 16; p++)
			host_store(object, i, p, 100 * i + p + 1);
	assert_int_equal(host_cold(object, 0, 4), 0);
	fake_net_hold(true, false);
	fetch_ahead();
	assert_int_equal(host_state(object, 0), SODA_CHUNK_FETCHING);
	fake_lock();
	fake_net.stopped = true;
	fake_unlock();
}

static void await_session(void)
{
	uint32_t before = atomic_load(&soda_agent.reconnects);
	uint64_t end = soda_now_ns() + 30000000000u;

	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	fake_net_hold(false, false);
	while (atomic_load(&soda_agent.reconnects) == before) {
		if (soda_now_ns() > end)
			fake_fail("the keeper does not come back");
		usleep(1000);
	}
	assert_int_equal(host_state(object, 0), SODA_CHUNK_FETCHING);
}

static void agent_goes_on(void)
{
	fake_lock();
	fake_net.stopped = false;
	fake_unlock();
}

/* The chunk can be had when the agent goes on; until then whoever wants it is told. */
static void stuck_comes_back(void **state)
{
	uint64_t v;

	agent_stops();
	await_session();
	assert_int_equal(host_load(object, 1, 3), 104);
	assert_int_equal(fake_load(host_at(object, 0, 0), &v), -ETIMEDOUT);
	agent_goes_on();
	host_expect(object, 0, SODA_CHUNK_REMOTE);
	for (uint32_t p = 0; p < 16; p++)
		assert_int_equal(host_load(object, 0, p), p + 1);
	host_check(object);
	host_stop();
}

/* The server starts anew meanwhile: the keeper does not wait for that chunk, which is lost. */
static void stuck_is_lost(void **state)
{
	agent_stops();
	fake_net_restart();
	await_session();
	assert_int_equal(host_state(object, 1), SODA_CHUNK_LOST);
	agent_goes_on();
	host_expect(object, 0, SODA_CHUNK_LOST);
	assert_int_equal(fake_resident(host_at(object, 0, 0), 65536), 0);
	assert_int_equal(discard(0, 1), 0);
	assert_int_equal(host_load(object, 0, 3), 0);
	host_check(object);
	host_stop();
}

static const struct soda_page_ops *below;
static enum soda_chunk_state dropped_from;

static int note_state_and_drop(const struct iovec *ranges, int n, size_t *dropped_p)
{
	dropped_from = host_state(object, 0);
	return below->drop(ranges, n, dropped_p);
}

/*
 * Pages of a lost chunk are dropped by its DISCARD: in handler mode some of them fail, and in both
 * the kernel may have kept some.  Another DISCARD must not make it zeros meanwhile, which a thread
 * could store to: it is taken.
 */
static void lost_is_discarded(enum soda_mode mode)
{
	const struct host_options o = { .buffer_chunks = 24 };
	struct soda_page_ops ops;

	host_start(&o);
	object = host_alloc(4 << 16);
	host_store(object, 0, 0, 1);
	assert_int_equal(host_sync(object), 0);
	fake_lock();
	fake_page_ops.drop_fails_in = mode == SODA_MODE_INLINE ? 5 : -1;
	fake_unlock();
	assert_int_equal(host_cold(object, 0, 1), 0);
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(host_state(object, 0), SODA_CHUNK_LOST);
	below = soda_agent.page_ops;
	ops = *below;
	ops.drop = note_state_and_drop;
	soda_agent.page_ops = &ops;
	soda_agent.settings.mode = mode;
	assert_int_equal(discard(0, 1), 0);
	soda_agent.settings.mode = SODA_MODE_INLINE;
	soda_agent.page_ops = below;
	assert_int_equal(dropped_from, SODA_CHUNK_FETCHING);
	assert_int_equal(host_state(object, 0), SODA_CHUNK_ZERO);
	for (uint32_t p = 0; p < 16; p++)
		assert_int_equal(host_load(object, 0, p), 0);
	host_check(object);
	host_stop();
}

static void lost_is_discarded_by_one(void **state)
{
	lost_is_discarded(SODA_MODE_HANDLER);
	lost_is_discarded(SODA_MODE_INLINE);
}

static pthread_t publisher;

static void *publish(void *arg)
{
	struct soda_why why = { "" };

	soda_publish_object(object, "published", &why); /* the fake server refuses it in the end */
	return NULL;
}

/* The chunk goes when soda_publish() has come to it. */
static int publish_and_drop(const struct iovec *ranges, int n, size_t *dropped_p)
{
	uint64_t end = soda_now_ns() + 30000000000u;

	if (!publisher) {
		assert_int_equal(pthread_create(&publisher, NULL, publish, NULL), 0);
		while (!(host_word(object, 0) & SODA_CW_WAITERS)) {
			if (soda_now_ns() > end)
				fake_fail("nobody waits for the chunk");
			usleep(1000);
		}
	}
	return below->drop(ranges, n, dropped_p);
}

/* Zeros that are being dropped reach the server before the object is published. */
static void publish_beside_a_drop(void **state)
{
	const struct host_options o = { .buffer_chunks = 24, .threads = 2 };
	struct soda_page_ops ops;
	uint64_t first;

	host_start(&o);
	object = host_alloc(2 << 16);
	for (uint32_t p = 0; p < 16; p++)
		host_store(object, 0, p, 100 + p);
	assert_int_equal(host_cold(object, 0, 1), 0);
	assert_int_equal(discard(0, 1), 0);
	assert_int_equal(host_load(object, 0, 3), 0);
	host_expect(object, 0, SODA_CHUNK_CLEAN);
	below = soda_agent.page_ops;
	ops = *below;
	ops.drop = publish_and_drop;
	publisher = 0;
	stay_open = true;
	soda_agent.page_ops = &ops;
	assert_int_equal(host_cold(object, 0, 1), 0);
	assert_int_equal(pthread_join(publisher, NULL), 0);
	stay_open = false;
	soda_agent.page_ops = below;
	fake_lock();
	for (uint32_t p = 0; p < 16; p++) {
		memcpy(&first, fake_server_page(object->id, p * 4096), sizeof(first));
		assert_int_equal(first, 0);
	}
	fake_unlock();
	host_check(object);
	host_stop();
}

static void *free_object(void *arg)
{
	host_free(object);
	return NULL;
}

/* An object with such a chunk can be freed; nothing comes to lie where the agent may store. */
static void stuck_is_freed(void **state)
{
	uint32_t id;
	uint64_t end;
	struct timespec until;
	pthread_t t;

	agent_stops();
	await_session();
	id = object->first;
	assert_int_equal(pthread_create(&t, NULL, free_object, NULL), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 30;
	if (pthread_timedjoin_np(t, NULL, &until))
		fake_fail("soda_free does not come to an end");
	assert_null(soda_region_of(id));
	assert_int_equal(soda_chunk_state(soda_chunk_load(&soda_agent.table[id])),
			 SODA_CHUNK_FETCHING);
	object = host_alloc(8 << 16);
	host_store(object, 0, 0, 7);
	agent_goes_on();
	end = soda_now_ns() + 30000000000u;
	while (soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) != SODA_CHUNK_NONE) {
		if (soda_now_ns() > end)
			fake_fail("the chunk of the object that has gone stays as it is");
		usleep(1000);
	}
	assert_int_equal(fake_resident(soda_chunk_address(id), 65536), 0);
	host_check(object);
	host_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(discard_beside_prefetch),
		cmocka_unit_test(discard_of_what_was_kept),
		cmocka_unit_test(stuck_comes_back),
		cmocka_unit_test(stuck_is_lost),
		cmocka_unit_test(stuck_is_freed),
		cmocka_unit_test(lost_is_discarded_by_one),
		cmocka_unit_test(publish_beside_a_drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
