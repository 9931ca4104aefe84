/* SPDX-License-Identifier: BSD-3-Clause */
/* Which data connections leave the machine, by the addresses of their ends. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "transport/stream/stream.h"

static const char *ours, *theirs; /* what the kernel would say */

static int tell(const char *text, struct sockaddr *at, socklen_t *bytes)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };

	if (!text)
		return -1;
	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
		memcpy(at, &v4, sizeof(v4));
		*bytes = sizeof(v4);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
		memcpy(at, &v6, sizeof(v6));
		*bytes = sizeof(v6);
	}
	return 0;
}

int getsockname(int fd, struct sockaddr *at, socklen_t *bytes)
{
	return tell(ours, at, bytes);
}

int getpeername(int fd, struct sockaddr *at, socklen_t *bytes)
{
	return tell(theirs, at, bytes);
}

static bool protected(const char *a, const char *b, bool sealed)
{
	ours = a;
	theirs = b;
	return soda_inet_protected(3, sealed);
}

static void stays_or_leaves(void **state)
{
	assert_true(protected("127.0.0.1", "127.0.0.1", false));
	assert_true(protected("127.0.0.2", "127.9.9.9", false));
	assert_true(protected("::1", "::1", false));
	assert_true(protected("::ffff:127.0.0.1", "::ffff:127.0.0.2", false));
	/* one machine's address at both ends: the kernel does not send it out */
	assert_true(protected("10.0.0.1", "10.0.0.1", false));
	assert_true(protected("fd00::1", "fd00::1", false));
	assert_false(protected("10.0.0.1", "10.0.0.2", false));
	assert_false(protected("fd00::1", "fd00::2", false));
	assert_false(protected("::ffff:10.0.0.1", "::ffff:10.0.0.2", false));
	assert_false(protected("128.0.0.1", "128.0.0.2", false));
	/* the kernel tells nothing: it may leave */
	assert_false(protected(NULL, NULL, false));
	assert_true(protected("10.0.0.1", "10.0.0.2", true));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(stays_or_leaves) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
