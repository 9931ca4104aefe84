/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses and options of sockets that lie in fabric memory. */
#include "near.h"

#include <sys/socket.h>

#define TAKES_ADDRESS(name)                                                                        \
	RUN_NEAR(int, name, (int fd, const struct sockaddr *p, socklen_t n), (fd, p, n), FAM(p),   \
		 IN_BYTES(p, n))
/* *n: the room that there is, and what was filled. */
#define GIVES_ADDRESS(name, PARAMS, ARGS)                                                          \
	RUN_NEAR(int, name, PARAMS, ARGS, FAM(p) || FAM(n), if (n) OUT_BYTES(p, *n); OUT(n))

TAKES_ADDRESS(bind)
TAKES_ADDRESS(connect)
GIVES_ADDRESS(accept, (int fd, struct sockaddr *restrict p, socklen_t *restrict n), (fd, p, n))
GIVES_ADDRESS(accept4, (int fd, struct sockaddr *restrict p, socklen_t *restrict n, int flags),
	      (fd, p, n, flags))
GIVES_ADDRESS(getsockname, (int fd, struct sockaddr *restrict p, socklen_t *restrict n), (fd, p, n))
GIVES_ADDRESS(getpeername, (int fd, struct sockaddr *restrict p, socklen_t *restrict n), (fd, p, n))
GIVES_ADDRESS(getsockopt, (int fd, int level, int what, void *restrict p, socklen_t *restrict n),
	      (fd, level, what, p, n))
RUN_NEAR(int, setsockopt, (int fd, int level, int what, const void *p, socklen_t n),
	 (fd, level, what, p, n), FAM(p), IN_BYTES(p, n))
RUN_NEAR(int, socketpair, (int domain, int type, int protocol, int p[2]),
	 (domain, type, protocol, p), FAM(p), OUT_BYTES(p, 2 * sizeof(*p)))
