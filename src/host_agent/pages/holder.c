/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/uffd.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/own_fd.h"
#include "base/wait.h"
#include "host_agent/core/helper.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
enum { UNSHARE = 1 << 1 /* CLOSE_RANGE_UNSHARE */ };
enum { STARTING, HOLDS, REFUSED, STOPS };

static struct {
	pthread_t thread;
	pid_t pid; /* the process that has started it */
	int fd;
	int err;		/* where it is REFUSED */
	_Atomic uint32_t state; /* futex */
} holder;

static void close_all(unsigned from, unsigned to)
{
	if (from > to || !syscall(SYS_close_range, from, to, 0))
		return;
	for (unsigned fd = from; fd <= to && fd < SODA_FDS_MAX; fd++)
		syscall(SYS_close, fd);
}

/*
 * Leave the process's table of descriptors, with a copy of it in which there is ours alone: the
 * program's pipes and locks must end with the program's descriptors.  By close_range(2), Linux
 * 5.9, which filters of system calls let through more often.
 */
static int leave_with(unsigned fd)
{
	if (syscall(SYS_close_range, fd + 1, ~0u, UNSHARE) && unshare(CLONE_FILES))
		return -errno;
	close_all(fd + 1, ~0u);
	if (fd)
		close_all(0, fd - 1);
	return 0;
}

static void become(uint32_t state)
{
	atomic_store(&holder.state, state);
	soda_futex_wake(&holder.state, INT32_MAX);
}

static void *hold(void *arg)
{
	holder.err = leave_with((unsigned)holder.fd);
	become(holder.err ? REFUSED : HOLDS);
	while (atomic_load(&holder.state) == HOLDS)
		soda_futex_wait(&holder.state, HOLDS, -1);
	return NULL;
}

int soda_holder_start(int fd)
{
	int ret;

	holder.fd = fd;
	atomic_store(&holder.state, STARTING);
	ret = soda_helper_start(&holder.thread, "soda-holder", hold, NULL);
	if (ret)
		return ret;
	holder.pid = getpid();
	while (atomic_load(&holder.state) == STARTING)
		soda_futex_wait(&holder.state, STARTING, -1);
	return holder.err;
}

void soda_holder_stop(void)
{
	if (holder.pid != getpid())
		return;
	become(STOPS);
	soda_wait_join(holder.thread, "the thread that holds the userfaultfd to end");
	holder.pid = 0;
}
