/* SPDX-License-Identifier: BSD-3-Clause */
/* poll, epoll_wait and the like, whose arrays may be in fabric memory: through a bounce buffer. */
#include "run/core/run.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

static int (*next_poll)(struct pollfd *, nfds_t, int);
static int (*next_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
static int (*next_epoll_wait)(int, struct epoll_event *, int, int);
static int (*next_epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
static int (*next_epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *,
				const sigset_t *);
static int (*next_epoll_ctl)(int, int, int, struct epoll_event *);

/* A local copy of the caller's array. NULL: no memory, or the size overflows; errno is set. */
static void *begin(const void *array, size_t item, size_t n, size_t *size_p)
{
	size_t bytes;
	void *local;

	if (__builtin_mul_overflow(item, n, &bytes) || bytes > PTRDIFF_MAX) {
		errno = EINVAL;
		return NULL;
	}
	local = run_bounce_get(bytes, size_p);
	if (local)
		memcpy(local, array, bytes);
	else
		errno = ENOMEM;
	return local;
}

/* Copy the first n items back, which the kernel may have changed, and free the copy. */
static int end(void *array, size_t item, size_t n, void *local, size_t size, int result)
{
	int saved = errno;

	memcpy(array, local, item * n);
	run_bounce_put(local, size);
	errno = saved;
	return result;
}

static int poll_by(struct pollfd *fds, nfds_t n, int timeout_ms, const struct timespec *timeout,
		   const sigset_t *mask, bool by_ppoll, const void *caller)
{
	struct pollfd *local = fds;
	sigset_t open;
	size_t size;
	int ret;

	mask = run_open_mask(mask, &open);
	if (run_handed(fds, caller) && !(local = begin(fds, sizeof(*fds), n, &size)))
		return -1;
	ret = by_ppoll ? RUN_NEXT(next_ppoll, "ppoll")(local, n, timeout, mask)
		       : RUN_NEXT(next_poll, "poll")(local, n, timeout_ms);
	return local == fds ? ret : end(fds, sizeof(*fds), ret < 0 ? 0 : n, local, size, ret);
}

RUN_API int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	return poll_by(fds, n, timeout_ms, NULL, NULL, false, RUN_CALLER);
}

RUN_API int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		  const sigset_t *mask)
{
	return poll_by(fds, n, 0, timeout, mask, true, RUN_CALLER);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
		size_t room);

RUN_API int __poll_chk(struct pollfd *fds, nfds_t n, int timeout_ms, size_t room)
{
	if (room / sizeof(*fds) < n)
		__chk_fail();
	return poll_by(fds, n, timeout_ms, NULL, NULL, false, RUN_CALLER);
}

RUN_API int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
			const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < n)
		__chk_fail();
	return poll_by(fds, n, 0, timeout, mask, true, RUN_CALLER);
}

/* A local array of events, which the kernel only writes. */
static struct epoll_event *events_begin(int n, size_t *size_p)
{
	struct epoll_event *local;

	if (n <= 0) {
		errno = EINVAL;
		return NULL;
	}
	local = run_bounce_get((size_t)n * sizeof(*local), size_p);
	if (!local)
		errno = ENOMEM;
	return local;
}

static int events_end(struct epoll_event *events, struct epoll_event *local, size_t size, int ret)
{
	return end(events, sizeof(*events), ret > 0 ? (size_t)ret : 0, local, size, ret);
}

RUN_API int epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms)
{
	struct epoll_event *local;
	size_t size;

	if (!run_handed(events, RUN_CALLER))
		return RUN_NEXT(next_epoll_wait, "epoll_wait")(fd, events, n, timeout_ms);
	local = events_begin(n, &size);
	if (!local)
		return -1;
	return events_end(events, local, size,
			  RUN_NEXT(next_epoll_wait, "epoll_wait")(fd, local, n, timeout_ms));
}

RUN_API int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout_ms,
			const sigset_t *mask)
{
	struct epoll_event *local;
	size_t size;
	sigset_t open;

	mask = run_open_mask(mask, &open);
	if (!run_handed(events, RUN_CALLER))
		return RUN_NEXT(next_epoll_pwait, "epoll_pwait")(fd, events, n, timeout_ms, mask);
	local = events_begin(n, &size);
	if (!local)
		return -1;
	return events_end(
		events, local, size,
		RUN_NEXT(next_epoll_pwait, "epoll_pwait")(fd, local, n, timeout_ms, mask));
}

RUN_API int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
			 const sigset_t *mask)
{
	struct epoll_event *local;
	struct timespec given;
	size_t size;
	sigset_t open;

	mask = run_open_mask(mask, &open);
	if (timeout && run_handed(timeout, RUN_CALLER)) {
		given = *timeout;
		timeout = &given;
	}
	if (!RUN_NEXT(next_epoll_pwait2, "epoll_pwait2")) {
		errno = ENOSYS;
		return -1;
	}
	if (!run_handed(events, RUN_CALLER))
		return next_epoll_pwait2(fd, events, n, timeout, mask);
	local = events_begin(n, &size);
	if (!local)
		return -1;
	return events_end(events, local, size, next_epoll_pwait2(fd, local, n, timeout, mask));
}

RUN_API int epoll_ctl(int fd, int op, int target, struct epoll_event *event)
{
	struct epoll_event local;

	if (!run_handed(event, RUN_CALLER))
		return RUN_NEXT(next_epoll_ctl, "epoll_ctl")(fd, op, target, event);
	local = *event;
	return RUN_NEXT(next_epoll_ctl, "epoll_ctl")(fd, op, target, &local);
}
