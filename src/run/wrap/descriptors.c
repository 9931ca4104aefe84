/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * close, dup2 and what else takes a descriptor from a program by its number: the runtime's are
 * spared, as if they were not open.  A descriptor of the runtime cannot give way: other threads
 * are using its number.  dup2() onto one fails, therefore, with a line in the log; they lie where
 * programs put none of their own (base/own_fd.h).
 */
#include "run/core/run.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"

static int (*next_close)(int);
static int (*next_dup2)(int, int);
static int (*next_dup3)(int, int, int);
static int (*next_close_range)(unsigned, unsigned, int);

/* Now, because signal handlers and the children of vfork(2) call them. */
__attribute__((constructor)) static void find_all(void)
{
	RUN_NEXT(next_close, "close");
	RUN_NEXT(next_dup2, "dup2");
	RUN_NEXT(next_dup3, "dup3");
	RUN_NEXT(next_close_range, "close_range");
}

static bool spared(int fd, const void *caller)
{
	return soda_fd_is_own(fd) && !run_is_ours(caller);
}

RUN_API int close(int fd)
{
	if (spared(fd, RUN_CALLER)) {
		errno = EBADF;
		return -1;
	}
	return RUN_NEXT(next_close, "close")(fd);
}

static int refuse(const char *name, int fd)
{
	soda_log_warning("%s() onto descriptor %d fails: it is one that fabric memory needs", name,
			 fd);
	errno = EBADF;
	return -1;
}

RUN_API int dup2(int from, int to)
{
	if (spared(to, RUN_CALLER))
		return refuse("dup2", to);
	return RUN_NEXT(next_dup2, "dup2")(from, to);
}

RUN_API int dup3(int from, int to, int flags)
{
	if (spared(to, RUN_CALLER))
		return refuse("dup3", to);
	return RUN_NEXT(next_dup3, "dup3")(from, to, flags);
}

/* The ranges between those of the runtime. 0, or -1 with errno of the first that failed. */
static int close_between(uint64_t from, uint64_t to, int flags)
{
	int ret = 0;

	if (!RUN_NEXT(next_close_range, "close_range")) {
		errno = ENOSYS;
		return -1;
	}
	while (from <= to && !ret) {
		uint64_t own =
			from < SODA_FDS_MAX ? (uint64_t)soda_fd_next_own((int)from) : SODA_FDS_MAX;
		uint64_t until = own < SODA_FDS_MAX && own <= to ? own : to + 1;

		if (until > from)
			ret = next_close_range((unsigned)from, (unsigned)until - 1, flags);
		from = until + 1;
	}
	return ret;
}

RUN_API int close_range(unsigned from, unsigned to, int flags)
{
	if (from <= to)
		return close_between(from, to, flags);
	errno = EINVAL;
	return -1;
}

RUN_API void closefrom(int from)
{
	int saved = errno;
	struct rlimit limit;

	from = from < 0 ? 0 : from;
	/* before Linux 5.9, or where it is forbidden, one after the other */
	if (close_between((unsigned)from, UINT32_MAX, 0) && !getrlimit(RLIMIT_NOFILE, &limit))
		for (rlim_t fd = (rlim_t)from; fd < limit.rlim_cur && fd < INT32_MAX; fd++)
			if (!soda_fd_is_own((int)fd))
				RUN_NEXT(next_close, "close")((int)fd);
	errno = saved;
}
