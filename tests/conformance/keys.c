/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs: a key that is not the client's own, or not any more, gets an error and neither
 * reads nor writes a byte.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "soda.h"

static const struct variant variant = { "keys", VERBS, "", SODA_ENGINE_AUTO, false, false };
static const struct variant two_sided = { "keys, two-sided", VERBS, "",
					  SODA_ENGINE_AUTO,  false, true };

enum { UNIT = 4096, MARK = 0x5e };

/* Use the memory with this key on a connection of its own: refused, and nothing happens. */
static void assert_no_use(struct env *e, const struct soda_mr *mr, bool write)
{
	static uint8_t buf[UNIT], untouched[UNIT];
	struct soda_conn *data = env_connect(e, "", SODA_CONN_DATA, 4, NULL);
	struct soda_done done;
	int ret;

	memset(buf, MARK, sizeof(buf));
	memset(untouched, MARK, sizeof(untouched));
	assert_int_equal(soda_conn_reach_keyed(data, TIMEOUT_MS, &e->why), 0);
	if (write)
		assert_int_equal(soda_conn_post_write(data, mr, UNIT, UNIT, buf, 1), 0);
	else
		assert_int_equal(soda_conn_post_read(data, mr, UNIT, UNIT, buf, 1), 0);
	ret = soda_conn_flush(data, false);
	if (ret == 0)
		ret = soda_conn_poll(data, &done, 1, (int64_t)TIMEOUT_MS * MS, 0);
	assert_true(ret < 0);
	assert_true(soda_conn_poll(data, &done, 1, 0, 0) < 0);
	assert_memory_equal(buf, untouched, sizeof(buf));
	soda_conn_close(data);
}

static void assert_intact(struct env *e, uint16_t id)
{
	assert_int_equal(wrong_bytes(fake_find(&e->fake, id)->memory, id, 0, 4 * UNIT), 0);
}

static void test_guessed(void **state)
{
	struct env *e = *state;
	struct soda_mr guess;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < 6; i++) {
		guess = l.mr;
		guess.rkey += i < 3 ? i + 1 : 0x100u * (i - 2);
		assert_no_use(e, &guess, i % 2);
	}
	assert_intact(e, 7);
	link_close(&l);
}

/* The key of a region that is closed. */
static void test_stale(void **state)
{
	struct iovec id = { (uint8_t[]){ 8, 0 }, 2 };
	struct env *e = *state;
	struct soda_mr mr;
	struct link l;

	link_open(e, &l, "", 0, 8);
	region_open(e, l.control, 8, 0, &mr);
	assert_int_equal(soda_conn_call(l.control, SODA_MSG_CLOSE, &id, 1, NULL, 0, NULL,
					TIMEOUT_MS, &e->why),
			 0);
	assert_no_use(e, &mr, false);
	assert_no_use(e, &mr, true);
	link_close(&l);
}

/* A key that ended with its control connection, and the one that takes its place. */
static void test_renewed(void **state)
{
	static uint8_t buf[UNIT];
	struct env *e = *state;
	struct soda_mr old;
	struct link l;

	link_open(e, &l, "", 0, 8);
	old = l.mr;
	soda_conn_close(l.control);
	await_count(e, &e->fake.gone, 1);
	assert_no_use(e, &old, false);
	l.control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	assert_int_equal(soda_conn_renew_region(l.control, &l.mr, TIMEOUT_MS, &e->why), 0);
	assert_no_use(e, &old, true);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, UNIT, UNIT, buf, 1), 0);
	finish(l.data, 1, 0);
	assert_int_equal(wrong_bytes(buf, 7, UNIT, UNIT), 0);
	assert_intact(e, 7);
	old.region_id = 1234;
	assert_int_equal(soda_conn_renew_region(l.control, &old, TIMEOUT_MS, &e->why), -EINVAL);
	link_close(&l);
}

/* A valid key of somebody else's: another client is another protection domain. */
static void test_others(void **state)
{
	struct env *e = *state;
	struct link l;

	link_open(e, &l, "", 0, 8);
	e->fake.client_id = 10;
	assert_no_use(e, &l.mr, false);
	assert_no_use(e, &l.mr, true);
	e->fake.client_id = 9;
	assert_intact(e, 7);
	assert_works(&l);
	link_close(&l);
}

/* A READ_ONLY region's key does not write, whatever the client believes. */
static void test_read_only(void **state)
{
	struct env *e = *state;
	struct link l;

	link_open(e, &l, "", SODA_READ_ONLY, 8);
	l.mr.writable = true;
	assert_no_use(e, &l.mr, true);
	assert_intact(e, 7);
	link_close(&l);
}

/* Keys to parts of a region, those of an agent's static cache. */

enum { PART = 8 * UNIT };

/* Pages 1 .. 8 of region 7, as the fake gives them. */
static void advise(struct env *e, struct link *l)
{
	struct soda_wire_advise a = { 7, SODA_STATIC_CACHE, 2 * UNIT, PART - UNIT };

	assert_int_equal(soda_conn_advise(l->control, &a, &l->mr.statics, TIMEOUT_MS, &e->why), 0);
	assert_non_null(soda_mr_keyed(&l->mr, UNIT, PART));
	assert_null(soda_mr_keyed(&l->mr, UNIT, PART + UNIT));
	assert_null(soda_mr_keyed(&l->mr, 0, 2 * UNIT));
}

static void assert_read(struct link *l, uint64_t offset)
{
	static uint8_t buf[UNIT];

	memset(buf, MARK, sizeof(buf));
	assert_int_equal(soda_conn_post_read(l->data, &l->mr, offset, UNIT, buf, 1), 0);
	finish(l->data, 1, 0);
	assert_int_equal(wrong_bytes(buf, 7, offset, UNIT), 0);
}

/* A part is read without a request, between requests for what is not in it. */
static void test_part(void **state)
{
	enum { N = 48 };
	struct env *e = *state;
	uint8_t *buf = calloc(N, UNIT);
	unsigned before, asked = 0;
	struct link l;

	link_open(e, &l, "", 0, N);
	advise(e, &l);
	before = fake_count(&e->fake, &e->fake.requests);
	assert_read(&l, 2 * UNIT);
	assert_int_equal(fake_count(&e->fake, &e->fake.requests), before + 1);
	assert_int_equal(soda_conn_reach_keyed(l.data, TIMEOUT_MS, &e->why), 0);
	assert_int_equal(soda_conn_reach_keyed(l.data, TIMEOUT_MS, &e->why), 0);
	for (unsigned i = 1; i <= PART / UNIT; i++)
		assert_read(&l, (uint64_t)i * UNIT);
	assert_int_equal(fake_count(&e->fake, &e->fake.requests), before + 1);
	for (unsigned i = 0; i < N; i++) {
		uint64_t page = i % 7 * 2; /* 0 .. 12, and 9 begins what is outside */

		asked += page == 0 || page > PART / UNIT;
		assert_int_equal(soda_conn_post_read(l.data, &l.mr, page * UNIT, UNIT,
						     buf + (size_t)i * UNIT, i),
				 0);
	}
	finish(l.data, N, 0);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(wrong_bytes(buf + (size_t)i * UNIT, 7, i % 7 * 2 * UNIT, UNIT), 0);
	assert_int_equal(fake_count(&e->fake, &e->fake.requests), before + 1 + asked);
	assert_works(&l);
	free(buf);
	link_close(&l);
}

/* The key of a part that is not in the cache any more. */
static void test_part_stale(void **state)
{
	struct soda_wire_advise off = { 7, SODA_NO_CACHE, 0, 2 * PART };
	struct soda_static_map *map = NULL;
	struct env *e = *state;
	struct link l;

	link_open(e, &l, "", 0, 8);
	advise(e, &l);
	assert_int_equal(soda_conn_reach_keyed(l.data, TIMEOUT_MS, &e->why), 0);
	assert_read(&l, UNIT);
	/* twice the same part is one key */
	off.advice = SODA_STATIC_CACHE;
	off.offset = 2 * UNIT;
	off.bytes = PART - UNIT;
	assert_int_equal(soda_conn_advise(l.control, &off, &map, TIMEOUT_MS, &e->why), 0);
	assert_int_equal(map->rkey, l.mr.statics->rkey);
	soda_conn_unmap_static(map);
	assert_read(&l, UNIT);
	/* what lies in more than was advised ends, and nothing else */
	off = (struct soda_wire_advise){ 7, SODA_NO_CACHE, 2 * UNIT, PART };
	assert_int_equal(soda_conn_advise(l.control, &off, &map, TIMEOUT_MS, &e->why), 0);
	assert_read(&l, UNIT);
	off = (struct soda_wire_advise){ 7, SODA_NO_CACHE, 0, 2 * PART };
	assert_int_equal(soda_conn_advise(l.control, &off, &map, TIMEOUT_MS, &e->why), 0);
	assert_no_use(e, &l.mr, false);
	soda_mr_drop_keyed(&l.mr);
	assert_null(l.mr.statics);
	assert_works(&l);
	link_close(&l);
}

/* With its region, and with the control connection. */
static void test_part_ends(void **state)
{
	struct iovec id = { (uint8_t[]){ 7, 0 }, 2 };
	struct env *e = *state;
	struct link l;

	link_open(e, &l, "", 0, 8);
	advise(e, &l);
	soda_conn_close(l.control);
	await_count(e, &e->fake.gone, 1);
	assert_no_use(e, &l.mr, false);
	l.control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	assert_int_equal(soda_conn_renew_region(l.control, &l.mr, TIMEOUT_MS, &e->why), 0);
	assert_null(l.mr.statics);
	advise(e, &l);
	assert_int_equal(soda_conn_call(l.control, SODA_MSG_CLOSE, &id, 1, NULL, 0, NULL,
					TIMEOUT_MS, &e->why),
			 0);
	assert_no_use(e, &l.mr, false);
	link_close(&l);
}

/* A guessed key, and another client's. */
static void test_part_others(void **state)
{
	struct soda_static_map guess;
	struct soda_mr mr;
	struct env *e = *state;
	struct link l;

	link_open(e, &l, "", 0, 8);
	advise(e, &l);
	for (unsigned i = 1; i <= 3; i++) {
		guess = *l.mr.statics;
		guess.rkey += i == 3 ? 0x100 : i;
		mr = l.mr;
		mr.statics = &guess;
		assert_no_use(e, &mr, false);
	}
	e->fake.client_id = 10;
	assert_no_use(e, &l.mr, false);
	e->fake.client_id = 9;
	assert_int_equal(soda_conn_reach_keyed(l.data, TIMEOUT_MS, &e->why), 0);
	assert_read(&l, UNIT);
	assert_works(&l);
	link_close(&l);
}

#define KEYS(f)                                                                                    \
	{                                                                                          \
#f, f, env_setup, env_teardown, (void *)(uintptr_t)&variant                        \
	}
#define PARTS(f)                                                                                   \
	{                                                                                          \
#f, f, env_setup, env_teardown, (void *)(uintptr_t)&two_sided                      \
	}

int run_keys_on_verbs(void)
{
	const struct CMUnitTest tests[] = {
		KEYS(test_guessed),	KEYS(test_stale),      KEYS(test_renewed),
		KEYS(test_others),	KEYS(test_read_only),  PARTS(test_part),
		PARTS(test_part_stale), PARTS(test_part_ends), PARTS(test_part_others),
	};

	return env_has_verbs() ? cmocka_run_group_tests_name("keys", tests, NULL, NULL) : 0;
}
