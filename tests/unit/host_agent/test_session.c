/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that are lost and made again, and servers that come back as another. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/link.h"
#include "host_agent/fault/fault.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/writeback.h"
#include "host_agent/pool/freeze.h"
#include "soda.h"
#include "unit/fakes/host_fixture.h"

static const struct host_options plain = { .buffer_chunks = 24 };

/* For tests that wait until that time is over: still enough for a busy machine to answer in. */
static const struct host_options impatient = { .buffer_chunks = 24, .fault_timeout_ms = 1500 };

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
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
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
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
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
	struct soda_why why;
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
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_DIRTY);
		assert_int_equal(host_load(r, i, i), i + 70);
	}
	assert_int_equal(host_state(r, 3), SODA_CHUNK_LOST);
	assert_int_equal(fake_load(host_at(r, 3, 3), &v), -EIO); /* never zeros */
	assert_true(host_errors() > 0);
	assert_int_equal(host_load(r, 4, 0), 0); /* was never written */
	/* what was stored to chunk 3 is nowhere: that is said once, and all else is on the server
	 */
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), -EIO);
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), 0);
	let_go();
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(host_cold(r, i, 1), 0);
		assert_int_equal(host_load(r, i, i), i + 70);
	}
	assert_int_equal(host_load(r, 2, 9), 90);
	host_check(r);
	host_stop();
}

/* The same where only the client is another one, and is said to be known. */
static void known_as_another(void **state)
{
	const struct host_options o = { .fault_timeout_ms = 1000 };
	struct soda_region *r;
	uint64_t v;

	host_start(&o);
	r = host_alloc(8 << 16);
	for (uint32_t i = 0; i < 3; i++)
		host_store(r, i, i, i + 70);
	assert_int_equal(host_sync(r), 0);
	let_go();
	assert_int_equal(host_cold(r, 2, 1), 0);
	host_expect(r, 2, SODA_CHUNK_REMOTE);
	fake_net_mistake();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(host_state(r, 2), SODA_CHUNK_LOST);
	assert_int_equal(fake_load(host_at(r, 2, 2), &v), -EIO);
	assert_int_equal(host_sync(r), 0); /* what is resident is on the server again */
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(fake_server_word(r->id, i * 65536 + i * 4096), i + 70);
	host_check(r);
	host_stop();
}

/*
 * Two objects; the connection fails again while the second is opened anew.  What the server has
 * given the client by then is not left to one that never comes back.
 */
static void lost_in_recovery(void **state)
{
	struct soda_region *r[2];
	uint64_t v, client;

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
	client = fake_net.client;
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(fake_net.lose_at_open, 0);
	assert_int_equal(fake_net.client, client + 1);
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

/* No connection after this one. */
static void refuse_the_next(void)
{
	fake_lock();
	fake_net.refuse_connect = -ECONNREFUSED;
	fake_net.on_connect = NULL;
	fake_unlock();
}

/* The same, and there is no way to the server for a while: it has nothing that could be synced. */
static void sync_amid_recovery(void **state)
{
	struct soda_why why = { "" };
	struct soda_region *r[2];

	host_start(&impatient);
	for (int k = 0; k < 2; k++) {
		r[k] = host_alloc(4 << 16);
		host_store(r[k], 1, 0, 11);
		assert_int_equal(host_sync(r[k]), 0);
	}
	fake_lock();
	fake_net.lose_at_open = 1;
	fake_net.on_connect = refuse_the_next;
	fake_unlock();
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	for (uint32_t left = 1; left; usleep(100)) {
		fake_lock();
		left = fake_net.lose_at_open;
		fake_unlock();
	}
	for (int k = 0; k < 2; k++)
		assert_int_equal(soda_sync_range(r[k], r[k]->first, r[k]->chunks, &why),
				 -ETIMEDOUT);
	fake_net_mend();
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	for (int k = 0; k < 2; k++) {
		assert_int_equal(soda_sync_range(r[k], r[k]->first, r[k]->chunks, &why), 0);
		assert_int_equal(fake_server_word(r[k]->id, 65536), 11);
	}
	host_stop();
}

/* The new server does not understand one OPEN: asking again and again would not help. */
static void open_not_understood(void **state)
{
	struct soda_region *r[2];
	uint64_t v;

	host_start(&plain);
	for (int k = 0; k < 2; k++) {
		r[k] = host_alloc(4 << 16);
		host_store(r[k], 1, 0, 11);
		host_store(r[k], 2, 0, 12);
		assert_int_equal(host_cold(r[k], 1, 1), 0);
	}
	fake_lock();
	fake_net.refuse_open = -EPROTO;
	fake_unlock();
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_true(r[0]->lost);
	assert_int_equal(fake_load(host_at(r[0], 1, 0), &v), -EIO);
	assert_int_equal(host_load(r[0], 2, 0), 12); /* is here */
	assert_false(r[1]->lost);
	assert_int_equal(host_sync(r[1]), 0);
	assert_int_equal(fake_server_word(r[1]->id, 2 << 16), 12);
	host_stop();
}

/*
 * The new server has no room for an object, and has some later: what is dirty of it comes to the
 * server then, and until then soda_sync says why it does not.
 */
static void refused_and_taken(void **state)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	uint64_t v, end;

	host_start(&plain);
	r = host_alloc(4 << 16);
	for (uint32_t i = 0; i < 3; i++)
		host_store(r, i, 0, i + 10);
	assert_int_equal(host_cold(r, 0, 1), 0);
	fake_lock();
	fake_net.refuse_open = -ENOSPC;
	fake_unlock();
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	host_store(r, 3, 0, 13);
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), -ENOSPC);
	assert_non_null(strstr(why.text, "does not take it"));
	for (end = soda_now_ns() + 30000000000u; r->refused; usleep(1000))
		assert_true(soda_now_ns() < end);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), -EIO); /* chunk 0 */
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), 0);
	assert_int_equal(fake_load(host_at(r, 0, 0), &v), -EIO);
	assert_int_equal(host_cold(r, 1, 3), 0);
	for (uint32_t i = 1; i < 4; i++) {
		assert_int_equal(fake_server_word(r->id, i * 65536), i + 10);
		assert_int_equal(host_load(r, i, 0), i + 10);
	}
	host_check(r);
	host_stop();
}

/*
 * A thread has a chunk in its hands for longer than the recovery waits for it: what is resident of
 * the object stays good, that chunk too, and what is written back to the new server can be had.
 */
static void in_use_during_recovery(void **state)
{
	const struct host_options o = { .buffer_chunks = 24, .fault_timeout_ms = 1000 };
	struct soda_chunk *c;
	struct soda_region *r;
	struct soda_why why = { "" };
	uint64_t end, v;
	uint32_t w;

	host_start(&o);
	r = host_alloc(4 << 16);
	for (uint32_t i = 0; i < 4; i++)
		host_store(r, i, 0, i + 10);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(host_cold(r, 3, 1), 0);
	host_store(r, 1, 1, 111);
	c = &soda_agent.table[r->first + 1];
	w = soda_chunk_load(c);
	assert_true(soda_chunk_begin(c, &w, SODA_CHUNK_BUSY));
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_true(r->lost);
	assert_int_equal(fake_load(host_at(r, 3, 0), &v), -EIO); /* not the new server's zeros */
	soda_chunk_settle(c, SODA_CHUNK_DIRTY, soda_chunk_dirty(w), 0, 0);
	for (end = soda_now_ns() + 30000000000u; r->lost; usleep(1000))
		assert_true(soda_now_ns() < end);
	/* chunk 3 */
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), -EIO);
	assert_int_equal(soda_sync_range(r, r->first, r->chunks, &why), 0);
	assert_int_equal(host_cold(r, 0, 3), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(host_load(r, i, 0), i + 10);
	assert_int_equal(host_load(r, 1, 1), 111);
	assert_int_equal(fake_load(host_at(r, 3, 0), &v), -EIO);
	host_stop();
}

/* A server that does not close a region has said so to nobody. */
static void close_refused(void **state)
{
	struct soda_region *r;

	host_start(&plain);
	r = host_alloc(4 << 16);
	host_store(r, 1, 0, 11);
	fake_net.refuse_close = -ENOSPC;
	host_free(r);
	assert_int_equal(host_errors(), 1);
	assert_non_null(strstr(host_last_error(), "keeps it until the program ends"));
	assert_non_null(strstr(host_last_error(), soda_strerror(-ENOSPC)));
	fake_net.refuse_close = 0;
	host_stop();
}

/* One that has no such region keeps nothing: it has closed it, and the answer was lost. */
static void closed_already(void **state)
{
	host_start(&plain);
	fake_net.refuse_close = -EINVAL;
	host_free(host_alloc(4 << 16));
	assert_int_equal(host_errors(), 0);
	fake_net.refuse_close = 0;
	host_stop();
}

static bool server_has(uint16_t id)
{
	bool has;

	fake_lock();
	has = fake_server_has(id);
	fake_unlock();
	return has;
}

/* An object is freed while there is no way to the server: it hears of that later. */
static void freed_while_away(void **state)
{
	struct soda_region *r;
	uint16_t id;
	uint64_t end;

	host_start(&plain);
	r = host_alloc(4 << 16);
	id = r->id;
	host_store(r, 1, 0, 11);
	let_go();
	fake_net_break(-ECONNREFUSED);
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	host_free(r);
	assert_true(server_has(id));
	fake_net_mend();
	for (end = soda_now_ns() + 30000000000u; server_has(id); usleep(1000))
		assert_true(soda_now_ns() < end);
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

/*
 * The agent has frozen a range, and nobody heard of it; asked again it refuses, or cannot be
 * reached any more.  The program is told that nothing is frozen, and so is the agent.
 */
static void answer_of_freezing_lost(void **state)
{
	struct soda_why why = { "" };
	struct soda_region *r;

	for (int round = 0; round < 2; round++) {
		host_start(round ? &impatient : &plain);
		r = host_alloc(4 << 16);
		host_store(r, 1, 0, 11);
		fake_lock();
		fake_net.agent = true;
		fake_net.lose_answers_of_advice = 1;
		fake_net.refuse_advice = 1;
		fake_net.refuse_connect = round ? -ECONNREFUSED : 0;
		fake_unlock();
		assert_int_equal(soda_freeze_advise(r, r->first, r->first + r->chunks - 1,
						    SODA_STATIC_CACHE, &why),
				 round ? -ETIMEDOUT : -ENOSPC);
		fake_net_mend();
		assert_int_equal(soda_server_wait(&soda_agent.links[0].server,
						  soda_now_ns() + 60000000000u, NULL),
				 0);
		host_store(r, 1, 0, 12);
		assert_int_equal(host_sync(r), 0);
		assert_int_equal(fake_server_word(r->id, 1 << 16), 12);
		host_check(r);
		host_stop();
	}
}

/*
 * The server starts anew when the agent has frozen a range, before the thread that has asked for
 * that hears of it.  The steps of that thread, of the keeper, and of the test between them.
 */
static struct {
	sem_t answered, restarted;
	_Atomic bool connected, go;
} anew;

static void has_answered(void)
{
	fake_net.on_advice = NULL; /* once */
	sem_post(&anew.answered);
	sem_wait(&anew.restarted);
}

static void has_connected(void)
{
	fake_net.on_connect = NULL;
	atomic_store(&anew.connected, true);
	while (!atomic_load(&anew.go))
		;
}

static void *freezes(void *arg)
{
	struct soda_region *r = arg;
	struct soda_why why = { "" };

	assert_int_equal(
		soda_freeze_advise(r, r->first, r->first + r->chunks - 1, SODA_STATIC_CACHE, &why),
		0);
	let_go();
	return NULL;
}

/*
 * The keeper decides what becomes of the object's chunks, and then the thread goes on, which waits
 * for the lock of objects.  Mostly: the thread may be first, then nothing is tested.
 */
static void restart_behind_an_answer(struct soda_region *r)
{
	pthread_t thread;

	anew.connected = anew.go = false;
	sem_init(&anew.answered, 0, 0);
	sem_init(&anew.restarted, 0, 0);
	fake_net.on_advice = has_answered;
	pthread_create(&thread, NULL, freezes, r);
	sem_wait(&anew.answered);
	soda_regions_lock();
	fake_net.on_connect = has_connected;
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	sem_post(&anew.restarted);
	while (!atomic_load(&anew.connected))
		usleep(50);
	atomic_store(&anew.go, true);
	soda_regions_unlock();
	pthread_join(thread, NULL);
}

static void restarts_behind_an_answer(void **state)
{
	struct soda_region *r;

	for (int round = 0; round < 8; round++) {
		host_start(&plain);
		fake_net.agent = true;
		r = host_alloc(4 << 16);
		host_store(r, 1, 0, 11);
		let_go();
		restart_behind_an_answer(r);
		assert_int_equal(fake_net.frozen, r->id);
		assert_int_equal(host_sync(r), 0);
		assert_int_equal(fake_server_word(r->id, 1 << 16), 11);
		host_check(r);
		host_stop();
	}
}

/*
 * A store is done, and then its chunk's range is frozen; only then the thread that serves it comes
 * to call the chunk dirty.  The server has that store, and the agent would refuse it for good.
 */
static void served_after_freezing(void **state)
{
	struct soda_why why = { "" };
	struct soda_region *r;
	struct soda_fault f;
	uint32_t last;

	host_start(&plain);
	fake_net.agent = true;
	r = host_alloc(4 << 16);
	last = r->first + r->chunks - 1;
	host_store(r, 1, 0, 11);
	assert_true(soda_fault_describe(&f, host_at(r, 1, 0), true));
	assert_int_equal(soda_freeze_advise(r, r->first, last, SODA_STATIC_CACHE, &why), 0);
	assert_int_equal(soda_fault_serve(soda_thread_self(), &f), 0);
	assert_int_equal(host_state(r, 1), SODA_CHUNK_DIRTY);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(host_state(r, 1), SODA_CHUNK_CLEAN);
	assert_int_equal(soda_freeze_advise(r, r->first, last, SODA_NO_CACHE, &why), 0);
	host_store(r, 1, 1, 12);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(fake_server_word(r->id, 1 << 16), 11);
	assert_int_equal(fake_server_word(r->id, (1 << 16) + 4096), 12);
	host_check(r);
	host_stop();
}

/* A new connection fails before all of them are made: that is not forgotten. */
static _Atomic uint32_t reports;

static void report_once(void)
{
	if (atomic_fetch_add(&reports, 1) == 1)
		soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
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
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(atomic_load(&reports), 2 * connects); /* made twice */
	host_stop();
}

/* A call that is not answered in time costs itself, and not every later one. */
static void call_not_answered(void **state)
{
	const struct host_options o = { .fault_timeout_ms = 100 };
	struct soda_why why = { "" };
	struct soda_region *r;
	uint32_t connects;

	host_start(&o);
	connects = fake_net.connects; /* of one whole set */
	r = host_alloc(4 << 16);
	host_store(r, 1, 0, 11);
	fake_net.silent_calls = 1;
	assert_int_equal(soda_calls_sync_region(r, &why), -ETIMEDOUT);
	assert_non_null(strstr(why.text, "SODA_FAULT_TIMEOUT"));
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(soda_calls_sync_region(r, &why), 0);
	assert_int_equal(fake_net.connects, 2 * connects);
	host_free(host_alloc(4 << 16));
	assert_int_equal(host_load(r, 1, 0), 11);
	host_check(r);
	host_stop();
}

/* The process stood still meanwhile, as in a container that is paused: that does not count. */
static void call_of_stopped_process(void **state)
{
	/* it has that time again, for the reconnection: not too little for a busy machine */
	const struct host_options o = { .fault_timeout_ms = 2000 };
	struct soda_why why = { "" };
	struct soda_region *r;

	host_start(&o);
	r = host_alloc(4 << 16);
	fake_net.silent_more_us = 700000;
	fake_net.silent_calls = 1;
	assert_int_equal(soda_calls_sync_region(r, &why), 0);
	host_check(r);
	host_stop();
}

/* The clock of all that is linked here: a jump stands for time in which the process was stopped. */
static _Atomic uint64_t stood_still_ns;

uint64_t __real_soda_now_ns(void);
uint64_t __wrap_soda_now_ns(void);
uint64_t __wrap_soda_now_ns(void)
{
	return __real_soda_now_ns() + atomic_load(&stood_still_ns);
}

static sem_t about_to_wait;

static void *waits(void *arg)
{
	sem_post(&about_to_wait);
	*(int *)arg =
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL);
	return NULL;
}

/* Who waits for the server has their time also when the process stood still meanwhile. */
static void wait_of_stopped_process(void **state)
{
	pthread_t thread;
	int ret = 1;

	host_start(&plain);
	fake_net_break(-ECONNREFUSED);
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	sem_init(&about_to_wait, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, waits, &ret), 0);
	sem_wait(&about_to_wait);
	usleep(100000);
	atomic_fetch_add(&stood_still_ns, 120000000000u);
	usleep(2500000); /* it looks at the clock every two seconds */
	fake_net_mend();
	pthread_join(thread, NULL);
	assert_int_equal(ret, 0);
	host_stop();
}

/* A call's connection fails, and the keeper, which is told by another one, waits for the lock. */
static void fail_under_call(void)
{
	if (!atomic_exchange(&reports, 1)) {
		fake_net_break(0);
		soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
		usleep(20000);
	}
}

/* On one processor, where whom the caller wakes runs first. */
static void let_others_first(bool do_it)
{
	static cpu_set_t all;
	struct sched_param none = { 0 };
	cpu_set_t one;

	if (do_it)
		assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), do_it ? &one : &all);
	sched_setscheduler(0, do_it ? SCHED_IDLE : SCHED_OTHER, &none);
}

/* What a call reports is of the connection that it had, and not of the next one. */
static void late_report(void **state)
{
	struct soda_why why = { "" };
	struct soda_region *r;

	for (int round = 0; round < 5; round++) {
		uint32_t before, after;

		host_start(&plain);
		before = fake_net.connects; /* of one whole set */
		r = host_alloc(4 << 16);
		atomic_store(&reports, 0);
		fake_lock();
		fake_net.on_call = fail_under_call;
		fake_unlock();
		let_others_first(true);
		assert_int_equal(soda_calls_sync_region(r, &why), 0);
		let_others_first(false);
		assert_int_equal(soda_server_wait(&soda_agent.links[0].server,
						  soda_now_ns() + 60000000000u, NULL),
				 0);
		after = fake_net.connects;
		host_check(r);
		host_stop();
		assert_int_equal(after, 2 * before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_in_flight),
		cmocka_unit_test(sync_across_a_loss),
		cmocka_unit_test(server_starts_anew),
		cmocka_unit_test(known_as_another),
		cmocka_unit_test(lost_in_recovery),
		cmocka_unit_test(answer_of_open_lost),
		cmocka_unit_test(answer_of_freezing_lost),
		cmocka_unit_test(served_after_freezing),
		cmocka_unit_test(restarts_behind_an_answer),
		cmocka_unit_test(sync_amid_recovery),
		cmocka_unit_test(close_refused),
		cmocka_unit_test(closed_already),
		cmocka_unit_test(freed_while_away),
		cmocka_unit_test(wait_of_stopped_process),
		cmocka_unit_test(in_use_during_recovery),
		cmocka_unit_test(open_not_understood),
		cmocka_unit_test(refused_and_taken),
		cmocka_unit_test(lost_while_reconnecting),
		cmocka_unit_test(call_not_answered),
		cmocka_unit_test(call_of_stopped_process),
		cmocka_unit_test(late_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
