/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/scrape.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

unsigned http_find_port(const char *text)
{
	static const char url[] = "http://127.0.0.1:";
	const char *at = strstr(text, url);

	return at ? (unsigned)atoi(at + strlen(url)) : 0;
}

int http_connect(unsigned port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval limit = { HTTP_TIMEOUT_MS / 1000, 0 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* Up to the end of the connection, in whatever way it ends. */
static int receive(int fd, const char **answer_p)
{
	static char answer[HTTP_ANSWER_MAX];
	size_t n = 0;
	ssize_t got;

	while (n + 1 < sizeof(answer) &&
	       (got = recv(fd, answer + n, sizeof(answer) - 1 - n, 0)) != 0) {
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return -ETIMEDOUT;
		if (got < 0)
			break;
		n += (size_t)got;
	}
	answer[n] = 0;
	*answer_p = answer;
	return strncmp(answer, "HTTP/1.", 7) ? 0 : atoi(answer + 9);
}

int http_raw(unsigned port, const void *request, size_t bytes, int half_close,
	     const char **answer_p)
{
	int fd = http_connect(port), r;
	size_t sent = 0;

	if (fd < 0)
		return fd;
	while (sent < bytes) {
		ssize_t n = send(fd, (const char *)request + sent, bytes - sent, MSG_NOSIGNAL);

		if (n < 0) /* it has closed: there may be an answer all the same */
			break;
		sent += (size_t)n;
	}
	if (half_close)
		shutdown(fd, SHUT_WR);
	r = receive(fd, answer_p);
	close(fd);
	return r;
}

int http_get(unsigned port, const char *path, const char **body_p)
{
	char request[512];
	const char *answer, *body;
	int n = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
	int r = http_raw(port, request, (size_t)n, 0, &answer);

	if (r <= 0)
		return r;
	body = strstr(answer, "\r\n\r\n");
	*body_p = body ? body + 4 : "";
	return r;
}
