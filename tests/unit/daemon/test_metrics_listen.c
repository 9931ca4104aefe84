/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the metrics endpoint listens: what an address may look like, and what it means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/metrics_http.h"

static struct soda_conf_error err;
static char where[96];

static void accepted(const char *address, const char *host)
{
	int fd = -1;

	if (soda_metrics_listen(address, &fd, where, &err))
		fail_msg("%s: %s", address, err.text);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	if (strncmp(where, host, strlen(host)) || atoi(where + strlen(host)) == 0)
		fail_msg("%s is at %s", address, where);
	close(fd);
}

static void refused(const char *address, int status, const char *says)
{
	int fd = -2;

	assert_int_equal(soda_metrics_listen(address, &fd, where, &err), status);
	if (!strstr(err.text, says))
		fail_msg("%s: %s", address, err.text);
	assert_int_equal(fd, -2);
}

/* Without a host it is this machine's own business. */
static void test_addresses(void **state)
{
	accepted("0", "127.0.0.1:");
	accepted(":0", "127.0.0.1:");
	accepted("127.0.0.1:0", "127.0.0.1:");
	accepted("0.0.0.0:0", "0.0.0.0:");
}

static void test_ipv6(void **state)
{
	int fd;

	if (soda_metrics_listen("[::1]:0", &fd, where, &err)) {
		printf("SKIP: no IPv6: %s\n", err.text);
		skip();
	}
	close(fd);
	accepted("[::1]:0", "[::1]:");
}

static void test_refusals(void **state)
{
	refused("", -EINVAL, "'' is not an address");
	refused("host", -EINVAL, "is not an address");
	refused("127.0.0.1:", -EINVAL, "is not an address");
	refused("127.0.0.1:65536", -EINVAL, "is not an address");
	refused("127.0.0.1:12x", -EINVAL, "is not an address");
	refused("127.0.0.1:-1", -EINVAL, "is not an address");
	refused("::1:80", -EINVAL, "is not an address");
	refused("256.0.0.1:1", -EINVAL, "cannot resolve");
	refused("192.0.2.1:0", -EADDRNOTAVAIL, "cannot listen on 192.0.2.1:0");
}

static void test_in_use(void **state)
{
	char taken[96];
	int fd;

	assert_int_equal(soda_metrics_listen(":0", &fd, taken, &err), 0);
	refused(taken, -EADDRINUSE, "in use");
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_ipv6),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
