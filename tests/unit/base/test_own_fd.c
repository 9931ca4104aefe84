/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors of a library: high, noted, and closed only where they still are its own. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own_fd.h"

/* As in a daemon. */
static void test_before_start(void **state)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_int_equal(soda_fd_own(fd), fd);
	assert_false(soda_fd_is_own(fd));
	assert_int_equal(soda_fd_lost(), -1);
	soda_fd_close(fd);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_moved(void **state)
{
	int low = eventfd(0, 0), fd;

	soda_fds_start();
	soda_fds_start();
	fd = soda_fd_own(low);
	assert_true(fd >= 256 && fd < SODA_FDS_MAX);
	assert_int_equal(fcntl(low, F_GETFD), -1);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_true(soda_fd_is_own(fd));
	assert_int_equal(soda_fd_next_own(0), fd);
	assert_int_equal(soda_fd_next_own(fd + 1), SODA_FDS_MAX);
	soda_fd_close(fd);
	assert_false(soda_fd_is_own(fd));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_errors(void **state)
{
	errno = EMFILE;
	assert_int_equal(soda_fd_own(-1), -1);
	soda_fd_close(-1);
	assert_int_equal(errno, EMFILE);
	assert_false(soda_fd_is_own(-1));
	assert_false(soda_fd_is_own(SODA_FDS_MAX));
	assert_int_equal(soda_fd_next_own(-5), SODA_FDS_MAX);
}

/* No number is free above: it stays where it is, and is the library's all the same. */
static void test_no_room(void **state)
{
	struct rlimit before, low;
	int fd = eventfd(0, EFD_CLOEXEC), own;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	low.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	own = soda_fd_own(fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(own, fd);
	assert_true(soda_fd_is_own(fd));
	soda_fd_close(fd);
}

static void test_lost(void **state)
{
	int fd = soda_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	assert_int_equal(soda_fd_lost(), -1);
	close(fd);
	assert_int_equal(soda_fd_lost(), fd);
	assert_int_equal(dup2(zero, fd), fd);
	assert_int_equal(soda_fd_lost(), fd);
	soda_fd_close(fd); /* the other file stays open */
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	assert_int_equal(soda_fd_lost(), -1);
	close(fd);
	close(zero);
}

static void test_child(void **state)
{
	int fd = soda_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC)), status;
	pid_t pid = fork();

	if (!pid) {
		if (soda_fd_is_own(fd) || soda_fd_next_own(0) != SODA_FDS_MAX)
			_exit(1);
		soda_fds_forget();
		_exit(soda_fd_is_own(fd) ? 2 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(soda_fd_is_own(fd));
	soda_fd_close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_start), cmocka_unit_test(test_moved),
		cmocka_unit_test(test_errors),	     cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_lost),	     cmocka_unit_test(test_child),
	};

	return cmocka_run_group_tests_name("own_fd", tests, NULL, NULL);
}
