/* SPDX-License-Identifier: BSD-3-Clause */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "way.h"

static void pass(int from, int to)
{
	static char bytes[1 << 16];
	ssize_t n = read(from, bytes, sizeof(bytes)), done = 0, got;

	if (n <= 0)
		_exit(0);
	while (done < n) {
		got = write(to, bytes + done, (size_t)(n - done));
		if (got <= 0)
			_exit(0);
		done += got;
	}
}

static void pass_both(int a, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(port) };
	int b = socket(AF_INET, SOCK_STREAM, 0);
	struct pollfd fds[2] = { { a, POLLIN, 0 }, { b, POLLIN, 0 } };

	if (connect(b, (struct sockaddr *)&to, sizeof(to)))
		_exit(0);
	while (poll(fds, 2, -1) > 0) {
		if (fds[0].revents)
			pass(a, b);
		if (fds[1].revents)
			pass(b, a);
	}
	_exit(0);
}

/* A process, and one for each connection, of one process group. */
pid_t way_begin(const char *server, char address[WAY_ADDRESS])
{
	uint16_t port = (uint16_t)strtoul(strrchr(server, ':') + 1, NULL, 10);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0), conn;
	pid_t pid;

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
	snprintf(address, WAY_ADDRESS, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
	pid = fork();
	if (pid) {
		close(fd);
		setpgid(pid, pid);
		return pid;
	}
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	while ((conn = accept(fd, NULL, NULL)) >= 0) {
		if (!fork())
			pass_both(conn, port);
		close(conn);
	}
	_exit(0);
}

void way_end(pid_t way)
{
	kill(-way, SIGKILL);
	waitpid(way, NULL, 0);
}
