/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "host_agent/life/stats.h"
#include "wire/pool.h"

/* The counters, and a line for each member of the largest pool. */
enum { STATS_BYTES = 2048 + SODA_MEMBERS_MAX * (SODA_ADDRESS_MAX + SODA_WIRE_DOMAIN_MAX + 160) };

/* -1: none. Atomic: the keeper already runs when the socket is opened. */
static _Atomic int fd = -1;

void soda_stat_socket_start(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	/* Abstract: a zero byte, then the name; nothing of it is left when the process ends. */
	int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "soda/stat/%d", getpid());
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	int s = soda_fd_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (s >= 0 && (bind(s, (struct sockaddr *)&a, len) || listen(s, 8))) {
		soda_fd_close(s);
		s = -1;
	}
	atomic_store(&fd, s);
	if (s < 0)
		soda_log_info("no statistics socket: %s", soda_strerror(errno));
}

void soda_stat_socket_stop(void)
{
	soda_fd_close(fd);
	fd = -1;
}

int soda_stat_socket_fd(void)
{
	return fd;
}

void soda_stat_socket_serve(void)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	static char text[STATS_BYTES]; /* one keeper asks */
	int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	if (c < 0)
		return;
	if (getsockopt(c, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
	    (who.uid == geteuid() || who.uid == 0)) {
		size_t n = soda_stats_json(text, sizeof(text));

		/* The text fits any socket buffer, so that this does not wait for the peer. */
		if (send(c, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			soda_log_debug("statistics not delivered: %s", soda_strerror(errno));
	}
	close(c);
}
