/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/metrics_http.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

enum { BACKLOG = 32 };

struct place {
	char host[256], port[8];
};

static int split(const char *address, struct place *to, struct soda_conf_error *err)
{
	const char *colon = strrchr(address, ':');
	const char *port = colon ? colon + 1 : address;
	size_t n = colon ? (size_t)(colon - address) : 0;
	unsigned long number;
	char *end;

	if (n >= 2 && address[0] == '[' && colon[-1] == ']') {
		address++;
		n -= 2;
	} else if (n && memchr(address, ':', n)) {
		goto bad; /* an IPv6 address without brackets */
	}
	if (n >= sizeof(to->host) || *port < '0' || *port > '9')
		goto bad;
	number = strtoul(port, &end, 10);
	if (*end || number > 65535)
		goto bad;
	snprintf(to->host, sizeof(to->host), "%.*s", (int)n, n ? address : "");
	if (!n)
		snprintf(to->host, sizeof(to->host), "127.0.0.1");
	snprintf(to->port, sizeof(to->port), "%lu", number);
	return 0;
bad:
	return soda_conf_fail(err, -EINVAL,
			      "metrics: '%.80s' is not an address; expected PORT, HOST:PORT or"
			      " [IPV6]:PORT",
			      address);
}

static int listen_at(const struct addrinfo *at, int *fd_p)
{
	int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
	int one = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, BACKLOG)) {
		r = -errno;
		close(fd);
		return r;
	}
	*fd_p = fd;
	return 0;
}

static void describe(int fd, char where[96])
{
	struct sockaddr_storage own;
	socklen_t n = sizeof(own);
	char host[64] = "?", port[8] = "?";

	if (!getsockname(fd, (struct sockaddr *)&own, &n))
		getnameinfo((struct sockaddr *)&own, n, host, sizeof(host), port, sizeof(port),
			    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(where, 96, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

int soda_metrics_listen(const char *address, int *fd_p, char where_p[96],
			struct soda_conf_error *err)
{
	const struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	struct place place;
	int r = split(address, &place, err), fd = -1;

	if (r)
		return r;
	r = getaddrinfo(place.host, place.port, &hints, &found);
	if (r)
		return soda_conf_fail(err, -EINVAL, "metrics: cannot resolve '%.80s': %s",
				      place.host, gai_strerror(r));
	r = listen_at(found, &fd);
	freeaddrinfo(found);
	if (r)
		return soda_conf_fail(err, r, "metrics: cannot listen on %.80s: %s", address,
				      soda_strerror(r));
	describe(fd, where_p);
	*fd_p = fd;
	return 0;
}
