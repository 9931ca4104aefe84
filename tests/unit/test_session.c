/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that are lost and made again, and servers that come back as another. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/lock.h"
#include "host_agent/session.h"
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

static void lost_in_flight(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(16 << 16);
	for (uint32_t i = 0; i < 6; i++)
		host_store(r, i, 1, i + 60);
	let_go();
	fake_net_hold(false, true);
	for (uint32_t i = 0; i < 6; i++)
		send(r, i, i % 2 ? SODA_WB_EVICT : SODA_WB_SYNC);
	while (fake_net_under_way(true) < 6)
		usleep(50);
	fake_net_break(-ECONNREFUSED);
	for (uint32_t i = 0; i < 6; i++) /* it waits for a connection then, dirty */
		while (host_word(r, i) & SODA_CW_SENDING)
			usleep(50);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_DIRTY);
		assert_int_equal(fake_resident(host_at(r, i, 0), 65536), 16);
	}
	host_store(r, 2, 2, 7); /* goes on without the server */
	fake_net_hold(false, false);
	fake_net_mend();
	assert_int_equal(soda_session_wait(soda_now_ns() + 60000000000u), 0);
	assert_int_equal(host_sync(r), 0);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(fake_server_word(r->id, i * 65536 + 4096), i + 60);
	assert_int_equal(fake_server_word(r->id, 2 * 65536 + 2 * 4096), 7);
	host_check(r);
	host_stop();
}

/* A sync that the connection's loss interrupts must not say that all is well. */
static void sync_across_a_loss(void **state)
{
	const struct host_options o = { .fault_timeout_ms = 400 };
	struct soda_region *r;
	int ret;

	host_start(&o);
	r = host_alloc(8 << 16);
	host_store(r, 0, 0, 1);
	fake_net_refuse(true, 0, 0);
	fake_net_break(-ECONNREFUSED); /* the next poll finds out, and there is no way back */
	ret = host_sync(r);
	if (ret == 0)
		assert_int_not_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
	assert_int_equal(ret, -ETIMEDOUT);
	assert_int_equal(host_state(r, 0), SODA_CHUNK_DIRTY);
	fake_net_mend();
	assert_int_equal(soda_session_wait(soda_now_ns() + 60000000000u), 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, 0), 1);
	/* And one that the server's return saves. */
	host_store(r, 0, 0, 2);
	fake_net_hold(false, true);
	send(r, 0, SODA_WB_SYNC);
	while (!fake_net_under_way(true))
		usleep(50);
	fake_net_hold(false, false);
	fake_net_break(0);
	ret = host_sync(r);
	assert_true(ret == 0 || ret == -ETIMEDOUT);
	if (!ret)
		assert_int_equal(fake_server_word(r->id, 0), 2);
	host_check(r);
	host_stop();
}

/* The server starts anew: what is resident lives on, what was not is lost, zeros are zeros. */
static void server_starts_anew(void **state)
{
	const struct host_options o = { .fault_timeout_ms = 1000 };
	struct soda_region *r;
	uint64_t v;

	host_start(&o);
	r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 4; i++)
		host_store(r, i, i, i + 70);
	assert_int_equal(host_sync(r), 0);
	let_go();
	assert_int_equal(host_cold(r, 3, 1), 0);
	host_expect(r, 3, SODA_CHUNK_REMOTE);
	host_store(r, 2, 9, 90);
	fake_net_restart();
	soda_session_report(-ECONNRESET);
	assert_int_equal(soda_session_wait(soda_now_ns() + 60000000000u), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_DIRTY);
		assert_int_equal(host_load(r, i, i), i + 70);
	}
	assert_int_equal(host_state(r, 3), SODA_CHUNK_LOST);
	assert_int_equal(fake_load(host_at(r, 3, 3), &v), -EIO); /* never zeros */
	assert_true(host_errors() > 0);
	assert_int_equal(host_load(r, 4, 0), 0); /* was never written */
	assert_int_equal(host_sync(r), 0);
	let_go();
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(host_cold(r, i, 1), 0);
		assert_int_equal(host_load(r, i, i), i + 70);
	}
	assert_int_equal(host_load(r, 2, 9), 90);
	host_check(r);
	host_stop();
}

/* Two objects; the connection fails again while the second is opened anew. */
static void lost_in_recovery(void **state)
{
	struct soda_region *r[2];
	uint64_t v;

	host_start(&plain);
	for (int k = 0; k < 2; k++) {
		r[k] = host_alloc(4 << 16);
		for (uint32_t i = 0; i < 3; i++)
			host_store(r[k], i, 0, i + 10);
		assert_int_equal(host_cold(r[k], 0, 1), 0);
	}
	fake_lock();
	fake_net.lose_at_open = 2;
	fake_unlock();
	fake_net_restart();
	soda_session_report(-ECONNRESET);
	assert_int_equal(soda_session_wait(soda_now_ns() + 60000000000u), 0);
	assert_int_equal(fake_net.lose_at_open, 0);
	for (int k = 0; k < 2; k++) {
		assert_int_equal(host_state(r[k], 0), SODA_CHUNK_LOST);
		assert_int_equal(fake_load(host_at(r[k], 0, 0), &v), -EIO);
		assert_false(r[k]->lost);
		assert_int_equal(host_sync(r[k]), 0);
		assert_int_equal(host_cold(r[k], 1, 2), 0);
		for (uint32_t i = 1; i < 3; i++)
			assert_int_equal(host_load(r[k], i, 0), i + 10);
	}
	host_stop();
}

/* The server has opened the region, and nobody heard of it: that does not stand in the way. */
static void answer_of_open_lost(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	fake_lock();
	fake_net.lose_answer_of_open = true;
	fake_unlock();
	r = host_alloc(4 << 16);
	assert_false(fake_net.lose_answer_of_open);
	host_store(r, 1, 0, 11);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, 65536), 11);
	host_stop();
}

/* A new connection fails before all of them are made: that is not forgotten. */
static _Atomic uint32_t reports;

static void report_once(void)
{
	if (atomic_fetch_add(&reports, 1) == 1)
		soda_session_report(-ECONNRESET);
}

static void lost_while_reconnecting(void **state)
{
	uint32_t connects;

	host_start(&plain);
	connects = fake_net.connects; /* of one whole set */
	atomic_store(&reports, 0);
	fake_lock();
	fake_net.on_connect = report_once;
	fake_unlock();
	fake_net_break(0);
	soda_session_report(-ECONNRESET);
	assert_int_equal(soda_session_wait(soda_now_ns() + 60000000000u), 0);
	assert_int_equal(atomic_load(&reports), 2 * connects); /* made twice */
	host_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_in_flight),      cmocka_unit_test(sync_across_a_loss),
		cmocka_unit_test(server_starts_anew),  cmocka_unit_test(lost_in_recovery),
		cmocka_unit_test(answer_of_open_lost), cmocka_unit_test(lost_while_reconnecting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
