/* SPDX-License-Identifier: BSD-3-Clause */
/* The fault decorator does what its rules say, over a stream and over shared memory. */
#include "conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct variant variants[] = {
	{ "faults over tcp", "tcp://127.0.0.1:0", "fault+", SODA_ENGINE_AUTO, false, false },
	{ "faults over shm", "shm://@soda-conformance-faults-%d", "fault+", SODA_ENGINE_AUTO, true,
	  false },
	{ "faults over tcp, two-sided", "tcp://127.0.0.1:0", "fault+", SODA_ENGINE_AUTO, false,
	  true },
	{ "faults over shm, two-sided", "shm://@soda-conformance-faults-%d", "fault+",
	  SODA_ENGINE_AUTO, false, true },
};

static const struct variant verbs_variant = { "faults over verbs", VERBS, "fault+",
					      SODA_ENGINE_AUTO,	   false, false };

static uint8_t buf[16][4096];

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void post(struct link *l, uint64_t i, bool write)
{
	if (write)
		assert_int_equal(soda_conn_post_write(l->data, &l->mr, i * 4096, 4096, buf[i], i),
				 0);
	else
		assert_int_equal(soda_conn_post_read(l->data, &l->mr, i * 4096, 4096, buf[i], i),
				 0);
}

/* So that the next link can open it. */
static void close_region(struct link *l)
{
	struct iovec id = { (uint8_t[]){ 7, 0 }, 2 };

	assert_int_equal(
		soda_conn_call(l->control, SODA_MSG_CLOSE, &id, 1, NULL, 0, NULL, -1, NULL), 0);
}

static int poll_all(struct link *l, struct soda_done *done, int n, int64_t timeout_ms)
{
	int got = 0;

	while (got < n) {
		int ret = soda_conn_poll(l->data, done + got, n - got, timeout_ms * MS, 0);

		if (ret <= 0)
			return got ? got : ret;
		got += ret;
	}
	return got;
}

static void test_fail(void **state)
{
	struct env *e = *state;
	struct soda_done done[6];
	struct link l;

	link_open(e, &l, "?do=fail&on=read&after=1&count=2&status=4", 0, 8);
	memset(buf, 0, sizeof(buf));
	for (uint64_t i = 0; i < 6; i++)
		post(&l, i, i == 2);
	assert_int_equal(soda_conn_flush(l.data, false), 0);
	assert_int_equal(poll_all(&l, done, 6, TIMEOUT_MS), 6);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(done[i].cookie, i);
		assert_int_equal(done[i].status, i == 1 || i == 3 ? -EACCES : 0);
	}
	assert_int_equal(buf[1][1], 0); /* nothing came */
	assert_int_equal(wrong_bytes(buf[5], 7, 5 * 4096, 4096), 0);
	link_close(&l);
}

static void test_delay(void **state)
{
	struct env *e = *state;
	int64_t start = now_ns(), ms = 80 * fake_patience();
	struct soda_done done[3];
	struct link l;
	char query[64];
	int n;

	snprintf(query, sizeof(query), "?do=delay&ms=%d&after=1&count=1", (int)ms);
	link_open(e, &l, query, 0, 8);
	for (uint64_t i = 0; i < 3; i++)
		post(&l, i, false);
	assert_int_equal(soda_conn_flush(l.data, false), 0);
	assert_int_equal(poll_all(&l, done, 1, TIMEOUT_MS), 1);
	n = poll_all(&l, done + 1, 2, ms / 4);
	if (now_ns() - start < ms * MS)
		assert_int_equal(n, 0);
	assert_int_equal(n + poll_all(&l, done + 1 + n, 2 - n, TIMEOUT_MS), 2);
	assert_true(now_ns() - start >= ms * MS);
	assert_int_equal(done[1].cookie, 1);
	assert_int_equal(done[2].cookie, 2);
	link_close(&l);
}

/* Who sleeps at the descriptor is woken when a refusal is there, or a late answer is due. */
static void test_descriptor(void **state)
{
	static const char *const queries[] = { "?do=delay&ms=20&after=1&rate=40",
					       "?do=fail&rate=40&do=delay&ms=5&rate=40" };
	struct env *e = *state;
	struct link l;

	if (e->variant->memory) {
		print_message(
			"SKIP: a poll makes the completions here: there is none to tell of\n");
		skip();
	}
	for (unsigned q = 0; q < sizeof(queries) / sizeof(queries[0]); q++) {
		link_open(e, &l, queries[q], 0, 16);
		for (unsigned round = 0; round < 10; round++) {
			struct pollfd p = { .fd = soda_conn_fd(l.data), .events = POLLIN };
			struct soda_done done[12];

			for (uint64_t i = 0; i < 12; i++)
				post(&l, i, false);
			assert_int_equal(soda_conn_flush(l.data, false), 0);
			for (int got = 0, n; got < 12; got += n) {
				assert_int_equal(poll(&p, 1, TIMEOUT_MS), 1);
				n = soda_conn_poll(l.data, done, 16, 0, 0);
				assert_true(n >= 0);
			}
			/* and sleeps on where there is nothing to come */
			assert_int_equal(soda_conn_poll(l.data, done, 16, 0, 0), 0);
			assert_int_equal(poll(&p, 1, 0), 0);
		}
		close_region(&l);
		link_close(&l);
	}
}

static void test_drop(void **state)
{
	struct env *e = *state;
	struct soda_done done[3];
	struct link l;
	int64_t start;

	link_open(e, &l, "?do=drop&on=write&count=1", 0, 8);
	post(&l, 0, false);
	post(&l, 1, true);
	post(&l, 2, false);
	assert_int_equal(soda_conn_flush(l.data, false), 0);
	assert_int_equal(poll_all(&l, done, 1, TIMEOUT_MS), 1);
	assert_int_equal(poll_all(&l, done, 2, 100), 0);
	start = now_ns();
	assert_int_equal(soda_conn_poll(l.data, done, 3, 60ll * MS, 0), 0);
	assert_true(now_ns() - start >= 60ll * MS);
	assert_true(now_ns() - start < 1000ll * MS * fake_patience());
	assert_int_equal(soda_conn_outstanding(l.data), 2);
	link_close(&l);
}

static void *abort_soon(void *arg)
{
	usleep(50000);
	soda_conn_abort(arg);
	return NULL;
}

static void test_abort_wakes(void **state)
{
	struct env *e = *state;
	struct soda_done done;
	pthread_t thread;
	struct link l;

	link_open(e, &l, "?do=drop", 0, 8);
	post(&l, 0, false);
	assert_int_equal(soda_conn_flush(l.data, false), 0);
	assert_int_equal(pthread_create(&thread, NULL, abort_soon, l.data), 0);
	assert_int_equal(soda_conn_poll(l.data, &done, 1, -1, 0), -ECONNABORTED);
	pthread_join(thread, NULL);
	link_close(&l);
}

static void test_cut(void **state)
{
	struct env *e = *state;
	struct soda_done done[8];
	struct link l;
	unsigned seen = 0;

	link_open(e, &l, "?do=cut&after=5", 0, 16);
	for (uint64_t i = 0; i < 3; i++)
		post(&l, i, false);
	assert_int_equal(soda_conn_flush(l.data, false), 0);
	assert_int_equal(poll_all(&l, done, 1, TIMEOUT_MS), 1);
	seen |= 1u << done[0].cookie;
	for (uint64_t i = 3; i < 8; i++)
		post(&l, i, i % 2);
	assert_int_equal(soda_conn_flush(l.data, false), -ECONNRESET);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(soda_conn_poll(l.data, done, 8, 10ll * MS, 0), -ECONNRESET);
		assert_int_equal(soda_conn_flush(l.data, false), -ECONNRESET);
		assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf[0], 0),
				 -ECONNRESET);
	}
	assert_int_equal(seen, 1);
	await_count(e, &e->fake.gone, 1);
	link_close(&l);
}

/* The same seed gives the same faults. */
static void test_rate(void **state)
{
	struct env *e = *state;
	uint64_t pattern[2] = { 0, 0 };
	struct soda_done done;

	for (int round = 0; round < 2; round++) {
		struct link l;

		link_open(e, &l, "?do=fail&rate=30&seed=11", 0, 8);
		for (uint64_t i = 0; i < 64; i++) {
			assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf[0], i), 0);
			assert_int_equal(soda_conn_flush(l.data, false), 0);
			assert_int_equal(poll_all(&l, &done, 1, TIMEOUT_MS), 1);
			pattern[round] |= (uint64_t)(done.status != 0) << i;
		}
		if (round == 0)
			close_region(&l);
		link_close(&l);
	}
	assert_true(pattern[0] == pattern[1]);
	assert_in_range(__builtin_popcountll(pattern[0]), 8, 32);
}

static void test_trigger_files(void **state)
{
	struct env *e = *state;
	char file[64], query[256];
	struct soda_done done;
	struct link l;

	snprintf(file, sizeof(file), "/tmp/soda-conformance-trigger-XXXXXX");
	close(mkstemp(file));
	snprintf(query, sizeof(query), "?do=fail&on=read&while=%s&do=fail&on=write&once=%s", file,
		 file);
	link_open(e, &l, query, 0, 8);
	/* read: fails while it exists; the first write takes it away */
	const bool write[] = { false, true, true, false };
	const int status[] = { -EIO, -EIO, 0, 0 };

	for (unsigned i = 0; i < 4; i++) {
		post(&l, i, write[i]);
		assert_int_equal(soda_conn_flush(l.data, false), 0);
		assert_int_equal(poll_all(&l, &done, 1, TIMEOUT_MS), 1);
		assert_int_equal(done.status, status[i]);
	}
	assert_int_equal(access(file, F_OK), -1);
	link_close(&l);
}

static int ping(struct env *e, struct soda_conn *c, int timeout_ms)
{
	return soda_conn_call(c, SODA_MSG_PING, NULL, 0, NULL, 0, NULL, timeout_ms, &e->why);
}

static void test_calls(void **state)
{
	struct env *e = *state;
	struct soda_conn *c;

	c = env_connect(e, "?do=fail&on=call&status=2&count=1", SODA_CONN_CONTROL, 0, NULL);
	assert_int_equal(ping(e, c, TIMEOUT_MS), -ENOSPC);
	assert_int_equal(ping(e, c, TIMEOUT_MS), 0);
	soda_conn_close(c);
	c = env_connect(e, "?do=drop&on=call&after=1", SODA_CONN_CONTROL, 0, NULL);
	assert_int_equal(ping(e, c, TIMEOUT_MS), 0);
	assert_int_equal(ping(e, c, 20), -ETIMEDOUT);
	assert_int_equal(ping(e, c, 20), -ETIMEDOUT);
	soda_conn_close(c);
	c = env_connect(e, "?do=cut&on=call", SODA_CONN_CONTROL, 0, NULL);
	assert_int_equal(ping(e, c, TIMEOUT_MS), -ECONNRESET);
	assert_int_equal(ping(e, c, TIMEOUT_MS), -ECONNRESET);
	soda_conn_close(c);
}

static void test_connects(void **state)
{
	struct env *e = *state;
	char file[64], query[128];
	int err;

	snprintf(file, sizeof(file), "/tmp/soda-conformance-connect-XXXXXX");
	close(mkstemp(file));
	snprintf(query, sizeof(query), "?do=fail&on=connect&status=11&once=%s", file);
	assert_null(env_connect(e, query, SODA_CONN_CONTROL, 0, &err));
	assert_int_equal(err, -ESHUTDOWN);
	soda_conn_close(env_connect(e, query, SODA_CONN_CONTROL, 0, NULL));
	assert_null(env_connect(e, "?do=cut&on=connect", SODA_CONN_CONTROL, 0, &err));
	assert_int_equal(err, -ECONNRESET);
}

#define FAULT(f)                                                                                   \
	{                                                                                          \
#f, f, env_setup, env_teardown, NULL                                               \
	}

static int run_variant(const struct variant *v)
{
	struct CMUnitTest tests[] = {
		FAULT(test_fail),     FAULT(test_delay),	 FAULT(test_descriptor),
		FAULT(test_drop),     FAULT(test_abort_wakes),	 FAULT(test_cut),
		FAULT(test_rate),     FAULT(test_trigger_files), FAULT(test_calls),
		FAULT(test_connects),
	};

	for (unsigned i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tests[i].initial_state = (void *)(uintptr_t)v;
	return _cmocka_run_group_tests(v->name, tests, sizeof(tests) / sizeof(tests[0]), NULL,
				       NULL);
}

int run_faults_on_verbs(void)
{
	return env_has_verbs() ? run_variant(&verbs_variant) : 0;
}

int run_faults(void)
{
	int failed = 0;

	for (unsigned v = 0; v < sizeof(variants) / sizeof(variants[0]); v++)
		failed += run_variant(&variants[v]);
	return failed + run_faults_on_verbs();
}
