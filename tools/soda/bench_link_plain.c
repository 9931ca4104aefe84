/* SPDX-License-Identifier: BSD-3-Clause */
/* What the emulated link really carries: one plain TCP stream from the server's side to ours. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_link.h"

enum { WARM_MS = 200, MEASURED_MS = 600, PIECE = 256 << 10 };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int enter_network_of(pid_t server)
{
	char path[64];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%ld/ns/net", (long)server);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = setns(fd, CLONE_NEWNET) ? -errno : 0;
	close(fd);
	return err;
}

/* A listening socket in the server's network, its port told through `told`. */
static int listen_there(const struct soda_bench_link *link, int told)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, link->server_ip, &at.sin_addr);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&at, &bytes) ||
	    write(told, &at, sizeof(at)) != sizeof(at))
		return -1;
	return fd;
}

/* The child: send until nobody receives. */
static void stream(const struct soda_bench_link *link, pid_t server, int told)
{
	static char piece[PIECE];
	int fd, peer;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (enter_network_of(server) || (fd = listen_there(link, told)) < 0)
		_exit(1);
	peer = accept(fd, NULL, NULL);
	while (peer >= 0 && send(peer, piece, sizeof(piece), MSG_NOSIGNAL) > 0)
		;
	_exit(0);
}

/* Receive for so long. 0, or negative errno. */
static int receive(int fd, unsigned ms)
{
	static char piece[PIECE];
	uint64_t end = now_ns() + ms * 1000000ull;

	while (now_ns() < end) {
		ssize_t n = recv(fd, piece, sizeof(piece), 0);

		if (n <= 0)
			return n ? -errno : -EPIPE;
	}
	return 0;
}

static int measure(const struct soda_bench_link *link, int fd, uint64_t *bits_per_s_p)
{
	struct soda_bench_link_bytes before, after;
	uint64_t start, took;
	int err = receive(fd, WARM_MS);

	start = now_ns();
	if (!err)
		err = soda_bench_link_read(link, &before);
	if (!err)
		err = receive(fd, MEASURED_MS);
	took = now_ns() - start;
	if (!err)
		err = soda_bench_link_read(link, &after);
	if (!err)
		*bits_per_s_p = (uint64_t)((double)(after.from_server - before.from_server) * 8e9 /
					   (double)took);
	return err;
}

static int receive_from(const struct soda_bench_link *link, int told, uint64_t *bits_per_s_p)
{
	struct timeval limit = { .tv_sec = 5 };
	struct sockaddr_in at;
	int fd, err;

	if (read(told, &at, sizeof(at)) != sizeof(at))
		return -EIO;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	err = connect(fd, (struct sockaddr *)&at, sizeof(at)) ? -errno
							      : measure(link, fd, bits_per_s_p);
	close(fd);
	return err;
}

int soda_bench_link_carries(const struct soda_bench_link *link, pid_t server,
			    uint64_t *bits_per_s_p)
{
	int told[2], err;
	pid_t child;

	if (pipe2(told, O_CLOEXEC))
		return -errno;
	child = fork();
	if (child == 0)
		stream(link, server, told[1]);
	err = child < 0 ? -errno : 0;
	close(told[1]);
	if (!err)
		err = receive_from(link, told[0], bits_per_s_p);
	close(told[0]);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	if (err)
		fprintf(stderr, "soda bench: --link: no plain stream over it: %s\n",
			strerror(-err));
	return err;
}
