/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP: connecting and the HELLO, and the address that a listener has.  Control connections are
 * in transport/stream/, data connections in data.c, all else of who listens in transport/listen/.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "transport/listen/server.h"
#include "transport/stream/names.h"
#include "transport/stream/stream.h"
#include "transport/tcp/tcp.h"
#include "trust/identity.h"

enum { BACKLOG = 1024 };

/* Connecting */

/* A socket or negative errno. */
static int connect_to(const struct soda_place *at, const char *rest, uint64_t deadline_ns,
		      struct soda_why *why)
{
	const struct sockaddr *addr = (const void *)at->at;
	int fd =
		soda_fd_own(socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int ret = fd < 0 ? -errno : 0;

	if (!ret) {
		soda_inet_tune(fd);
		ret = soda_stream_connect(fd, addr, at->bytes, deadline_ns);
	}
	if (!ret)
		return fd;
	soda_fd_close(fd);
	soda_why_set(why, "cannot connect to tcp://%.128s: %s; is the server running there?", rest,
		     soda_strerror(ret));
	return ret;
}

/* Data by the kernels' TLS. */
static int protect_data(struct soda_byte_stream *s, const char *peer,
			const struct soda_identity *as, uint64_t deadline_ns, struct soda_why *why)
{
	char reason[SODA_TLS_WHY];

	if (soda_tls_kernel(reason) == 0)
		return soda_stream_encrypt(s->fd, peer, as, true, deadline_ns, &s->tls, why);
	soda_why_set(why,
		     "%.100s: data would travel in clear to another machine, which SODA_TLS=require"
		     " forbids, and %s; or SODA_SEAL=1, or a server on this machine",
		     peer, reason);
	return -EACCES;
}

/* As the identity wants it: TLS for a control connection, for data a way that nobody reads. */
static int protect(struct soda_byte_stream *s, const char *peer,
		   const struct soda_conn_options *opt, uint64_t deadline_ns, struct soda_why *why)
{
	const struct soda_identity *as = opt->identity;

	if (!as || !as->tls)
		return 0;
	if (opt->kind == SODA_CONN_CONTROL)
		return soda_stream_encrypt(s->fd, peer, as, false, deadline_ns, &s->tls, why);
	if (as->clear_data || soda_inet_protected(s->fd, opt->sealed))
		return 0;
	return protect_data(s, peer, as, deadline_ns, why);
}

static int connect_at(const struct soda_place *at, const char *rest,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      uint64_t deadline_ns, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_byte_stream s = soda_plain(connect_to(at, rest, deadline_ns, why));
	char peer[128];
	int ret;

	if (s.fd < 0)
		return s.fd;
	snprintf(peer, sizeof(peer), SODA_TCP_PREFIX "%s", rest);
	ret = protect(&s, peer, opt, deadline_ns, why);
	if (ret == 0)
		ret = soda_stream_hello(s, peer, hello, opt, -1, deadline_ns, welcome_p, NULL, why);
	if (ret < 0) {
		soda_tls_close(s.tls);
		soda_fd_close(s.fd);
		return ret;
	}
	if (opt->kind == SODA_CONN_CONTROL) {
		ret = soda_stream_control_create(s, &soda_stream_control_ops, SODA_TCP_PREFIX, rest,
						 opt, conn_p);
	} else {
		soda_tls_close(s.tls);
		ret = soda_tcp_data_create(s.fd, rest, opt, conn_p);
	}
	if (ret < 0)
		soda_why_set(why, "%s: no memory for a connection", peer);
	return ret;
}

static int tcp_connect(const char *rest, const struct soda_wire_hello *hello,
		       const struct soda_conn_options *opt, struct soda_conn **conn_p,
		       struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	return soda_names_connect(SODA_TCP_PREFIX, rest, connect_at, hello, opt, conn_p, welcome_p,
				  why);
}

/* Listening */

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

static int tcp_listen(const char *rest, const struct soda_service *ops, void *svc,
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

const struct soda_transport soda_tp_tcp = {
	.prefix = SODA_TCP_PREFIX,
	.proves = true,
	.connect = tcp_connect,
	.listen = tcp_listen,
};
