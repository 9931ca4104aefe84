/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs: a key that is not the client's own, or not any more, gets an error and neither
 * reads nor writes a byte.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"
#include "soda.h"

static const struct variant variant = { "keys", VERBS, "", SODA_ENGINE_AUTO, false, false };

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

#define KEYS(f)                                                                                    \
	{                                                                                          \
#f, f, env_setup, env_teardown, (void *)(uintptr_t)&variant                        \
	}

int run_keys_on_verbs(void)
{
	const struct CMUnitTest tests[] = {
		KEYS(test_guessed), KEYS(test_stale),	  KEYS(test_renewed),
		KEYS(test_others),  KEYS(test_read_only),
	};

	return env_has_verbs() ? cmocka_run_group_tests_name("keys", tests, NULL, NULL) : 0;
}
