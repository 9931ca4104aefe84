/* SPDX-License-Identifier: BSD-3-Clause */
#include "relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

int relay_dial(const char *to)
{
	struct timeval patience = { .tv_sec = 60 };
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd, r;

	if (!strncmp(to, "tcp://", 6)) {
		in.sin_port = htons((uint16_t)atoi(strrchr(to, ':') + 1));
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		r = connect(fd, (struct sockaddr *)&in, sizeof(in));
	} else {
		memcpy(un.sun_path + 1, to + 7, strlen(to + 7)); /* behind "shm://@" */
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		r = connect(
			fd, (struct sockaddr *)&un,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(to + 7)));
	}
	assert_int_equal(r, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

/* Forward once. False: this side has ended. */
static bool pass(int from, int to, uint8_t *keep, size_t *n, size_t flip)
{
	uint8_t bytes[2048];
	ssize_t got = recv(from, bytes, sizeof(bytes), 0);

	if (got <= 0)
		return false;
	if (flip && flip >= *n && flip < *n + (size_t)got)
		bytes[flip - *n] ^= 0x40;
	if (*n + (size_t)got <= sizeof(((struct relay *)0)->said))
		memcpy(keep + *n, bytes, (size_t)got);
	*n += (size_t)got;
	return send(to, bytes, (size_t)got, MSG_NOSIGNAL) == got;
}

static void *relay_main(void *arg)
{
	struct relay *r = arg;
	int client = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	int server = relay_dial(r->to);
	bool on = true;

	while (on) {
		struct pollfd fds[2] = { { client, POLLIN, 0 }, { server, POLLIN, 0 } };

		if (poll(fds, 2, 60000) <= 0)
			break;
		if (fds[0].revents)
			on = pass(client, server, r->said, &r->said_n, r->flip_said);
		if (on && fds[1].revents)
			on = pass(server, client, r->heard, &r->heard_n, r->flip_heard);
	}
	close(client);
	close(server);
	return NULL;
}

int relay_listen(char address[80])
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof(at);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
	snprintf(address, 80, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
	return fd;
}

void relay_begin(struct relay *r, const char *to, size_t flip_said, size_t flip_heard)
{
	*r = (struct relay){ .to = to, .flip_said = flip_said, .flip_heard = flip_heard };
	r->listener = relay_listen(r->address);
	assert_int_equal(pthread_create(&r->thread, NULL, relay_main, r), 0);
}

void relay_end(struct relay *r)
{
	pthread_join(r->thread, NULL);
	close(r->listener);
}

bool relay_saw(const struct relay *r, const void *what, size_t bytes)
{
	return memmem(r->said, r->said_n, what, bytes) || memmem(r->heard, r->heard_n, what, bytes);
}
