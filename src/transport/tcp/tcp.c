/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP, the side that connects: connecting and HELLO.  Control
 * connections are in transport/stream/control.c, data connections in data.c. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/stream/stream.h"
#include "transport/tcp/tcp.h"

/* Try one address after the other; the last error counts. A socket or negative errno. */
static int connect_any(const struct addrinfo *list, uint64_t deadline_ns)
{
	int ret = -EHOSTUNREACH;

	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0) {
			ret = -errno;
			continue;
		}
		soda_inet_tune(fd);
		ret = soda_stream_connect(fd, a->ai_addr, a->ai_addrlen, deadline_ns);
		if (ret == 0)
			return fd;
		close(fd);
	}
	return ret;
}

static int resolve_and_connect(const char *rest, uint64_t deadline_ns, struct soda_why *why)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	char host[256], port[8];
	int ret = soda_inet_split(SODA_TCP_PREFIX, rest, host, port, why);

	if (ret < 0)
		return ret;
	ret = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
	if (ret) {
		soda_why_set(why, "tcp://%.128s: the name \"%.64s\" cannot be resolved: %s", rest,
			     host, gai_strerror(ret));
		return -EHOSTUNREACH;
	}
	ret = connect_any(list, deadline_ns);
	freeaddrinfo(list);
	if (ret < 0)
		soda_why_set(why,
			     "cannot connect to tcp://%.128s: %s; is the server running there?",
			     rest, soda_strerror(ret));
	return ret;
}

static int tcp_connect(const char *rest, const struct soda_wire_hello *hello,
		       const struct soda_conn_options *opt, struct soda_conn **conn_p,
		       struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	uint64_t deadline_ns = soda_deadline(opt->timeout_ms);
	int fd = resolve_and_connect(rest, deadline_ns, why);
	char peer[128];
	int ret;

	if (fd < 0)
		return fd;
	snprintf(peer, sizeof(peer), SODA_TCP_PREFIX "%s", rest);
	ret = soda_stream_hello(fd, peer, hello, -1, deadline_ns, welcome_p, NULL, why);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	if (opt->kind == SODA_CONN_CONTROL)
		ret = soda_stream_control_create(fd, &soda_stream_control_ops, SODA_TCP_PREFIX,
						 rest, opt, conn_p);
	else
		ret = soda_tcp_data_create(fd, rest, opt, conn_p);
	if (ret < 0)
		soda_why_set(why, "%s: no memory for a connection", peer);
	return ret;
}

const struct soda_transport soda_tp_tcp = {
	.prefix = SODA_TCP_PREFIX,
	.connect = tcp_connect,
	.listen = soda_tcp_listen,
};
