/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The DPU agent between a real server and clients made of the transport's functions:
 * what it passes through, what it owns, and what becomes of it when something dies.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpu_rig.h"
#include "lib/peer.h"
#include "soda.h"

enum { UNIT = 65536, UNITS = 64, BYTES = UNIT * UNITS };

static uint8_t buf[BYTES], back[BYTES];

static void fill(uint8_t *at, size_t bytes, unsigned round)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(i * 13 + i / UNIT * 7 + round);
}

static void write_all(struct peer *p, const struct soda_mr *mr, unsigned round)
{
	fill(buf, BYTES, round);
	for (uint64_t i = 0; i < UNITS; i++)
		assert_int_equal(peer_write(p, mr, i * UNIT, buf + i * UNIT, UNIT), 0);
}

static void check_all(struct peer *p, const struct soda_mr *mr, unsigned round)
{
	fill(buf, BYTES, round);
	memset(back, 0, BYTES);
	for (uint64_t i = 0; i < UNITS; i++)
		assert_int_equal(peer_read(p, mr, i * UNIT, back + i * UNIT, UNIT), 0);
	assert_memory_equal(back, buf, BYTES);
}

static const char *const modes[] = { NULL, "--base", "--async=no", "--aggregate=no" };

/* A read sees each write before it, wherever that is, and the server has it after a sync. */
static void test_read_after_write(void **state)
{
	for (unsigned m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		struct peer p, direct;
		struct soda_mr mr;
		struct rig r;

		rig_up(&r, modes[m]);
		assert_int_equal(peer_join(&p, r.agent_address), 0);
		assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
		for (unsigned round = 0; round < 8; round++) {
			write_all(&p, &mr, round);
			check_all(&p, &mr, round);
		}
		assert_int_equal(peer_call(&p, SODA_MSG_SYNC, 7), 0);
		assert_true(peer_stat_of(r.server_address, "bytes_written") >= BYTES);
		/* the same client, past the agent: its epochs there are higher */
		peer_vanish(&p);
		peer_await_stat(r.server_address, "clients", 1);
		assert_int_equal(peer_return(&direct, r.server_address, &p.welcome, 1ull << 32), 0);
		assert_int_equal(direct.welcome.known, 1);
		check_all(&direct, &mr, 7);
		peer_leave(&direct);
		rig_down(&r, 0);
	}
}

/* A part of a page that was written, and more than was: the newest of each. */
static void test_overlaps(void **state)
{
	struct soda_mr mr;
	struct peer p;
	struct rig r;

	rig_up(&r, NULL);
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
	for (unsigned round = 0; round < 200; round++) {
		uint64_t at = round % 50 * 4096ull;

		memset(buf, (int)round, UNIT);
		assert_int_equal(peer_write(&p, &mr, at, buf, UNIT), 0);
		memset(buf, (int)round + 1, 4096);
		assert_int_equal(peer_write(&p, &mr, at + 8192, buf, 4096), 0);
		assert_int_equal(peer_read(&p, &mr, at, back, UNIT), 0);
		for (unsigned i = 0; i < UNIT; i += 512)
			assert_int_equal(back[i], (uint8_t)(round + (i / 4096 == 2)));
		assert_int_equal(peer_read(&p, &mr, at + 8192, back, 4096), 0);
		assert_int_equal(back[77], (uint8_t)(round + 1));
	}
	peer_leave(&p);
	rig_down(&r, 0);
}

/* Neighbours that wait at the same time travel as one. */
static void test_aggregation(void **state)
{
	struct soda_done done[UNITS];
	struct soda_conn *conn;
	struct soda_mr mr;
	struct peer p;
	struct rig r;

	rig_up(&r, NULL);
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
	write_all(&p, &mr, 3);
	assert_int_equal(peer_call(&p, SODA_MSG_SYNC, 7), 0);
	assert_int_equal(peer_connect_data(&p, &conn), 0);
	for (unsigned round = 0; round < 10; round++) {
		int got = 0;

		memset(back, 0, BYTES);
		for (uint64_t i = 0; i < UNITS; i++)
			assert_int_equal(
				soda_conn_post_read(conn, &mr, i * UNIT, UNIT, back + i * UNIT, i),
				0);
		assert_int_equal(soda_conn_flush(conn, false), 0);
		while (got < UNITS) {
			int n = soda_conn_poll(conn, done, UNITS, 5000000000, 0);

			assert_true(n > 0);
			for (int i = 0; i < n; i++)
				assert_int_equal(done[i].status, 0);
			got += n;
		}
		assert_memory_equal(back, buf, BYTES);
	}
	assert_true(peer_stat_of(r.agent_address, "reads_merged") > 0);
	assert_int_equal(peer_stat_of(r.agent_address, "copied_bytes"), 0);
	assert_int_equal(peer_stat_of(r.agent_address, "client_read_bytes"), 10 * BYTES);
	soda_conn_close(conn);
	peer_leave(&p);
	rig_down(&r, 0);
}

/* What a client left behind gets into its file, whether it said goodbye or crashed. */
static void test_writes_survive_the_client(void **state)
{
	for (int crash = 0; crash < 2; crash++) {
		struct soda_wire_welcome was;
		struct peer p, reader;
		struct soda_mr mr;
		struct rig r;
		int ret = -EBUSY;

		rig_up(&r, NULL);
		assert_int_equal(peer_join(&p, r.agent_address), 0);
		assert_int_equal(
			peer_open(&p, 7, "file", BYTES, SODA_WRITABLE | SODA_CREATE, &mr, NULL), 0);
		write_all(&p, &mr, 5);
		if (crash) { /* the server keeps it for its grace time: come back and leave */
			was = p.welcome;
			peer_vanish(&p);
			assert_int_equal(peer_return(&p, r.agent_address, &was, 2), 0);
			assert_int_equal(p.welcome.known, 1);
		}
		peer_leave(&p);
		assert_int_equal(peer_join(&reader, r.server_address), 0);
		for (int i = 0; i < LOOKS && ret == -EBUSY; i++) {
			ret = peer_open(&reader, 1, "file", 0, SODA_READ_ONLY, &mr, NULL);
			usleep(10000);
		}
		assert_int_equal(ret, 0);
		check_all(&reader, &mr, 5);
		peer_leave(&reader);
		assert_int_equal(server_complaints(&r.agent), 0);
		rig_down(&r, 0);
	}
}

/* kill -9 and a new agent: what was synchronised is there, and the client is told. */
static void test_agent_restarts(void **state)
{
	struct soda_wire_welcome was;
	struct soda_mr mr;
	struct peer p;
	struct rig r;

	rig_up(&r, NULL);
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
	assert_int_equal(peer_open(&p, 900, NULL, UNIT, 0, &(struct soda_mr){ 0 }, NULL), 0);
	write_all(&p, &mr, 9);
	assert_int_equal(peer_call(&p, SODA_MSG_SYNC, 7), 0);
	was = p.welcome;
	server_kill(&r.agent);
	server_forget(&r.agent);
	rig_start_agent(&r, r.agent_address);
	peer_vanish(&p);
	assert_int_equal(peer_return(&p, r.agent_address, &was, 2), 0);
	assert_int_equal(p.welcome.known, 1);
	assert_true(p.welcome.instance_id == was.instance_id);
	assert_true(p.welcome.agent && p.welcome.agent != was.agent);
	check_all(&p, &mr, 9); /* the region was not opened again */
	assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), -EBUSY);
	assert_int_equal(peer_call(&p, SODA_MSG_CLOSE, 900), 0);
	assert_int_equal(peer_call(&p, SODA_MSG_CLOSE, 900), -EINVAL);
	peer_leave(&p);
	rig_down(&r, 0);
}

/* The server is another one: clients are told, and nothing old is served. */
static void test_server_restarts(void **state)
{
	struct soda_wire_welcome was;
	char address[128];
	struct soda_mr mr;
	struct peer p;
	struct rig r;
	int ret = -1;

	rig_up(&r, NULL);
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
	write_all(&p, &mr, 1);
	assert_int_equal(peer_call(&p, SODA_MSG_SYNC, 7), 0); /* or the agent ends with a loss */
	was = p.welcome;
	memcpy(address, r.server_address, sizeof(address));
	server_kill(&r.server);
	server_forget(&r.server);
	/* a read ends with the connection, never with an answer */
	assert_true(peer_read(&p, &mr, 0, back, UNIT) == -ECONNRESET ||
		    peer_stat_of(r.agent_address, "reads_owned") > 0);
	peer_vanish(&p);
	rig_start_server(&r, address);
	for (unsigned i = 0; i < LOOKS && ret < 0; i++) {
		ret = peer_return(&p, r.agent_address, &was, 2 + i);
		if (ret == 0 && p.welcome.instance_id == was.instance_id) {
			peer_vanish(&p); /* the agent has not heard of it yet */
			ret = -EAGAIN;
		}
		if (ret < 0)
			usleep(20000);
	}
	assert_int_equal(ret, 0);
	assert_int_equal(p.welcome.known, 0);
	assert_true(p.welcome.instance_id != was.instance_id);
	assert_int_equal(peer_read(&p, &mr, 0, back, UNIT), -EINVAL);
	peer_leave(&p);
	rig_down(&r, 0);
}

/* Data that was taken over and cannot be written: the agent says so, in its log and status. */
static void test_loss_is_told(void **state)
{
	struct soda_mr mr;
	struct peer p;
	struct rig r;

	rig_up(&r, NULL);
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
	process_halt(r.server.pid);
	write_all(&p, &mr, 1); /* acknowledged all the same */
	check_all(&p, &mr, 1); /* and read */
	assert_true(peer_stat_of(r.agent_address, "writes_accepted") == UNITS);
	assert_true(peer_call(&p, SODA_MSG_SYNC, 7) < 0);
	server_kill(&r.server);
	server_forget(&r.server);
	peer_vanish(&p);
	assert_int_equal(server_stop(&r.agent), 1);
	assert_non_null(strstr(server_log(&r.agent), "could not be written"));
	rig_start_server(&r, "tcp://127.0.0.1:0");
	rig_down(&r, 0);
}

/* Requests for what is not there, or not theirs. */
static void test_bad_requests(void **state)
{
	for (unsigned m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
		struct soda_mr mr, beyond, other, readable;
		struct peer p, q;
		struct rig r;

		rig_up(&r, modes[m]);
		assert_int_equal(peer_join(&p, r.agent_address), 0);
		assert_int_equal(peer_join(&q, r.agent_address), 0);
		assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
		assert_int_equal(peer_open(&q, 8, NULL, BYTES, 0, &other, NULL), 0);
		write_all(&p, &mr, 2);
		beyond = mr;
		beyond.bytes *= 2;
		assert_int_equal(peer_read(&p, &beyond, BYTES - 4096, back, 8192), -EINVAL);
		assert_int_equal(peer_read(&p, &beyond, BYTES, back, 4096), -EINVAL);
		assert_int_equal(peer_write(&p, &beyond, BYTES, buf, 4096), -EINVAL);
		assert_int_equal(peer_read(&p, &other, 0, back, 4096), -EINVAL);
		assert_int_equal(peer_write(&p, &other, 0, buf, 4096), -EINVAL);
		assert_int_equal(peer_call(&p, SODA_MSG_SYNC, 8), -EINVAL);
		assert_int_equal(peer_call(&p, SODA_MSG_CLOSE, 99), -EINVAL);
		assert_int_equal(peer_call(&p, SODA_MSG_KEY, 7), -EPROTO);
		memset(buf, 1, 4096);
		readable = mr;
		assert_int_equal(peer_read(&p, &readable, 0, back, UNIT), 0);
		assert_true(peer_stat_of(r.agent_address, "requests_bad") >= 5);
		check_all(&p, &mr, 2);
		peer_leave(&q);
		peer_leave(&p);
		rig_down(&r, 0);
	}
}

/* What was accepted or is cached does not outlive a DISCARD, and its neighbours do. */
static void test_discard(void **state)
{
	static const char *const some[] = { NULL, "--base", "--cache-bytes=16M" };
	static const uint8_t zeros[UNIT];

	for (unsigned m = 0; m < sizeof(some) / sizeof(some[0]); m++) {
		struct soda_mr mr;
		struct peer p;
		struct rig r;

		rig_up(&r, some[m]);
		assert_int_equal(peer_join(&p, r.agent_address), 0);
		assert_int_equal(peer_open(&p, 7, NULL, BYTES, 0, &mr, NULL), 0);
		write_all(&p, &mr, 1);
		check_all(&p, &mr, 1); /* and into the caches */
		for (unsigned round = 2; round < 6; round++) {
			write_all(&p, &mr, round);
			assert_int_equal(peer_discard(&p, 7, UNIT, BYTES - 2 * UNIT), 0);
			for (uint64_t i = 1; i < UNITS - 1; i++) {
				assert_int_equal(peer_read(&p, &mr, i * UNIT, back, UNIT), 0);
				assert_memory_equal(back, zeros, UNIT);
			}
			assert_int_equal(peer_read(&p, &mr, 0, back, UNIT), 0);
			assert_memory_equal(back, buf, UNIT);
		}
		assert_int_equal(peer_stat_of(r.server_address, "bytes_discarded"),
				 4 * (BYTES - 2 * UNIT));
		write_all(&p, &mr, 7);
		check_all(&p, &mr, 7);
		assert_int_equal(peer_discard(&p, 7, 0, BYTES + 4096), -EINVAL);
		assert_int_equal(peer_discard(&p, 7, 1, 4096), -EINVAL);
		assert_int_equal(peer_discard(&p, 8, 0, 4096), -EINVAL);
		check_all(&p, &mr, 7);
		peer_leave(&p);
		rig_down(&r, 0);
	}
}

/* No server, at the start: a reason, and no wait. */
static void test_no_server(void **state)
{
	struct peer p;
	struct rig r;

	rig_up(&r, NULL);
	server_kill(&r.server);
	server_forget(&r.server);
	assert_true(peer_join(&p, r.agent_address) < 0);
	assert_non_null(strstr(p.why.text, r.server_address));
	rig_start_server(&r, r.server_address);
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	peer_leave(&p);
	rig_down(&r, 0);
}

enum { PIECE = 2 * UNIT, PIECES = BYTES / PIECE };

static void post_reads(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++, offset += PIECE)
		assert_int_equal(
			soda_conn_post_read(conn, mr, offset, PIECE, back + offset % BYTES, i), 0);
	assert_int_equal(soda_conn_flush(conn, false), 0);
}

static void take_reads(struct soda_conn *conn, unsigned n)
{
	struct soda_done done[16];

	while (n) {
		int got = soda_conn_poll(conn, done, 16, 60000000000ll, 0);

		assert_true(got > 0);
		n -= (unsigned)got;
	}
}

static uint64_t reads_queued(const struct rig *r)
{
	struct peer tool;
	uint64_t n;

	assert_int_equal(peer_ask(&tool, r->agent_address), 0);
	n = peer_stat_sum(&tool, "client_list", "reads_queued");
	peer_leave(&tool);
	return n;
}

/*
 * The credit is used up, then come a READ of the server and, behind it on the same connection,
 * as many of what the agent has as make up a credit.  They may not take what the first one needs.
 */
static void test_room_in_order(void **state)
{
	struct soda_conn *first, *second;
	struct soda_mr mr;
	struct peer p;
	struct rig r;

	rig_up(&r, "--client-credit=4M"); /* BYTES */
	assert_int_equal(peer_join(&p, r.agent_address), 0);
	assert_int_equal(peer_open(&p, 7, NULL, 3 * BYTES, 0, &mr, NULL), 0);
	assert_int_equal(peer_connect_data(&p, &first), 0);
	assert_int_equal(peer_connect_data(&p, &second), 0);
	process_halt(r.server.pid);
	fill(buf, BYTES, 1);
	for (uint64_t at = 0; at < BYTES;
	     at += PIECE) /* the agent's while the server stands still */
		assert_int_equal(peer_write(&p, &mr, at, buf + at, PIECE), 0);
	post_reads(second, &mr, BYTES, PIECES);
	peer_await_stat(r.agent_address, "server_bytes_under_way", BYTES);
	post_reads(first, &mr, 2 * BYTES, 1);
	post_reads(first, &mr, 0, PIECES);
	for (int i = 0; i < LOOKS && !reads_queued(&r); i++)
		usleep(10000);
	assert_true(reads_queued(&r));
	assert_int_equal(kill(r.server.pid, SIGCONT), 0);
	take_reads(second, PIECES);
	take_reads(first, 1 + PIECES);
	assert_memory_equal(back, buf, BYTES);
	soda_conn_close(first);
	soda_conn_close(second);
	peer_leave(&p);
	rig_down(&r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_after_write),
		cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_aggregation),
		cmocka_unit_test(test_writes_survive_the_client),
		cmocka_unit_test(test_agent_restarts),
		cmocka_unit_test(test_server_restarts),
		cmocka_unit_test(test_loss_is_told),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_room_in_order),
		cmocka_unit_test(test_no_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
