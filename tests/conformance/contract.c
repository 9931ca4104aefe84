/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of transport.h, for every transport and again through the decorator. */
#include "conformance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "soda.h"

static const struct variant variants[] = {
	{ "tcp", "tcp://127.0.0.1:0", "", SODA_ENGINE_AUTO, false, false },
	{ "tcp, epoll", "tcp://127.0.0.1:0", "", SODA_ENGINE_EPOLL, false, false },
	{ "tcp, IPv6", "tcp://[::1]:0", "", SODA_ENGINE_AUTO, false, false },
	{ "tcp, two-sided", "tcp://127.0.0.1:0", "", SODA_ENGINE_AUTO, false, true },
	{ "tcp, epoll, two-sided", "tcp://127.0.0.1:0", "", SODA_ENGINE_EPOLL, false, true },
	{ "shm, abstract", "shm://@soda-conformance-%d", "", SODA_ENGINE_AUTO, true, false },
	{ "shm, file", "shm:///tmp/soda-conformance-%d", "", SODA_ENGINE_AUTO, true, false },
	{ "shm, two-sided", "shm://@soda-conformance-%d", "", SODA_ENGINE_AUTO, false, true },
	{ "fault+shm, two-sided", "shm://@soda-conformance-%d", "fault+", SODA_ENGINE_AUTO, false,
	  true },
	{ "fault+tcp", "tcp://127.0.0.1:0", "fault+", SODA_ENGINE_AUTO, false, false },
	{ "fault+shm", "shm://@soda-conformance-%d", "fault+", SODA_ENGINE_AUTO, true, false },
};

static const struct variant verbs_variants[] = {
	{ "verbs", VERBS, "", SODA_ENGINE_AUTO, false, false },
	{ "fault+verbs", VERBS, "fault+", SODA_ENGINE_AUTO, false, false },
	{ "verbs, two-sided", VERBS, "", SODA_ENGINE_AUTO, false, true },
	{ "verbs, two-sided, SEND", VERBS_SEND, "", SODA_ENGINE_AUTO, false, true },
};

static void test_hello(void **state)
{
	struct env *e = *state;
	struct soda_wire_hello hello = { .chunk_bytes = 65536, .epoch = 1 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = TIMEOUT_MS };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;

	assert_int_equal(soda_conn_connect(e->address, &hello, &opt, &conn, &welcome, &e->why), 0);
	assert_int_equal(welcome.instance_id, 5);
	assert_int_equal(welcome.client_id, 9);
	assert_int_equal(welcome.secret, FAKE_SECRET);
	assert_int_equal(welcome.max_data, SODA_WIRE_MAX_DATA);
	assert_string_equal(soda_conn_peer(conn), e->address);
	assert_true(soda_conn_fd(conn) >= 0);
	soda_conn_close(conn);
	soda_conn_close(NULL);
}

static void test_refused(void **state)
{
	struct env *e = *state;
	struct soda_wire_hello hello = { .chunk_bytes = FAKE_REFUSED_CHUNK };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = TIMEOUT_MS };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn = NULL;

	for (int kind = SODA_CONN_CONTROL; kind <= SODA_CONN_DATA; kind++) {
		opt.kind = kind;
		assert_int_equal(
			soda_conn_connect(e->address, &hello, &opt, &conn, &welcome, &e->why),
			-EPERM);
		assert_null(conn);
		assert_non_null(strstr(e->why.text, "4242 bytes are not liked"));
		for (const char *c = e->why.text; *c; c++)
			assert_true(*c >= ' ');
	}
	hello.chunk_bytes = 65536;
	hello.secret = FAKE_SECRET + 1;
	assert_int_equal(soda_conn_connect(e->address, &hello, &opt, &conn, &welcome, &e->why),
			 -ESTALE);
}

static int echo(struct soda_conn *conn, size_t bytes, size_t capacity)
{
	uint8_t *body = malloc(bytes + 1), *reply = malloc(capacity + 1);
	struct iovec iov[2] = { { body, bytes / 3 }, { body + bytes / 3, bytes - bytes / 3 } };
	size_t got = 0;
	int ret;

	for (size_t i = 0; i < bytes; i++)
		body[i] = (uint8_t)(i * 31 + 1);
	ret = soda_conn_call(conn, SODA_MSG_STATS, iov, 2, reply, capacity, &got, TIMEOUT_MS, NULL);
	if (ret == 0) {
		assert_int_equal(got, 2 * bytes);
		assert_memory_equal(reply, body, bytes);
		assert_memory_equal(reply + bytes, body, bytes);
	}
	free(body);
	free(reply);
	return ret;
}

static void test_calls(void **state)
{
	struct env *e = *state;
	struct soda_conn *conn = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	const uint8_t no_region[2] = { 99, 0 };
	struct iovec iov = { (void *)(uintptr_t)no_region, 2 };

	assert_int_equal(echo(conn, 0, 0), 0);
	assert_int_equal(echo(conn, 1, 2), 0);
	assert_int_equal(echo(conn, 1000, 5000), 0);
	assert_int_equal(echo(conn, 32768, 65536), 0);
	/* errors that leave the connection as it was */
	assert_int_equal(echo(conn, 5000, 9999), -EMSGSIZE);
	assert_int_equal(echo(conn, 40000, 65536), -EFBIG);
	assert_int_equal(
		soda_conn_call(conn, SODA_MSG_CLOSE, &iov, 1, NULL, 0, NULL, TIMEOUT_MS, &e->why),
		-ENOENT);
	assert_non_null(strstr(e->why.text, soda_conn_peer(conn) + strlen(e->variant->decorate)));
	assert_int_equal(echo(conn, 10, 20), 0);
	assert_int_equal(soda_conn_call(conn, SODA_MSG_PING, NULL, 0, NULL, 0, NULL, -1, NULL), 0);
	soda_conn_close(conn);
}

/* Submitted together, answered in order; one that is refused is answered so, and others are not. */
static void test_calls_ahead(void **state)
{
	struct env *e = *state;
	struct soda_wire_hello hello = { .chunk_bytes = 65536, .epoch = 1 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					 .timeout_ms = TIMEOUT_MS,
					 .calls = SODA_CONN_CALLS };
	static uint8_t body[40000], reply[80000];
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;

	assert_int_equal(soda_conn_connect(e->address, &hello, &opt, &conn, &welcome, &e->why), 0);
	for (unsigned round = 0; round < 5; round++) {
		unsigned n = round % 2 ? SODA_CONN_CALLS : round + 1;

		for (unsigned i = 0; i < n; i++) {
			size_t bytes = i == 3 ? sizeof(body) : (i * 7919 + round * 4001) % 32768;
			struct iovec iov[2] = { { body, bytes / 2 },
						{ body + bytes / 2, bytes - bytes / 2 } };

			memset(body, (int)(round * 16 + i), bytes);
			assert_int_equal(
				soda_conn_submit_call(conn, FAKE_ECHO, iov, 2, TIMEOUT_MS, &e->why),
				0);
			assert_int_equal(soda_conn_submitted(conn), i + 1);
		}
		for (unsigned i = 0; i < n; i++) {
			size_t bytes = (i * 7919 + round * 4001) % 32768, got = 0;
			int ret = soda_conn_collect(conn, reply, sizeof(reply), &got, TIMEOUT_MS,
						    &e->why);

			assert_int_equal(ret, i == 3 ? -EFBIG : 0);
			assert_int_equal(got, i == 3 ? 0 : 2 * bytes);
			for (size_t k = 0; k < got; k++)
				assert_int_equal(reply[k], round * 16 + i);
		}
		assert_int_equal(soda_conn_submitted(conn), 0);
		assert_int_equal(echo(conn, 10, 20), 0);
	}
	soda_conn_close(conn);
	opt.calls = SODA_CONN_CALLS + 1;
	assert_int_equal(soda_conn_connect(e->address, &hello, &opt, &conn, &welcome, &e->why),
			 -EINVAL);
}

static void test_call_times_out(void **state)
{
	struct env *e = *state;
	struct soda_conn *conn = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);

	atomic_store(&e->fake.holds_sync, true); /* the answer comes after the call's end */
	assert_int_equal(soda_conn_call(conn, SODA_MSG_SYNC, NULL, 0, NULL, 0, NULL,
					50 * fake_patience(), &e->why),
			 -ETIMEDOUT);
	atomic_store(&e->fake.holds_sync, false);
	assert_true(e->why.text[0]);
	assert_int_equal(echo(conn, 1, 2), -ETIMEDOUT);
	soda_conn_close(conn);
}

static void test_read(void **state)
{
	static const uint32_t sizes[] = { 4096, 8192, 65536, 2 << 20, 4 << 20 };
	struct env *e = *state;
	uint8_t *buf = malloc(4 << 20);
	struct link l;

	link_open(e, &l, "", SODA_READ_ONLY, 8);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t offset = REGION_BYTES - sizes[i];

		if (sizes[i] > env_max_data(e)) {
			assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, sizes[i], buf, 1),
					 -EINVAL);
			continue;
		}
		for (int first = 0; first < 2; first++) {
			memset(buf, 0, sizes[i]);
			assert_int_equal(soda_conn_post_read(l.data, &l.mr, first ? 0 : offset,
							     sizes[i], buf, 1),
					 0);
			finish(l.data, 1, 0);
			assert_int_equal(wrong_bytes(buf, 7, first ? 0 : offset, sizes[i]), 0);
		}
	}
	if (e->variant->memory)
		assert_ptr_equal(soda_mr_direct(&l.mr, 4096, 4096), l.mr.map + 4096);
	else
		assert_null(soda_mr_direct(&l.mr, 4096, 4096));
	assert_null(soda_mr_direct(&l.mr, REGION_BYTES, 1));
	link_close(&l);
	free(buf);
}

static void test_write(void **state)
{
	static const uint32_t sizes[] = { 4096, 65536, 4 << 20 };
	struct env *e = *state;
	uint8_t *buf = malloc(4 << 20), *back = malloc(4 << 20);
	struct fake_region *r;
	unsigned written = 0;
	struct link l;

	link_open(e, &l, "", SODA_WRITABLE, 8);
	r = fake_find(&e->fake, 7);
	for (unsigned i = 0; i < 3 && sizes[i] <= env_max_data(e); i++, written++) {
		uint64_t offset = 65536 + 4096 * i;

		memset(buf, 0x40 + (int)i, sizes[i]);
		assert_int_equal(soda_conn_post_write(l.data, &l.mr, offset, sizes[i], buf, 1), 0);
		/* the later request sees the earlier one */
		assert_int_equal(soda_conn_post_read(l.data, &l.mr, offset, sizes[i], back, 1), 0);
		finish(l.data, 2, 0);
		assert_memory_equal(back, buf, sizes[i]);
		assert_memory_equal(r->memory + offset, buf, sizes[i]);
		assert_int_equal(wrong_bytes(r->memory, 7, 0, 65536), 0);
	}
	if (env_one_sided(e)) {
		assert_int_equal(r->memory[r->bytes], 0);
		for (int unit = 1; unit <= 65; unit++)
			assert_int_equal(r->memory[r->bytes + (uint64_t)unit], 1);
		assert_int_equal(r->memory[r->bytes + 66], 0);
	} else if (env_is_verbs(e)) { /* a large one is several */
		assert_true(fake_count(&e->fake, &e->fake.writes) >= written);
	} else {
		assert_int_equal(fake_count(&e->fake, &e->fake.writes), written);
	}
	link_close(&l);
	free(buf);
	free(back);
}

static void test_ranges(void **state)
{
	struct env *e = *state;
	static uint8_t buf[8192];
	struct link l;

	link_open(e, &l, "", SODA_READ_ONLY, 2);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 0, buf, 0), -EINVAL);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 100, buf, 0), -EINVAL);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 5, 4096, buf, 0), -EINVAL);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, REGION_BYTES, 4096, buf, 0), -EINVAL);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, REGION_BYTES - 4096, 8192, buf, 0),
			 -EINVAL);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, UINT64_MAX - 4095, 8192, buf, 0),
			 -EINVAL);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, (4 << 20) + 4096, buf, 0), -EINVAL);
	assert_int_equal(soda_conn_post_write(l.data, &l.mr, 0, 4096, buf, 0), -EACCES);
	assert_int_equal(soda_conn_outstanding(l.data), 0);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf, 0), 0);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf, 0), 0);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf, 0), -EAGAIN);
	assert_int_equal(soda_conn_outstanding(l.data), 2);
	finish(l.data, 2, 0);
	assert_int_equal(soda_conn_outstanding(l.data), 0);
	link_close(&l);
}

static void test_peer_ends(void **state)
{
	struct env *e = *state;
	static uint8_t buf[4096];
	struct soda_done done;
	struct link l;
	int ret = 0;

	link_open(e, &l, "", 0, 8);
	fake_close_peers(&e->fake);
	for (int i = 0; i < 2000 * fake_patience() && ret == 0; i++) {
		ret = soda_conn_poll(l.data, &done, 1, 0, 0);
		usleep(1000);
	}
	assert_int_equal(ret, -ECONNRESET);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf, 0), -ECONNRESET);
	assert_int_equal(soda_conn_flush(l.data, false), -ECONNRESET);
	assert_int_equal(soda_conn_poll(l.data, &done, 1, -1, 0), -ECONNRESET);
	assert_int_equal(echo(l.control, 1, 2), -ECONNRESET);
	assert_int_equal(echo(l.control, 1, 2), -ECONNRESET);
	link_close(&l);
}

/*
 * What a daemon answers on a connection that it has ended is no answer: the client must find that
 * the connection is lost, and ask again on another one.
 */
static void test_peer_resigns(void **state)
{
	struct env *e = *state;
	static uint8_t buf[4096];
	struct soda_done done;
	struct link l;
	int ret = 0;

	link_open(e, &l, "", 0, 8);
	e->fake.resigns = true;
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf, 0), 0);
	assert_int_equal(soda_conn_flush(l.data, false), 0);
	for (int i = 0; i < 20 * fake_patience() && ret == 0; i++)
		ret = soda_conn_poll(l.data, &done, 1, 100 * MS, 0);
	assert_int_equal(ret, -ECONNRESET);
	e->fake.resigns = false;
	link_close(&l);
}

static void *abort_soon(void *arg)
{
	usleep(50000);
	soda_conn_abort(arg);
	return NULL;
}

static void test_abort(void **state)
{
	struct env *e = *state;
	static uint8_t buf[4096];
	struct soda_done done;
	pthread_t thread;
	struct link l;

	link_open(e, &l, "", 0, 8);
	atomic_store(&e->fake.holds_sync, true); /* the answer is not faster than the thread */
	assert_int_equal(pthread_create(&thread, NULL, abort_soon, l.control), 0);
	assert_int_equal(
		soda_conn_call(l.control, SODA_MSG_SYNC, NULL, 0, NULL, 0, NULL, TIMEOUT_MS, NULL),
		-ECONNABORTED);
	pthread_join(thread, NULL);
	atomic_store(&e->fake.holds_sync, false);
	assert_int_equal(echo(l.control, 1, 2), -ECONNABORTED);
	soda_conn_abort(l.data);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, 4096, buf, 0), -ECONNABORTED);
	assert_int_equal(soda_conn_flush(l.data, false), -ECONNABORTED);
	assert_int_equal(soda_conn_poll(l.data, &done, 1, -1, 0), -ECONNABORTED);
	link_close(&l);
}

static void test_stop_accepting(void **state)
{
	struct env *e = *state;
	static uint8_t buf[4096];
	struct link l;
	int err = 0;

	link_open(e, &l, "", 0, 8);
	soda_listener_stop_accepting(e->listener);
	for (int i = 0; i < 100 && err == 0; i++) {
		soda_conn_close(env_connect(e, "", SODA_CONN_CONTROL, 0, &err));
		usleep(10000);
	}
	assert_true(err < 0);
	assert_int_equal(soda_conn_post_read(l.data, &l.mr, 4096, 4096, buf, 0), 0);
	finish(l.data, 1, 0);
	assert_int_equal(echo(l.control, 5, 10), 0);
	link_close(&l);
}

/* The connection ends with requests outstanding: the listener gives their memory back. */
static void test_close_within(void **state)
{
	enum { DEPTH = 200, UNIT = 32768 };
	struct env *e = *state;
	uint8_t *buf = malloc(UNIT);
	struct link l;

	link_open(e, &l, "", 0, DEPTH);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(soda_conn_post_read(l.data, &l.mr, 0, UNIT, buf, i), 0);
	assert_int_equal(soda_conn_flush(l.data, true), 0);
	link_close(&l);
	await_count(e, &e->fake.gone, 2);
	free(buf);
}

/* Memory of a static cache comes where descriptors can travel, and is read without a request;
 * keys to it are in keys.c. */
static void test_advise(void **state)
{
	enum { AT = 3 << 16, BYTES = 1 << 16 };
	struct env *e = *state;
	struct soda_wire_advise a = { 7, SODA_STATIC_CACHE, AT, BYTES };
	bool local = env_is_shm(e), keyed = env_is_verbs(e);
	struct soda_static_map *map = NULL;
	struct soda_mr mr = { .bytes = REGION_BYTES, .region_id = 7 };
	struct soda_conn *control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);

	assert_int_equal(soda_conn_advise(control, &a, &map, TIMEOUT_MS, &e->why), 0);
	assert_int_equal(map != NULL, local || keyed);
	assert_null(soda_mr_direct(&mr, AT, BYTES));
	mr.statics = map;
	if (keyed)
		assert_ptr_equal(soda_mr_keyed(&mr, AT, BYTES), map);
	if (local) {
		assert_int_equal(wrong_bytes(soda_mr_direct(&mr, AT, BYTES), 7, AT, BYTES), 0);
		assert_non_null(soda_mr_direct(&mr, AT - 4096, 4096));
		assert_null(soda_mr_direct(&mr, AT - 8192, 8192));
		assert_null(soda_mr_direct(&mr, AT + 4096, BYTES));
		e->fake.unsealed = true;
		assert_int_equal(soda_conn_advise(control, &a, &map, TIMEOUT_MS, &e->why), -EPROTO);
		e->fake.unsealed = false;
		e->fake.lie_about_size = true;
		assert_int_equal(soda_conn_advise(control, &a, &map, TIMEOUT_MS, &e->why), -EPROTO);
		e->fake.lie_about_size = false;
	}
	a.advice = SODA_NO_CACHE;
	assert_int_equal(soda_conn_advise(control, &a, &map, TIMEOUT_MS, &e->why), 0);
	assert_null(map);
	soda_conn_unmap_region(&mr);
	assert_null(soda_mr_direct(&mr, AT, BYTES));
	soda_conn_close(control);
}

#define CONTRACT(f)                                                                                \
	{                                                                                          \
#f, f, env_setup, env_teardown, NULL                                               \
	}

static int run_variant(const struct variant *v)
{
	struct CMUnitTest tests[] = {
		CONTRACT(test_hello),
		CONTRACT(test_refused),
		CONTRACT(test_calls),
		CONTRACT(test_calls_ahead),
		CONTRACT(test_call_times_out),
		CONTRACT(test_read),
		CONTRACT(test_write),
		CONTRACT(test_ranges),
		CONTRACT(test_pipeline),
		CONTRACT(test_errors_between),
		CONTRACT(test_descriptor_tells),
		CONTRACT(test_tells),
		CONTRACT(test_peer_ends),
		CONTRACT(test_abort),
		CONTRACT(test_many_at_once),
		CONTRACT(test_deep_writes),
		CONTRACT(test_stop_accepting),
		CONTRACT(test_close_within),
		CONTRACT(test_advise),
		CONTRACT(test_peer_resigns), /* the last: for two-sided ones */
	};
	size_t n = sizeof(tests) / sizeof(tests[0]) - (v->two_sided ? 0 : 1);

	for (unsigned i = 0; i < n; i++)
		tests[i].initial_state = (void *)(uintptr_t)v;
	return _cmocka_run_group_tests(v->name, tests, n, NULL, NULL);
}

int run_contract_on_verbs(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(test_no_verbs) };
	int failed = 0;

	if (!env_has_verbs())
		return cmocka_run_group_tests_name("verbs", none, NULL, NULL);
	for (unsigned i = 0; i < sizeof(verbs_variants) / sizeof(verbs_variants[0]); i++)
		failed += run_variant(&verbs_variants[i]);
	return failed;
}

int run_contract(void)
{
	int failed = 0;

	for (unsigned i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
		failed += run_variant(&variants[i]);
	return failed + run_contract_on_verbs();
}
