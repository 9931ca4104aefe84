/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an agent gets that is not a request: it is refused or the connection ends,
 * counted, and a client beside it does not notice.  Each in the modes that
 * receive in different ways.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"

enum { UNIT = 65536, BYTES = 64 * UNIT, SILENT = 10000, PATIENCE_S = 60 };

static const char *const modes[] = { NULL, "--base", "--async=no" };

static struct server server, agent;
static struct peer good, bad;
static struct soda_mr good_mr, bad_mr;
static uint8_t buf[UNIT], back[UNIT];
static uint64_t refused; /* what the agent must have counted */

/* The good client's data are as they were. */
static void assert_works(void)
{
	memset(back, 0, UNIT);
	assert_int_equal(peer_read(&good, &good_mr, 3 * UNIT, back, UNIT), 0);
	assert_memory_equal(back, buf, UNIT);
	assert_int_equal(peer_write(&good, &good_mr, 5 * UNIT, buf, UNIT), 0);
}

static void up(const char *mode)
{
	const char *args[] = { "--listen",  "tcp://127.0.0.1:0",
			       "--server",  server.address,
			       "--timeout", "60s",
			       mode,	    NULL };

	assert_int_equal(SERVER_START(&server, "--capacity", "64M"), 0);
	assert_int_equal(agent_start(&agent, args), 0);
	assert_int_equal(peer_join(&good, agent.address), 0);
	assert_int_equal(peer_join(&bad, agent.address), 0);
	assert_int_equal(peer_open(&good, 7, NULL, BYTES, 0, &good_mr, NULL), 0);
	assert_int_equal(peer_open(&bad, 8, NULL, BYTES, 0, &bad_mr, NULL), 0);
	for (size_t i = 0; i < UNIT; i++)
		buf[i] = (uint8_t)(i * 7 + i / 4096);
	assert_int_equal(peer_write(&good, &good_mr, 3 * UNIT, buf, UNIT), 0);
	refused = 0;
}

static void down(void)
{
	assert_works();
	peer_leave(&bad);
	peer_leave(&good);
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&agent);
	server_forget(&server);
}

static uint64_t stat_of(const char *name)
{
	return peer_stat_of(agent.address, name);
}

/* By hand */

static int raw_connect(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { .tv_sec = PATIENCE_S };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_port = htons((uint16_t)atoi(strrchr(agent.address, ':') + 1));
	assert_return_code(fd, errno);
	assert_return_code(connect(fd, (struct sockaddr *)&at, sizeof(at)), errno);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

static void raw_send(int fd, const void *bytes, size_t n)
{
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

/* One byte a segment. */
static void raw_trickle(int fd, const uint8_t *bytes, size_t n)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (size_t i = 0; i < n; i++) {
		raw_send(fd, bytes + i, 1);
		usleep(200);
	}
}

static void raw_recv(int fd, void *bytes, size_t n)
{
	assert_int_equal(recv(fd, bytes, n, MSG_WAITALL), n);
}

static void assert_closed(int fd)
{
	uint8_t byte;
	ssize_t n;

	while ((n = recv(fd, &byte, 1, 0)) > 0)
		;
	assert_true(n == 0 || errno == ECONNRESET);
	close(fd);
}

static size_t put_hello(uint8_t *out, uint64_t secret, uint64_t epoch)
{
	struct soda_wire_frame f = { .type = SODA_MSG_HELLO, .length = SODA_WIRE_HELLO_BYTES };
	struct soda_wire_hello h = { .magic = SODA_WIRE_MAGIC,
				     .version = SODA_WIRE_VERSION,
				     .kind = SODA_CONN_DATA,
				     .chunk_bytes = UNIT,
				     .client_id = bad.welcome.client_id,
				     .secret = secret,
				     .epoch = epoch };

	soda_wire_put_frame(out, &f);
	soda_wire_put_hello(out + SODA_WIRE_FRAME_BYTES, &h);
	return SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES;
}

static size_t put_read(uint8_t *out, struct soda_wire_read r)
{
	struct soda_wire_frame f = { .type = SODA_MSG_READ, .length = SODA_WIRE_READ_BYTES };

	memset(out, 0, SODA_WIRE_HEAD_BYTES);
	soda_wire_put_frame(out, &f);
	soda_wire_put_read(out + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES, &r);
	return SODA_WIRE_HEAD_BYTES;
}

static size_t put_write(uint8_t *out, struct soda_wire_write w)
{
	struct soda_wire_frame f = { .type = SODA_MSG_WRITE,
				     .length = SODA_WIRE_WRITE_BYTES + w.size };

	memset(out, 0, SODA_WIRE_HEAD_BYTES);
	soda_wire_put_frame(out, &f);
	soda_wire_put_write(out + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES, &w);
	return SODA_WIRE_HEAD_BYTES;
}

/* A data connection of the bad client. */
static int bad_data(void)
{
	uint8_t out[128], in[SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES];
	int fd = raw_connect();

	raw_send(fd, out, put_hello(out, bad.welcome.secret, bad.epoch));
	raw_recv(fd, in, sizeof(in));
	assert_int_equal(in[0], SODA_MSG_OK);
	return fd;
}

static void expect_reply(int fd, enum soda_msg type, unsigned status, uint64_t tag)
{
	uint8_t in[SODA_WIRE_HEAD_BYTES];
	struct soda_wire_frame f;
	uint64_t got = 0;

	raw_recv(fd, in, sizeof(in));
	soda_wire_get_frame(in, &f);
	assert_int_equal(f.type, type);
	assert_int_equal(f.status, status);
	for (int i = 0; i < 8; i++)
		got |= (uint64_t)in[SODA_WIRE_HEAD_BYTES - SODA_WIRE_TAG_BYTES + i] << (8 * i);
	assert_int_equal(got, tag);
}

static void each_mode(void (*fn)(void))
{
	for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		up(modes[m]);
		fn();
		down();
	}
}

/* The connection ends, and is counted. */
static void check_ends(const uint8_t *out, size_t n)
{
	int fd = bad_data();

	raw_send(fd, out, n);
	assert_closed(fd);
	peer_await_stat(agent.address, "peers_rejected", ++refused);
	assert_works();
}

static void bad_lengths(void)
{
	static const uint32_t sizes[] = { 0, 1, 100, SODA_WIRE_MAX_DATA + 4096, 0xfffff000 };
	uint8_t out[SODA_WIRE_HEAD_BYTES];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_ends(out, put_read(out, (struct soda_wire_read){ 8, 0, 1, sizes[i], 0 }));
		check_ends(out, put_write(out, (struct soda_wire_write){ 8, 0, sizes[i] }));
	}
	memset(out, 0xff, sizeof(out));
	check_ends(out, sizeof(out));
}

static void test_bad_lengths(void **state)
{
	each_mode(bad_lengths);
}

/* Not the bad client's, or not there; the connection goes on, and any tag and key will do. */
static void bad_ranges(void)
{
	uint8_t out[8 * SODA_WIRE_HEAD_BYTES + 4096] = { 0 };
	uint64_t before = stat_of("requests_bad");
	int fd = bad_data();
	size_t n = 0;

	n += put_read(out, (struct soda_wire_read){ 7, 0, 1, 4096, 0 });
	n += put_read(out + n, (struct soda_wire_read){ 65535, 0, 2, 4096, 0 });
	n += put_read(out + n, (struct soda_wire_read){ 8, BYTES / 4096, 3, 4096, 0 });
	n += put_read(out + n, (struct soda_wire_read){ 8, BYTES / 4096 - 1, 4, 8192, 0 });
	n += put_read(out + n, (struct soda_wire_read){ 8, 0xffffffffffff, 5, 4096, 0 });
	n += put_write(out + n, (struct soda_wire_write){ 7, 48, 4096 });
	n += 4096;
	n += put_read(out + n, (struct soda_wire_read){ 8, 0, ~0ull, 4096, 0xdeadbeef });
	raw_send(fd, out, n);
	for (uint64_t tag = 1; tag <= 5; tag++)
		expect_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_INVALID, tag);
	expect_reply(fd, SODA_MSG_WRITE_REPLY, SODA_ST_INVALID, 7 | 48 << 16);
	expect_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_OK, ~0ull);
	raw_recv(fd, back, 4096);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(back[i], 0);
	close(fd);
	assert_true(stat_of("requests_bad") >= before + 6);
	assert_works();
}

static void test_bad_ranges(void **state)
{
	each_mode(bad_ranges);
}

/* A frame, a HELLO, the data of a WRITE that end in the middle. */
static void halves(void)
{
	static uint8_t out[SODA_WIRE_HEAD_BYTES + UNIT];
	int fd = raw_connect();

	raw_send(fd, out, put_hello(out, bad.welcome.secret, bad.epoch) / 2);
	close(fd);
	peer_await_stat(agent.address, "peers_rejected", ++refused);
	fd = bad_data();
	raw_send(fd, out, put_read(out, (struct soda_wire_read){ 8, 0, 1, 4096, 0 }) - 5);
	close(fd);
	peer_await_stat(agent.address, "peers_rejected", ++refused);
	memset(out, 0x55, sizeof(out));
	fd = bad_data();
	raw_send(fd, out, put_write(out, (struct soda_wire_write){ 8, 0, UNIT }) + UNIT / 2);
	close(fd);
	peer_await_stat(agent.address, "peers_rejected", ++refused);
	assert_works();
	assert_int_equal(peer_read(&bad, &bad_mr, 0, back, UNIT), 0);
	for (int i = 0; i < UNIT; i++)
		assert_int_equal(back[i], 0);
}

static void test_halves(void **state)
{
	each_mode(halves);
}

static void byte_by_byte(void)
{
	uint8_t out[256], in[SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES];
	int fd = raw_connect();
	size_t n;

	raw_trickle(fd, out, put_hello(out, bad.welcome.secret, bad.epoch));
	raw_recv(fd, in, sizeof(in));
	assert_int_equal(in[0], SODA_MSG_OK);
	n = put_write(out, (struct soda_wire_write){ 8, 2, 4096 });
	raw_trickle(fd, out, n);
	raw_trickle(fd, buf, 300);
	assert_works(); /* meanwhile */
	raw_send(fd, buf + 300, 4096 - 301);
	raw_trickle(fd, buf + 4095, 1);
	n = put_read(out, (struct soda_wire_read){ 8, 2, 99, 4096, 0 });
	raw_trickle(fd, out, n);
	expect_reply(fd, SODA_MSG_WRITE_REPLY, SODA_ST_OK, 8 | 2 << 16);
	expect_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_OK, 99);
	raw_recv(fd, back, 4096);
	assert_memory_equal(back, buf, 4096);
	close(fd);
}

static void test_byte_by_byte(void **state)
{
	each_mode(byte_by_byte);
}

/* Another's secret, an old epoch. */
static void strange_hellos(void)
{
	uint64_t before = stat_of("hellos_refused");
	uint8_t out[128], in[SODA_WIRE_FRAME_BYTES];

	for (int i = 0; i < 2; i++) {
		int fd = raw_connect();

		raw_send(fd, out,
			 put_hello(out, i ? bad.welcome.secret : good.welcome.secret,
				   bad.epoch + (i ? 1 : 0)));
		raw_recv(fd, in, sizeof(in));
		assert_int_equal(in[0], SODA_MSG_REFUSED);
		assert_closed(fd);
	}
	assert_true(stat_of("hellos_refused") >= before + 2);
}

static void test_strange_hellos(void **state)
{
	each_mode(strange_hellos);
}

/* Ten thousand, or as many as this process may have open; the agent lets the oldest go. */
static void test_ten_thousand_silent(void **state)
{
	struct rlimit limit;
	struct peer late;
	size_t n;
	int *fds;

	up(NULL); /* the daemons have the limit as it was */
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	n = limit.rlim_cur < SILENT + 100 ? limit.rlim_cur - 100 : SILENT;
	if (n < SILENT)
		print_message("%zu silent connections: more files may not be open\n", n);
	fds = calloc(n, sizeof(*fds));
	for (size_t i = 0; i < n; i++) {
		fds[i] = raw_connect();
		if (i % 500 == 0)
			assert_works();
	}
	assert_int_equal(peer_join(&late, agent.address), 0);
	assert_int_equal(peer_call(&late, SODA_MSG_SYNC, 7), -EINVAL);
	peer_leave(&late);
	if (n == SILENT)
		peer_await_stat(agent.address, "peers_rejected", SILENT / 2);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	free(fds);
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_lengths),    cmocka_unit_test(test_bad_ranges),
		cmocka_unit_test(test_halves),	       cmocka_unit_test(test_byte_by_byte),
		cmocka_unit_test(test_strange_hellos), cmocka_unit_test(test_ten_thousand_silent),
	};

	return cmocka_run_group_tests_name("dpu abuse", tests, NULL, NULL);
}
