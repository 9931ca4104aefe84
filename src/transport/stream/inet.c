/* SPDX-License-Identifier: BSD-3-Clause */
/* HOST:PORT addresses, and the options of TCP sockets, for both sides. */
#include "transport/stream/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/limits.h"

int soda_inet_split(const char *prefix, const char *rest, char host[256], char port[8],
		    struct soda_why *why)
{
	const char *colon = strrchr(rest, ':');
	size_t host_n = colon ? (size_t)(colon - rest) : 0;
	unsigned long number;
	char *end;

	if (colon && host_n >= 2 && rest[0] == '[' && colon[-1] == ']') {
		rest++;
		host_n -= 2;
	} else if (colon && memchr(rest, ':', host_n)) {
		colon = NULL; /* an IPv6 address without brackets */
	}
	if (!colon || host_n > 255 || colon[1] < '0' || colon[1] > '9')
		goto bad;
	number = strtoul(colon + 1, &end, 10);
	if (*end || number > 65535)
		goto bad;
	memcpy(host, rest, host_n);
	host[host_n] = 0;
	snprintf(port, 8, "%lu", number);
	return 0;
bad:
	soda_why_set(why, "\"%s%.100s\" is not an address; expected %sHOST:PORT or %s[IPV6]:PORT",
		     prefix, rest, prefix, prefix);
	return -EINVAL;
}

void soda_inet_format(const char *prefix, const struct sockaddr *at, unsigned port, char *out,
		      size_t bytes)
{
	char host[INET6_ADDRSTRLEN] = "?";
	bool v6 = at->sa_family == AF_INET6;

	if (v6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)at)->sin6_addr, host,
			  sizeof(host));
	else
		inet_ntop(AF_INET, &((const struct sockaddr_in *)at)->sin_addr, host, sizeof(host));
	snprintf(out, bytes, v6 ? "%s[%s]:%u" : "%s%s:%u", prefix, host, port);
}

unsigned soda_inet_port(const struct sockaddr *at)
{
	return ntohs(at->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)at)->sin6_port
					       : ((const struct sockaddr_in *)at)->sin_port);
}

static void set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

void soda_inet_tune(int fd)
{
	/* BBR paces, and halves the throughput of deep queues on short paths. */
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) < 0)
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SODA_TCP_USER_MS);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, SODA_TCP_KEEPALIVE_S);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, SODA_TCP_KEEPALIVE_S);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, SODA_TCP_KEEPALIVE_PROBES);
}

bool soda_inet_same_host(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} here = { 0 }, there = { 0 };
	socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);

	if (getsockname(fd, &here.any, &here_bytes) < 0 ||
	    getpeername(fd, &there.any, &there_bytes) < 0 ||
	    here.any.sa_family != there.any.sa_family)
		return false;
	if (here.any.sa_family == AF_INET)
		return here.v4.sin_addr.s_addr == there.v4.sin_addr.s_addr;
	return here.any.sa_family == AF_INET6 &&
	       memcmp(&here.v6.sin6_addr, &there.v6.sin6_addr, sizeof(here.v6.sin6_addr)) == 0;
}

static bool is_loopback(const struct sockaddr_storage *at)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)at)->sin6_addr;
	uint32_t v4;

	if (at->ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(v6))
		return IN6_IS_ADDR_LOOPBACK(v6);
	if (at->ss_family == AF_INET6)
		memcpy(&v4, &v6->s6_addr[12], sizeof(v4));
	else if (at->ss_family == AF_INET)
		v4 = ((const struct sockaddr_in *)at)->sin_addr.s_addr;
	else
		return at->ss_family == AF_UNIX;
	return ntohl(v4) >> 24 == 127;
}

bool soda_inet_protected(int fd, bool sealed)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t bytes = sizeof(peer);

	if (sealed || soda_inet_same_host(fd))
		return true;
	return getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 && is_loopback(&peer);
}
