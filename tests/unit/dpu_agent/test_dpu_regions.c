/* SPDX-License-Identifier: BSD-3-Clause */
/* The DPU agent's regions while one closes under requests of another thread. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/fakes/fake_metrics.h"
#include "unit/fakes/fake_upstream.h"

enum { REGION = 7, PAGES = 1024 };

static struct soda_session *session_of(const struct program *p)
{
	struct soda_session *s;

	pthread_mutex_lock(&fake_dpu.sessions.lock);
	for (s = fake_dpu.sessions.list; s && s->id != p->id; s = s->next)
		;
	pthread_mutex_unlock(&fake_dpu.sessions.lock);
	assert_non_null(s);
	return s;
}

static struct soda_paging_region *region_of(const struct program *p)
{
	struct soda_session *s = session_of(p);
	struct soda_paging_region *r;

	pthread_mutex_lock(&s->lock);
	r = soda_pager(s)->regions[REGION];
	pthread_mutex_unlock(&s->lock);
	return r;
}

static void *close_it(void *arg)
{
	assert_int_equal(program_close(arg, REGION), 0);
	return NULL;
}

/*
 * A region is closed while a READ of it is under way, which may be about to look into the cache.
 * What it would look for there must not have become another client's meanwhile.
 */
static void owner_stays_while_held(void **state)
{
	struct program first = { 0 }, second = { 0 };
	struct soda_paging_region *closing;
	struct fake_rq *read;
	pthread_t thread;
	uint32_t owner;

	fake_options_reset();
	fake_options.dynamic = true;
	fake_options.policy = (char *)(uintptr_t) "random";
	fake_options.cache_bytes = 4 << 20;
	fake_options.entry_bytes = 1 << 20;
	fake_up();
	assert_int_equal(program_hello(&first), 0);
	assert_int_equal(program_open(&first, REGION, PAGES, 0), 0);
	closing = region_of(&first);
	assert_true(closing->cache.open);
	owner = closing->cache.owner;
	FAKE_SET(hold_reads, true);
	read = program_post_read(&first, REGION, 3);
	assert_int_equal(pthread_create(&thread, NULL, close_it, &first), 0);
	AWAIT(!region_of(&first) && !closing->cache.open); /* it waits for the READ */
	fake_pause();
	assert_int_equal(program_hello(&second), 0);
	assert_int_equal(program_open(&second, REGION, PAGES, 0), 0);
	assert_true(region_of(&second)->cache.open);
	assert_int_not_equal(region_of(&second)->cache.owner, owner);
	FAKE_SET(hold_reads, false);
	program_await(read);
	pthread_join(thread, NULL);
	/* then it is free */
	assert_int_equal(program_open(&first, REGION, PAGES, 0), 0);
	assert_int_equal(region_of(&first)->cache.owner, owner);
	program_vanish(&first);
	program_vanish(&second);
	assert_int_equal(fake_down(), 0);
}

static void look(void)
{
	assert_int_equal(pthread_mutex_trylock(&fake_dpu.sessions.lock), 0);
	for (struct soda_session *s = fake_dpu.sessions.list; s; s = s->next) {
		assert_int_equal(pthread_mutex_trylock(&s->lock), 0);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&fake_dpu.sessions.lock);
}

/* Whoever asks for statistics keeps no client waiting while they are written down. */
static void statistics_hold_no_lock(void **state)
{
	struct program programs[3] = { { 0 } };

	fake_options_reset();
	fake_up();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(program_hello(&programs[i]), 0);
		assert_int_equal(program_open(&programs[i], REGION, PAGES, 0), 0);
	}
	assert_true(fake_metrics_walk(soda_dpu_walk, &fake_dpu, look) > 3 * 8);
	for (int i = 0; i < 3; i++)
		program_vanish(&programs[i]);
	assert_int_equal(fake_down(), 0);
}

/* Who has said that they are about to go, and do not, are waited for once and not for ever. */
static void who_stays_is_not_awaited(void **state)
{
	struct program stays = { 0 }, opens = { 0 };
	const uint8_t later = SODA_WIRE_BYE_LATER;
	struct soda_session *s;
	uint64_t ended;

	fake_options_reset();
	fake_up();
	assert_int_equal(program_hello(&stays), 0);
	assert_int_equal(program_hello(&opens), 0);
	s = session_of(&opens);
	ended = soda_sessions_ended(&fake_dpu.sessions);
	assert_int_equal(program_call(&stays, SODA_MSG_BYE, &later, 1), 0);
	alarm(60);
	for (int i = 0; i < 100; i++) /* two seconds each, they would be */
		assert_false(soda_sessions_await_leaving(s, ended));
	program_vanish(&stays);
	for (int i = 0; i < 100 && !soda_sessions_await_leaving(s, ended); i++)
		fake_pause();
	assert_true(soda_sessions_await_leaving(s, ended));
	alarm(0);
	program_vanish(&opens);
	assert_int_equal(fake_down(), 0);
}

static int publish(struct program *p, const char *name, size_t bytes)
{
	uint8_t body[2 + 300] = { REGION };

	memcpy(body + 2, name, bytes);
	return program_call(p, SODA_MSG_PUBLISH, body, 2 + bytes);
}

static void *publish_it(void *arg)
{
	assert_int_equal(publish(arg, "index", 5), 0);
	return NULL;
}

/* WRITEs that the agent has acknowledged are on the server before the object has its name. */
static void writes_come_before_publish(void **state)
{
	struct program p = { 0 };
	pthread_t thread;

	fake_options_reset();
	fake_up();
	assert_int_equal(program_hello(&p), 0);
	assert_int_equal(program_open(&p, REGION, PAGES, 0), 0);
	FAKE_SET(hold_writes, true);
	for (uint64_t page = 0; page < 5; page++)
		program_write(&p, REGION, page, 70 + page);
	assert_int_equal(pthread_create(&thread, NULL, publish_it, &p), 0);
	fake_pause();
	assert_int_equal(fake_get(&fake_upstream.published), 0);
	FAKE_SET(hold_writes, false);
	pthread_join(thread, NULL);
	assert_int_equal(fake_get(&fake_upstream.published), 1);
	assert_int_equal(fake_get(&fake_upstream.written_at_publish),
			 fake_get(&fake_upstream.writes));
	assert_int_equal(program_read(&p, REGION, 3), 73);
	program_vanish(&p);
	assert_int_equal(fake_down(), 0);
}

static void publish_refused(void **state)
{
	struct program p = { 0 };
	char name[300] = "n";

	fake_options_reset();
	fake_up();
	assert_int_equal(program_hello(&p), 0);
	assert_int_equal(publish(&p, "index", 5), -EINVAL); /* there is no such region */
	assert_int_equal(program_open(&p, REGION, PAGES, 0), 0);
	assert_int_equal(publish(&p, name, sizeof(name)), -EPROTO);
	assert_int_equal(program_call(&p, SODA_MSG_PUBLISH, "r", 1), -EPROTO);
	FAKE_SET(refuse_publish, -EEXIST);
	assert_int_equal(publish(&p, "index", 5), -EEXIST);
	FAKE_SET(refuse_publish, 0);
	assert_int_equal(publish(&p, "index", 5), 0);
	program_vanish(&p);
	assert_int_equal(fake_down(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(owner_stays_while_held),
		cmocka_unit_test(statistics_hold_no_lock),
		cmocka_unit_test(who_stays_is_not_awaited),
		cmocka_unit_test(writes_come_before_publish),
		cmocka_unit_test(publish_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
