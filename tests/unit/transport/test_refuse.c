/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection that is refused: it must not hold the acceptor, whatever it sends. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/listen/server.h"

static unsigned receives;

/* In the C library's place: the peer has always sent more already. */
ssize_t recv(int fd, void *buffer, size_t bytes, int flags)
{
	receives++;
	memset(buffer, 0, bytes);
	return (ssize_t)bytes;
}

static void check_flood(void **state)
{
	uint8_t reason[64] = { 0 };
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	alarm(20);
	soda_refuse(soda_plain(fds[0]), -EBUSY, "too many");
	alarm(0);
	assert_true(receives > 0 && receives <= 64);
	assert_int_equal(read(fds[1], reason, sizeof(reason)), SODA_WIRE_FRAME_BYTES + 8);
	assert_memory_equal(reason + SODA_WIRE_FRAME_BYTES, "too many", 8);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(check_flood) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
