/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Services of a DPU agent over each transport: the agent without its main(), with a service beside
 * paging (lib/echo_service.h), and clients without pages, which need no memory server.
 *   test_services [verbs [CASE]]: only where SODA_TEST_VERBS names an address
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent_here.h"
#include "lib/echo_service.h"

enum { TIMEOUT_MS = AGENT_TIMEOUT_MS };

struct place {
	struct agent agent;
	struct echo echo;
};

static struct place place;

static void up(const char *address)
{
	memset(&place, 0, sizeof(place));
	agent_start(&place.agent, 0);
	assert_int_equal(echo_register(&place.echo, &place.agent.dpu.sessions), 0);
	assert_int_equal(echo_register(&place.echo, &place.agent.dpu.sessions), -EEXIST);
	agent_listen(&place.agent, address);
}

static void down(void)
{
	agent_stop(&place.agent);
	assert_int_equal(place.echo.created, place.echo.gone);
	assert_int_equal(place.echo.created, place.echo.destroyed);
}

static struct soda_conn *join(void)
{
	struct soda_wire_hello hello = { .epoch = 1 }; /* no chunks: no pages */
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = TIMEOUT_MS };
	const char *address = soda_listener_address(place.agent.listener);
	struct soda_wire_welcome welcome;
	struct soda_conn *conn = NULL;
	struct soda_why why;

	if (soda_conn_connect(address, &hello, &opt, &conn, &welcome, &why))
		fail_msg("%s: %s", address, why.text);
	return conn;
}

static int ask(struct soda_conn *conn, int type, const void *body, size_t bytes, void *reply,
	       size_t *reply_bytes_p, struct soda_why *why)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	static uint8_t ignored[SODA_WIRE_MAX_CONTROL];

	return soda_conn_call(conn, (enum soda_msg)type, &iov, 1, reply ? reply : ignored,
			      SODA_WIRE_MAX_CONTROL, reply_bytes_p, TIMEOUT_MS, why);
}

static void check_echo(struct soda_conn *conn, size_t bytes, uint64_t so_far)
{
	static uint8_t said[ECHO_BYTES], heard[SODA_WIRE_MAX_CONTROL];
	struct soda_why why;
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++)
		said[i] = (uint8_t)(i * 7 + bytes);
	assert_int_equal(ask(conn, ECHO_SAY, said, bytes, heard, &n, &why), 0);
	assert_int_equal(n, bytes);
	assert_memory_equal(said, heard, bytes);
	assert_int_equal(ask(conn, ECHO_COUNT, NULL, 0, heard, &n, &why), 0);
	assert_int_equal(n, 8);
	assert_int_equal(heard[0] | heard[1] << 8, so_far + 1);
}

static void await(_Atomic unsigned *counter, unsigned value)
{
	for (int ms = 0; *counter < value && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_true(*counter >= value);
}

/* What is said comes back, each client has a state of its own, and each hook came once. */
static void echo(const char *address)
{
	struct soda_conn *a, *b;
	struct soda_why why;

	up(address);
	a = join();
	b = join();
	check_echo(a, 0, 0);
	check_echo(a, 1, 1);
	check_echo(b, ECHO_BYTES, 0);
	check_echo(a, 100, 2);
	assert_int_equal(place.echo.connected, 2);
	assert_int_equal(ask(a, SODA_MSG_BYE, NULL, 0, NULL, NULL, &why), 0);
	assert_int_equal(place.echo.left, 1);
	soda_conn_close(a);
	await(&place.echo.gone, 1);
	place.echo.busy = true;
	soda_conn_close(b); /* it has vanished, and the service is not done with it */
	await(&place.echo.ticks, place.echo.ticks + 5);
	assert_int_equal(place.echo.gone, 1);
	place.echo.busy = false;
	await(&place.echo.gone, 2);
	down();
}

/* Refused with a reason, and the connection lives on: an answer for each. */
static void refused(const char *address)
{
	static const uint8_t long_one[ECHO_BYTES + 1];
	struct soda_conn *conn;
	struct soda_why why;

	up(address);
	conn = join();
	for (int type = ECHO_LAST + 1; type < SODA_MSG_TOKEN; type++) {
		why.text[0] = 0;
		assert_int_equal(ask(conn, type, long_one, 3, NULL, NULL, &why), -ENOTSUP);
		assert_non_null(strstr(why.text, "no service"));
	}
	assert_int_equal(ask(conn, ECHO_LAST, NULL, 0, NULL, NULL, &why), -EPROTO);
	assert_int_equal(ask(conn, ECHO_COUNT, long_one, 1, NULL, NULL, &why), -EPROTO);
	assert_int_equal(ask(conn, ECHO_SAY, long_one, sizeof(long_one), NULL, NULL, &why),
			 -EINVAL);
	assert_non_null(strstr(why.text, "4097"));
	/* paging is not for a client that has no pages */
	assert_int_equal(ask(conn, SODA_MSG_WRITTEN, NULL, 0, NULL, NULL, &why), -EPROTO);
	check_echo(conn, 9, 0);
	soda_conn_close(conn);
	down();
}

static void *wait_there(void *conn)
{
	struct soda_why why;

	assert_int_equal(ask(conn, ECHO_WAIT, NULL, 0, NULL, NULL, &why), 0);
	return NULL;
}

/* As many at once as the service allows; the next is refused, and served when there is room. */
static void limited(const char *address)
{
	pthread_t threads[ECHO_CALLS];
	struct soda_conn *conns[ECHO_CALLS], *other;
	struct soda_why why;

	up(address);
	for (int i = 0; i < ECHO_CALLS; i++) {
		conns[i] = join();
		assert_int_equal(pthread_create(&threads[i], NULL, wait_there, conns[i]), 0);
	}
	other = join();
	await(&place.echo.waiting, ECHO_CALLS);
	assert_int_equal(ask(other, ECHO_SAY, "x", 1, NULL, NULL, &why), -EBUSY);
	place.echo.open = true;
	for (int i = 0; i < ECHO_CALLS; i++) {
		pthread_join(threads[i], NULL);
		soda_conn_close(conns[i]);
	}
	check_echo(other, 1, 0);
	soda_conn_close(other);
	down();
}

CASES(echo)
CASES(refused)
CASES(limited)

int main(int argc, char **argv)
{
	const struct CMUnitTest sockets[] = {
		cmocka_unit_test(echo_tcp),    cmocka_unit_test(echo_shm),
		cmocka_unit_test(refused_tcp), cmocka_unit_test(refused_shm),
		cmocka_unit_test(limited_tcp), cmocka_unit_test(limited_shm),
	};
	const struct CMUnitTest rdma[] = {
		cmocka_unit_test(echo_verbs),
		cmocka_unit_test(refused_verbs),
		cmocka_unit_test(limited_verbs),
	};

	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1 && strcmp(argv[1], "verbs") == 0)
		return cmocka_run_group_tests_name("services, verbs", rdma, NULL, NULL);
	return cmocka_run_group_tests_name("services", sockets, NULL, NULL) +
	       cmocka_run_group_tests_name("services, verbs", rdma, NULL, NULL);
}
