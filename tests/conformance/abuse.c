/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that do not keep the protocol: a refusal with a reason or a closed
 * connection, counted, and nobody else disturbed.
 */
#include "conformance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/limits.h"
#include "soda.h"

static const struct variant variants[] = {
	{ "abuse, tcp", "tcp://127.0.0.1:0", "", SODA_ENGINE_AUTO, false, false },
	{ "abuse, tcp, epoll", "tcp://127.0.0.1:0", "", SODA_ENGINE_EPOLL, false, false },
	{ "abuse, tcp, two-sided", "tcp://127.0.0.1:0", "", SODA_ENGINE_AUTO, false, true },
	{ "abuse, tcp, epoll, two-sided", "tcp://127.0.0.1:0", "", SODA_ENGINE_EPOLL, false, true },
	{ "abuse, shm", "shm://@soda-conformance-abuse-%d", "", SODA_ENGINE_AUTO, true, false },
	{ "abuse, shm, two-sided", "shm://@soda-conformance-abuse-%d", "", SODA_ENGINE_AUTO, false,
	  true },
};

/* HELLOs */

static void assert_refused(int fd, unsigned status, const char *reason)
{
	struct soda_wire_frame f;
	uint8_t in[8];
	char text[256];

	raw_recv(fd, in, sizeof(in));
	soda_wire_get_frame(in, &f);
	assert_int_equal(f.type, SODA_MSG_REFUSED);
	assert_int_equal(f.status, status);
	assert_in_range(f.length, 1, sizeof(text) - 1);
	raw_recv(fd, text, f.length);
	text[f.length] = 0;
	assert_non_null(strstr(text, reason));
	assert_closed(fd);
}

static void test_bad_hellos(void **state)
{
	struct env *e = *state;
	uint8_t out[4096] = { 0 };
	unsigned n = 0;
	int fd;

	fd = raw_connect(e);
	raw_send(fd, out, raw_hello(out, 0x12345678, SODA_WIRE_VERSION, SODA_CONN_DATA));
	assert_refused(fd, SODA_ST_PROTO, "magic");
	await_count(e, &e->fake.rejected, ++n);

	fd = raw_connect(e);
	raw_send(fd, out, raw_hello(out, SODA_WIRE_MAGIC, 77, SODA_CONN_CONTROL));
	assert_refused(fd, SODA_ST_VERSION, "77");
	await_count(e, &e->fake.rejected, ++n);

	/* another version may have another length */
	fd = raw_connect(e);
	raw_hello(out, SODA_WIRE_MAGIC, 2, SODA_CONN_CONTROL);
	raw_frame(out, SODA_MSG_HELLO, 80);
	raw_send(fd, out, 88);
	assert_refused(fd, SODA_ST_VERSION, "version 2");
	await_count(e, &e->fake.rejected, ++n);

	fd = raw_connect(e);
	raw_send(fd, out, raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, 3));
	assert_refused(fd, SODA_ST_PROTO, "kind");
	await_count(e, &e->fake.rejected, ++n);

	fd = raw_connect(e);
	raw_send(fd, "GET / HTTP/1.1\r\nHost: soda\r\n\r\n", 30);
	assert_refused(fd, SODA_ST_PROTO, "HELLO");
	await_count(e, &e->fake.rejected, ++n);

	fd = raw_connect(e);
	memset(out, 0xff, sizeof(out));
	raw_send(fd, out, sizeof(out));
	assert_closed(fd);
	await_count(e, &e->fake.rejected, ++n);

	fd = raw_connect(e);
	raw_send(fd, out, raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_DATA) / 2);
	close(fd);
	await_count(e, &e->fake.rejected, ++n);

	close(raw_connect(e)); /* a port check is no offence */
	soda_conn_close(env_connect(e, "", SODA_CONN_CONTROL, 0, NULL));
	assert_int_equal(fake_count(&e->fake, &e->fake.rejected), n);
	assert_int_equal(fake_count(&e->fake, &e->fake.hellos), 1);
}

static void test_silence(void **state)
{
	struct env *e = *state;
	uint8_t out[64];
	struct link l;
	int fd[3];

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < 3; i++)
		fd[i] = raw_connect(e);
	raw_send(fd[1], out,
		 raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_DATA) - 1);
	raw_send(fd[2], out, 1);
	assert_works(&l);
	for (unsigned i = 0; i < 3; i++)
		assert_closed(fd[i]);
	await_count(e, &e->fake.rejected, 3);
	assert_works(&l);
	link_close(&l);
}

static void test_thousands_of_silent(void **state)
{
	enum { N = 2000 };
	struct env *e = *state;
	struct rlimit limit;
	struct link l;
	int fd[N];

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < 2 * N + 100) {
		print_message("SKIP: the limit of open files is %d\n", (int)limit.rlim_cur);
		skip();
	}
	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < N; i++) {
		fd[i] = raw_connect(e);
		if (i % 100 == 0)
			assert_works(&l);
	}
	soda_conn_close(env_connect(e, "", SODA_CONN_CONTROL, 0, NULL));
	soda_conn_close(env_connect(e, "", SODA_CONN_DATA, 0, NULL));
	assert_works(&l);
	for (unsigned i = 0; i < N; i++)
		assert_closed(fd[i]);
	assert_works(&l);
	link_close(&l);
}

static void test_max_connections(void **state)
{
	struct soda_listener_options options = { .max_connections = 3 };
	const struct variant *v = ((struct env *)*state)->variant;
	struct soda_conn *c[3];
	struct env e;
	int err;

	if (env_is_shm(&(struct env){ .variant = v })) {
		print_message("SKIP: shm has one address, and the fixture listens on it\n");
		skip();
	}
	env_start(&e, v, &options);
	for (unsigned i = 0; i < 3; i++)
		c[i] = env_connect(&e, "", i % 2 ? SODA_CONN_DATA : SODA_CONN_CONTROL, 0, NULL);
	for (int kind = SODA_CONN_CONTROL; kind <= SODA_CONN_DATA; kind++) {
		assert_null(env_connect(&e, "", kind, 0, &err));
		assert_int_equal(err, -EBUSY);
		assert_non_null(strstr(e.why.text, "3 connections"));
	}
	soda_conn_close(c[1]);
	await_count(&e, &e.fake.gone, 1);
	for (int i = 0; i < 500 && !(c[1] = env_connect(&e, "", SODA_CONN_DATA, 0, &err)); i++)
		usleep(1000);
	for (unsigned i = 0; i < 3; i++)
		soda_conn_close(c[i]);
	env_stop(&e);
}

/* Data connections */

static void test_byte_by_byte(void **state)
{
	struct env *e = *state;
	static uint8_t data[4096];
	uint8_t out[256], in[64];
	struct link l;
	size_t n;
	int fd;

	link_open(e, &l, "", 0, 8);
	fd = raw_connect(e);
	raw_trickle(fd, out, raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_DATA));
	raw_recv(fd, in, sizeof(in));
	assert_int_equal(in[0], SODA_MSG_OK);
	n = raw_read_request(out, 7, 3, 4096, 0x1122334455667788);
	n += raw_write_request(out + n, 7, 5, 4096);
	raw_trickle(fd, out, n);
	memset(data, 0x77, sizeof(data));
	raw_trickle(fd, data, 100);
	raw_send(fd, data + 100, sizeof(data) - 101);
	raw_trickle(fd, data, 1);
	assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_OK, 0x1122334455667788, 4096);
	raw_recv(fd, data, 4096);
	assert_int_equal(wrong_bytes(data, 7, 3 * 4096, 4096), 0);
	assert_reply(fd, SODA_MSG_WRITE_REPLY, SODA_ST_OK, 7 | 5 << 16, 0);
	memset(data, 0x77, sizeof(data));
	assert_memory_equal(fake_find(&e->fake, 7)->memory + 5 * 4096, data, 4096);
	close(fd);
	link_close(&l);
}

/* Requests behind the HELLO in one segment are not lost. */
static void test_all_at_once(void **state)
{
	struct env *e = *state;
	static uint8_t out[65536], data[4096];
	struct link l;
	size_t n;
	int fd;

	link_open(e, &l, "", 0, 8);
	fd = raw_connect(e);
	n = raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_DATA);
	for (unsigned i = 0; i < 7; i++) {
		n += raw_write_request(out + n, 7, i, 4096);
		memset(out + n, 0x10 + (int)i, 4096);
		n += 4096;
		n += raw_read_request(out + n, 7, i, 4096, i);
	}
	raw_send(fd, out, n);
	raw_recv(fd, data, SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES);
	for (unsigned i = 0; i < 7; i++) {
		assert_reply(fd, SODA_MSG_WRITE_REPLY, SODA_ST_OK, 7 | i << 16, 0);
		assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_OK, i, 4096);
		raw_recv(fd, data, 4096);
		assert_int_equal(data[0], 0x10 + i);
		assert_memory_equal(data, data + 1, 4095);
	}
	close(fd);
	link_close(&l);
}

/* Requests that are refused one by one; the connection goes on. */
static void test_refused_requests(void **state)
{
	struct env *e = *state;
	struct soda_conn *control = env_connect(e, "", SODA_CONN_CONTROL, 0, NULL);
	static uint8_t out[300000], data[4096];
	struct soda_mr mr[2];
	size_t n;
	int fd;

	region_open(e, control, 7, 0, &mr[0]);
	region_open(e, control, 8, SODA_READ_ONLY, &mr[1]);
	fd = raw_data(e);
	n = raw_read_request(out, 7, REGION_BYTES / 4096 - 1, 8192, 1);
	n += raw_read_request(out + n, 7, 0xffffffffffff, 4096, 2);
	n += raw_read_request(out + n, 1000, 0, 4096, 3);
	n += raw_write_request(out + n, 8, 0, 131072);
	n += 131072;
	n += raw_write_request(out + n, 7, REGION_BYTES / 4096, 4096);
	n += 4096;
	n += raw_read_request(out + n, 8, 1, 4096, 4);
	raw_send(fd, out, n);
	assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_INVALID, 1, 0);
	assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_INVALID, 2, 0);
	assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_INVALID, 3, 0);
	assert_reply(fd, SODA_MSG_WRITE_REPLY, SODA_ST_ACCES, 8, 0);
	assert_reply(fd, SODA_MSG_WRITE_REPLY, SODA_ST_INVALID,
		     7 | (uint64_t)(REGION_BYTES / 4096) << 16, 0);
	assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_OK, 4, 4096);
	raw_recv(fd, data, 4096);
	assert_int_equal(wrong_bytes(data, 8, 4096, 4096), 0);
	assert_int_equal(wrong_bytes(fake_find(&e->fake, 8)->memory, 8, 0, 131072), 0);
	close(fd);
	soda_conn_unmap_region(&mr[0]);
	soda_conn_unmap_region(&mr[1]);
	soda_conn_close(control);
}

/* Requests that end the connection. */
static void test_bad_requests(void **state)
{
	struct env *e = *state;
	uint8_t out[10][64];
	size_t n[10];
	struct link l;
	unsigned k = 0;

	link_open(e, &l, "", 0, 8);
	n[k] = raw_read_request(out[k], 7, 0, 0, 1), k++;
	n[k] = raw_read_request(out[k], 7, 0, 100, 1), k++;
	n[k] = raw_read_request(out[k], 7, 0, SODA_WIRE_MAX_DATA + 4096, 1), k++;
	n[k] = raw_write_request(out[k], 7, 0, 0), k++;
	n[k] = raw_write_request(out[k], 7, 0, SODA_WIRE_MAX_DATA + 4096), k++;
	n[k] = raw_write_request(out[k], 7, 0, 4096), raw_frame(out[k], SODA_MSG_WRITE, 8192), k++;
	n[k] = raw_read_request(out[k], 7, 0, 4096, 1), raw_frame(out[k], SODA_MSG_READ, 25), k++;
	n[k] = raw_frame(out[k], 200, 24), k++;
	n[k] = raw_frame(out[k], SODA_MSG_READ_REPLY, 8), k++;
	n[k] = raw_frame(out[k], SODA_MSG_WRITE, 0xffffffff), k++;
	for (unsigned i = 0; i < k; i++) {
		int fd = raw_data(e);

		raw_send(fd, out[i], n[i]);
		if (n[i] == 8)
			shutdown(fd, SHUT_WR);
		assert_closed(fd);
		await_count(e, &e->fake.rejected, i + 1);
		assert_works(&l);
	}
	link_close(&l);
}

static void test_half_requests(void **state)
{
	struct env *e = *state;
	static uint8_t out[70000];
	struct link l;
	size_t n;
	int fd;

	link_open(e, &l, "", 0, 8);
	fd = raw_data(e);
	raw_send(fd, out, raw_read_request(out, 7, 0, 4096, 1) - 3);
	close(fd);
	await_count(e, &e->fake.rejected, 1);
	fd = raw_data(e);
	n = raw_write_request(out, 7, 0, 65536);
	raw_send(fd, out, n + 30000);
	close(fd);
	await_count(e, &e->fake.rejected, 2);
	await_count(e, &e->fake.torn, 1);
	assert_works(&l);
	link_close(&l);
}

/* A connection with as many requests as it takes, none of whose answers is taken. */
static int open_greedy(struct env *e, uint32_t tag)
{
	uint8_t out[64];
	size_t n = raw_read_request(out, 7, 0, SODA_WIRE_MAX_DATA, tag);
	int fd = raw_data(e);
	ssize_t sent = 1;

	for (unsigned k = 0; k < 20000 && sent > 0; k++)
		sent = send(fd, out, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	return fd;
}

/* Such a client stops nobody, not even on the same worker. */
static void test_greedy(void **state)
{
	struct soda_listener_options options = { .workers = 1 };
	const struct variant *v = ((struct env *)*state)->variant;
	struct link l;
	struct env e;
	int fd[4];

	if (v->memory) {
		print_message("SKIP: no request reaches the server on shm\n");
		skip();
	}
	env_start(&e, v, &options);
	link_open(&e, &l, "", 0, 8);
	for (unsigned i = 0; i < 4; i++)
		fd[i] = open_greedy(&e, i);
	for (unsigned i = 0; i < 20; i++)
		assert_works(&l);
	for (unsigned i = 0; i < 4; i++)
		close(fd[i]);
	await_count(&e, &e.fake.gone, 4);
	assert_works(&l);
	link_close(&l);
	env_stop(&e);
}

/* A request that its client leaves undone is not kept, and costs nobody else a connection. */
static void test_stuck(void **state)
{
	struct soda_listener_options options = { .workers = 1, .stuck_timeout_ms = STUCK_MS };
	const struct variant *v = ((struct env *)*state)->variant;
	static uint8_t out[70000];
	struct link l;
	struct env e;
	int fd[2];
	size_t n;

	if (v->memory) {
		print_message("SKIP: no request reaches the server on shm\n");
		skip();
	}
	env_start(&e, v, &options);
	link_open(&e, &l, "", 0, 8);
	fd[0] = raw_data(&e);
	n = raw_write_request(out, 7, 0, 65536);
	raw_send(fd[0], out, n + 65535); /* all but the last byte */
	fd[1] = open_greedy(&e, 1);
	await_count(&e, &e.fake.gone, 2); /* although both are open here */
	assert_int_equal(fake_count(&e.fake, &e.fake.torn), 1);
	assert_int_equal(fake_count(&e.fake, &e.fake.rejected), 2);
	assert_closed(fd[0]);
	close(fd[1]);
	assert_works(&l);
	link_close(&l);
	env_stop(&e);
}

/* Control connections */

static void test_bad_calls(void **state)
{
	struct env *e = *state;
	uint8_t out[128];
	struct link l;
	unsigned n = 0;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < 6; i++) {
		static const struct {
			unsigned type;
			uint32_t length;
		} bad[] = { { SODA_MSG_PING, SODA_WIRE_MAX_CONTROL + 1 },
			    { SODA_MSG_READ, 24 },
			    { SODA_MSG_HELLO, 56 },
			    { SODA_MSG_OK, 0 },
			    { SODA_MSG_SERVICES - 1, 0 },
			    { SODA_MSG_STATS, 1000 } };
		int fd = raw_connect(e);

		raw_send(fd, out,
			 raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_CONTROL));
		raw_recv(fd, out, 64);
		raw_send(fd, out, raw_frame(out, bad[i].type, bad[i].length));
		shutdown(fd, SHUT_WR);
		assert_closed(fd);
		await_count(e, &e->fake.rejected, ++n);
		assert_works(&l);
	}
	link_close(&l);
}

/*
 * For a HELLO in many pieces: the time for it, short elsewhere so that silent strangers are tested
 * fast, is for all of them, and on a busy machine each takes some milliseconds.
 */
static int patient_setup(void **state)
{
	struct soda_listener_options options = { .hello_timeout_ms = SODA_HELLO_MS };
	struct env *e = malloc(sizeof(*e));

	env_start(e, *state, &options);
	*state = e;
	return 0;
}

#define ABUSE(f)                                                                                   \
	{                                                                                          \
#f, f, env_setup, env_teardown, NULL                                               \
	}

static int run_group(const struct variant *v, struct CMUnitTest *tests, size_t n)
{
	for (size_t i = 0; i < n; i++)
		tests[i].initial_state = (void *)(uintptr_t)v;
	return _cmocka_run_group_tests(v->name, tests, n, NULL, NULL);
}

int run_abuse(void)
{
	int failed = 0;

	for (unsigned v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
		struct CMUnitTest any[] = {
			ABUSE(test_bad_hellos),		 ABUSE(test_silence),
			ABUSE(test_thousands_of_silent), ABUSE(test_max_connections),
			ABUSE(test_bad_calls),
		};
		struct CMUnitTest streams[] = {
			{ "test_byte_by_byte", test_byte_by_byte, patient_setup, env_teardown,
			  NULL },
			ABUSE(test_all_at_once),
			ABUSE(test_refused_requests),
			ABUSE(test_bad_requests),
			ABUSE(test_half_requests),
			ABUSE(test_greedy),
			ABUSE(test_stuck),
		};

		failed += run_group(&variants[v], any, sizeof(any) / sizeof(any[0]));
		/* two-sided on shm: hostile.c */
		if (!env_is_shm(&(struct env){ .variant = &variants[v] }) || variants[v].memory)
			failed += run_group(&variants[v], streams,
					    sizeof(streams) / sizeof(streams[0]));
	}
	return failed;
}
