/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that puts files at numbers of its own choice, and closes what it has not opened. */
#include "run_victim.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { SHELLS = 256, LOOPS = 4096 };

/* The runtime's userfaultfd. */
static int faults_fd(void)
{
	char path[64], to[64];

	for (int fd = 0; fd < 65536; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && (to[n] = 0, strstr(to, "userfaultfd")))
			return fd;
	}
	return -1;
}

/* Numbers that shells, servers and loops choose. */
static void take_numbers(int null)
{
	for (int fd = 3; fd < SHELLS; fd++)
		CHECK(fd == null || dup2(null, fd) == fd);
	for (int fd = 3; fd < LOOPS; fd++)
		if (fd != null)
			close(fd);
	for (int fd = 3; fd < SHELLS; fd++)
		CHECK(fd == null || dup3(null, fd, O_CLOEXEC) == fd);
}

static void close_all(int null)
{
	for (int fd = 3; fd < SHELLS; fd++)
		CHECK(fd == null || dup2(null, fd) == fd);
	CHECK(!close_range((unsigned)null + 1, UINT_MAX, 0));
	CHECK(null + 1 == SHELLS || (fcntl(null + 1, F_GETFD) == -1 && errno == EBADF));
	CHECK(dup2(null, SHELLS - 1) == SHELLS - 1);
	closefrom(null + 1);
	CHECK(fcntl(SHELLS - 1, F_GETFD) == -1 && errno == EBADF);
}

/* A child has none of the runtime's, and closes what it likes. */
static void close_in_child(int null)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		CHECK(faults_fd() < 0);
		closefrom(null + 1);
		_exit(3);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
}

/*
 * The child of a vfork(2) shares this memory, and closes all before its exec, as Python's
 * subprocess does: its own faults are served all the same.
 */
static void close_in_sharing_child(int null, unsigned char *p)
{
	pid_t pid = vfork();
	int status;

	if (!pid) {
		closefrom(null + 1);
		verify(p, BIG, 1);
		fill(p, BIG, 2);
		_exit(4);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
	verify(p, BIG, 2);
}

void case_descriptors(void)
{
	unsigned char *p = malloc(BIG);
	int null = open("/dev/null", O_RDWR), fd;

	CHECK(p && null >= 0);
	fill(p, BIG, 1);
	fd = faults_fd();
	CHECK(fd >= SHELLS);
	take_numbers(null);
	close_all(null);
	errno = 0;
	CHECK(close(fd) == -1 && errno == EBADF);
	CHECK(dup2(null, fd) == -1 && errno == EBADF); /* which is said */
	CHECK(dup3(null, fd, 0) == -1 && errno == EBADF);
	CHECK(faults_fd() == fd);
	close_in_child(null);
	close_in_sharing_child(null, p);
	verify(p, BIG, 2);
	free(p);
}

/* Past the C library, which nobody can spare: not one page may be zeros. */
void case_robbed(void)
{
	unsigned char *p = malloc(BIG);

	CHECK(p);
	fill(p, BIG, 3);
	syscall(SYS_close_range, 3u, ~0u, 0);
	verify(p, BIG, 3);
	fill(p, BIG, 4);
	verify(p, BIG, 4);
	_exit(98);
}

void case_replaced(void)
{
	unsigned char *p = malloc(BIG);
	int null = open("/dev/null", O_RDWR);

	CHECK(p && null >= 0);
	fill(p, BIG, 3);
	CHECK(syscall(SYS_dup3, null, faults_fd(), 0) >= 0);
	verify(p, BIG, 3);
	fill(p, BIG, 4);
	verify(p, BIG, 4);
	_exit(98);
}
