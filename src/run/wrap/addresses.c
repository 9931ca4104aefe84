/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls with addresses and options of sockets that may lie in fabric memory. */
#include "run/wrap/near.h"

#include <errno.h>
#include <sys/socket.h>

#define TAKES_ADDRESS(name)                                                                        \
	RUN_NEAR(int, name, (int fd, const struct sockaddr *p, socklen_t n), (fd, p, n), FAM(p),   \
		 IN_BYTES(p, n))
/* *n: the size of the room, and then of the address. */
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

/*
 * Refuses SO_ZEROCOPY: the kernel must have copied a bounce buffer when a send returns (sockets.c).
 */
RUN_API int setsockopt(int fd, int level, int what, const void *p, socklen_t n)
{
	static int (*next)(int, int, int, const void *, socklen_t);
	struct run_near near = { 0 };
	int ret;

	RUN_NEXT(next, "setsockopt");
	if (run_is_ours(__builtin_return_address(0)))
		return next(fd, level, what, p, n);
	if (level == SOL_SOCKET && what == SO_ZEROCOPY && n >= sizeof(int) && *(const int *)p) {
		errno = EOPNOTSUPP;
		return -1;
	}
	IN_BYTES(p, n);
	ret = next(fd, level, what, p, n);
	run_near_end(&near);
	return ret;
}

RUN_NEAR(int, socketpair, (int domain, int type, int protocol, int p[2]),
	 (domain, type, protocol, p), FAM(p), OUT_BYTES(p, 2 * sizeof(*p)))
