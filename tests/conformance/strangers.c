/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract of transport.h where the other side is none of ours, or lies. */
#include "conformance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/failure.h"

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void test_bad_addresses(void **state)
{
	static const char *const bad[] = {
		"",
		"tcp",
		"tcp://",
		"tcp://host",
		"tcp://host:",
		"tcp://host:70000",
		"tcp://::1:5",
		"tcp://h:12x",
		"shm://",
		"shm://relative",
		"shm:///",
		"udp://h:1",
		"fault+",
		"fault+udp://h:1",
		"fault+tcp://h:1?do=dance",
		"fault+tcp://h:1?rate=5",
		"fault+tcp://h:1?do=fail&rate=101",
	};
	struct soda_wire_hello hello = { .chunk_bytes = 65536 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = 500 };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	struct soda_why why;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why.text[0] = 0;
		assert_int_equal(soda_conn_connect(bad[i], &hello, &opt, &conn, &welcome, &why),
				 -EINVAL);
		assert_true(why.text[0]);
	}
	assert_int_equal(
		soda_conn_connect("shm:///nonexistent/soda", &hello, &opt, &conn, &welcome, &why),
		-ENOENT);
	assert_int_equal(
		soda_conn_connect("shm://@soda-nobody-there", &hello, &opt, &conn, &welcome, &why),
		-ECONNREFUSED);
}

static int listen_raw(char address[64])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
	snprintf(address, 64, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
	return fd;
}

static void *say_hello_world(void *arg)
{
	int fd = accept(*(int *)arg, NULL, NULL);

	if (write(fd, "HTTP/1.1 400 Bad Request\r\n", 26) < 0)
		return NULL;
	usleep(100000);
	close(fd);
	return NULL;
}

static void test_strange_servers(void **state)
{
	struct soda_wire_hello hello = { .chunk_bytes = 65536 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = 200 };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	struct soda_why why;
	char address[64];
	pthread_t thread;
	int64_t start;
	int fd = listen_raw(address);

	start = now_ns(); /* the kernel accepts, nobody answers */
	assert_int_equal(soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why),
			 -ETIMEDOUT);
	assert_true(now_ns() - start < 1000ll * MS);
	close(accept(fd, NULL, NULL));
	assert_int_equal(pthread_create(&thread, NULL, say_hello_world, &fd), 0);
	assert_int_equal(soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why), -EPROTO);
	pthread_join(thread, NULL);
	close(fd);
	assert_int_equal(soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why),
			 -ECONNREFUSED);
	assert_non_null(strstr(why.text, address));
}

/* It welcomes its client, and answers each call with bytes that are no frame. */
static void *welcome_and_babble(void *arg)
{
	struct soda_wire_welcome welcome = { .version = SODA_WIRE_VERSION };
	uint8_t in[256], out[SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES];
	struct soda_wire_frame frame = { .type = SODA_MSG_OK, .length = SODA_WIRE_WELCOME_BYTES };
	int fd = accept(*(int *)arg, NULL, NULL);

	soda_wire_put_frame(out, &frame);
	soda_wire_put_welcome(out + SODA_WIRE_FRAME_BYTES, &welcome);
	if (recv(fd, in, SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES, MSG_WAITALL) > 0 &&
	    send(fd, out, sizeof(out), MSG_NOSIGNAL) > 0 && recv(fd, in, sizeof(in), 0) > 0)
		send(fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, MSG_NOSIGNAL);
	while (recv(fd, in, sizeof(in), 0) > 0)
		;
	close(fd);
	return NULL;
}

/* A refusal is -EPROTO, so an answer without sense must not be: that connection is lost. */
static void test_babble(void **state)
{
	struct soda_wire_hello hello = { .chunk_bytes = 65536 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = TIMEOUT_MS };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	struct soda_why why;
	char address[64];
	pthread_t thread;
	int fd = listen_raw(address), ret;

	assert_int_equal(pthread_create(&thread, NULL, welcome_and_babble, &fd), 0);
	assert_int_equal(soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why), 0);
	ret = soda_conn_call(conn, SODA_MSG_STATS, NULL, 0, NULL, 0, NULL, TIMEOUT_MS, &why);
	assert_int_equal(ret, -ECONNABORTED);
	assert_true(soda_call_lost(ret));
	assert_non_null(strstr(why.text, "makes no sense"));
	assert_true(soda_call_lost(soda_conn_call(conn, SODA_MSG_STATS, NULL, 0, NULL, 0, NULL,
						  TIMEOUT_MS, &why))); /* it stays so */
	soda_conn_close(conn);
	pthread_join(thread, NULL);
	close(fd);
}

/* A region whose memory is not what the server says is not mapped. */
static void test_shm_lies(void **state)
{
	static const struct variant shm = { "shm", "shm://@soda-conformance-lies-%d",
					    "",	   SODA_ENGINE_AUTO,
					    true,  false };
	struct soda_wire_open open = { .region_id = 1, .bytes = REGION_BYTES };
	struct soda_wire_opened opened;
	struct soda_conn *control;
	struct soda_mr mr = { 0 };
	struct env e;

	env_start(&e, &shm, NULL);
	control = env_connect(&e, "", SODA_CONN_CONTROL, 0, NULL);
	e.fake.unsealed = true;
	assert_int_equal(
		soda_conn_open_region(control, &open, "", &opened, &mr, TIMEOUT_MS, &e.why),
		-EPROTO);
	e.fake.unsealed = false;
	e.fake.lie_about_size = true;
	open.region_id = 2;
	assert_int_equal(
		soda_conn_open_region(control, &open, "", &opened, &mr, TIMEOUT_MS, &e.why),
		-EPROTO);
	assert_null(mr.map);
	e.fake.lie_about_size = false;
	open.region_id = 3;
	assert_int_equal(
		soda_conn_open_region(control, &open, "", &opened, &mr, TIMEOUT_MS, &e.why), 0);
	soda_conn_unmap_region(&mr);
	soda_conn_close(control);
	env_stop(&e);
}

int run_strangers(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_addresses),
		cmocka_unit_test(test_strange_servers),
		cmocka_unit_test(test_babble),
		cmocka_unit_test(test_shm_lies),
	};

	return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}
