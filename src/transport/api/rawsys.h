/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls for the fault path: glibc's wrappers of these are cancellation
 * points, which a signal handler must not be.  They return -errno; errno itself
 * is spoilt, and kept by transport.c.
 */
#ifndef SODA_RAWSYS_H
#define SODA_RAWSYS_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

static inline long raw_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	long ret = syscall(SYS_sendmsg, fd, msg, flags);

	return ret < 0 ? -errno : ret;
}

static inline long raw_recvmsg(int fd, struct msghdr *msg, int flags)
{
	long ret = syscall(SYS_recvmsg, fd, msg, flags);

	return ret < 0 ? -errno : ret;
}

static inline long raw_recv(int fd, void *buf, size_t bytes, int flags)
{
	long ret = syscall(SYS_recvfrom, fd, buf, bytes, flags, NULL, NULL);

	return ret < 0 ? -errno : ret;
}

/* timeout_ns < 0: no limit. */
static inline long raw_poll(struct pollfd *fds, unsigned n, int64_t timeout_ns)
{
	struct timespec ts = { .tv_sec = timeout_ns / 1000000000,
			       .tv_nsec = timeout_ns % 1000000000 };
	/* 8: the kernel's size of a signal set, unused without one */
	long ret = syscall(SYS_ppoll, fds, n, timeout_ns < 0 ? NULL : &ts, NULL, 8);

	return ret < 0 ? -errno : ret;
}

/* What is left of timeout_ns, which ends at deadline_ns; <= 0 stays as it is: no wait, no limit. */
static inline int64_t soda_time_left(uint64_t deadline_ns, int64_t timeout_ns)
{
	uint64_t now;

	if (timeout_ns <= 0)
		return timeout_ns;
	now = soda_now_ns();
	return now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
}

#endif
