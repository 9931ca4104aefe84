/* SPDX-License-Identifier: BSD-3-Clause */
/* A program's own router, from outside: who comes in, and what it answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "messages/router.h"
#include "wire/messages.h"

static struct soda_why why;

static struct soda_conn *join(const char *address)
{
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = 5000 };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn = NULL;

	if (soda_conn_join_with(address, &opt, &conn, &welcome, &why))
		fail_msg("%s: %s", address, why.text);
	return conn;
}

static int ask(struct soda_conn *conn, int type)
{
	struct iovec nothing = { NULL, 0 };
	size_t n;

	why.text[0] = 0;
	return soda_conn_call(conn, (enum soda_msg)type, &nothing, 1, NULL, 0, &n, 5000, &why);
}

/* Of one rank: there are no others, and nobody but the process knows where it is. */
static void alone(void **state)
{
	struct soda_msg_router *r;
	struct soda_conn *conn;

	assert_int_equal(soda_msg_router_open(NULL, 1, &r, &why), 0);
	assert_int_equal(strncmp(soda_msg_router_address(r), "shm://@", 7), 0);
	conn = join(soda_msg_router_address(r));
	assert_int_equal(ask(conn, SODA_MSG_MESSAGES_PUSH), -EINVAL);
	assert_non_null(strstr(why.text, "begins with JOIN"));
	assert_int_equal(ask(conn, SODA_MSG_STATS), -ENOTSUP);
	assert_non_null(strstr(why.text, "knows no request of type"));
	soda_conn_leave(conn, 1000);
	soda_msg_router_close(r);
}

/* It listens at two addresses where that for others is not shm, and is closed with clients. */
static void beside_others(void **state)
{
	char address[64];
	struct soda_msg_router *r, *second;
	struct soda_conn *conn, *other;

	snprintf(address, sizeof(address), "tcp://127.99.%u.%u:23456",
		 (unsigned)getpid() >> 8 & 0xff, ((unsigned)getpid() & 0xff) | 1);
	assert_int_equal(soda_msg_router_open(address, 2, &r, &why), 0);
	assert_string_not_equal(soda_msg_router_address(r), address);
	assert_int_equal(soda_msg_router_open(address, 2, &second, &why), -EADDRINUSE);
	assert_non_null(strstr(why.text, address));
	conn = join(address);
	other = join(soda_msg_router_address(r));
	assert_int_equal(ask(conn, SODA_MSG_MESSAGES_RELAY), -EINVAL);
	assert_int_equal(ask(other, SODA_MSG_MESSAGES_PULL), -EINVAL);
	soda_msg_router_close(r);
	assert_true(ask(conn, SODA_MSG_MESSAGES_RELAY) < 0);
	soda_conn_close(conn);
	soda_conn_close(other);
	soda_msg_router_close(NULL);
}

/* A client with pages, and a data connection. */
static void no_pages(void **state)
{
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = 5000 };
	struct soda_wire_hello hello = { .epoch = 1, .uid = getuid(), .chunk_bytes = 65536 };
	struct soda_wire_welcome welcome;
	struct soda_msg_router *r;
	struct soda_conn *conn;

	assert_int_equal(soda_msg_router_open(NULL, 1, &r, &why), 0);
	assert_int_equal(
		soda_conn_connect(soda_msg_router_address(r), &hello, &opt, &conn, &welcome, &why),
		-ENOTSUP);
	assert_non_null(strstr(why.text, "has no pages"));
	soda_msg_router_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(alone),
					    cmocka_unit_test(beside_others),
					    cmocka_unit_test(no_pages) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
