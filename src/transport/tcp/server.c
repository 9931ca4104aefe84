/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP, the side that listens: the address.  All else is in server*.c. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/listen/server.h"
#include "transport/stream/stream.h"
#include "transport/tcp/tcp.h"

enum { BACKLOG = 1024 };

static int bind_one(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1, err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	err = errno;
	close(fd);
	return -err;
}

static int bind_any(const char *host, const char *port, const char *rest, struct soda_why *why)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE };
	struct addrinfo *list;
	int ret = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);

	if (ret) {
		soda_why_set(why, "tcp://%.128s: the name \"%.64s\" cannot be resolved: %s", rest,
			     host, gai_strerror(ret));
		return -EINVAL;
	}
	ret = -EADDRNOTAVAIL;
	for (const struct addrinfo *a = list; a && ret < 0; a = a->ai_next)
		ret = bind_one(a);
	freeaddrinfo(list);
	if (ret < 0)
		soda_why_set(why, "cannot listen on tcp://%.128s: %s%s", rest, soda_strerror(ret),
			     ret == -EADDRINUSE ? "; another server runs there, or use port 0"
						: "");
	return ret;
}

/* The host as given, the port as bound. */
static void real_address(int fd, const char *host, char *out, size_t bytes)
{
	struct sockaddr_storage at = { 0 };
	socklen_t at_bytes = sizeof(at);
	unsigned port;

	getsockname(fd, (struct sockaddr *)&at, &at_bytes);
	port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
					      : ((struct sockaddr_in *)&at)->sin_port);
	if (!host[0])
		host = at.ss_family == AF_INET6 ? "::" : "0.0.0.0";
	snprintf(out, bytes, strchr(host, ':') ? "tcp://[%.100s]:%u" : "tcp://%.100s:%u", host,
		 port);
}

int soda_tcp_listen(const char *rest, const struct soda_service *ops, void *svc,
		    const struct soda_listener_options *opt, struct soda_listener **listener_p,
		    struct soda_why *why)
{
	char host[256], port[8], address[128];
	int ret = soda_inet_split(SODA_TCP_PREFIX, rest, host, port, why);

	if (ret < 0)
		return ret;
	ret = bind_any(host, port, rest, why);
	if (ret < 0)
		return ret;
	real_address(ret, host, address, sizeof(address));
	return soda_listener_create(ret, address, false, &soda_stream_plane, ops, svc, opt,
				    listener_p, why);
}
