/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum { FLOOR_MAX = 2048, LOOKS = 3 };

/* By number, the file that it was opened as; 0: not the library's. */
static _Atomic uint64_t files[SODA_FDS_MAX];
/* All that is noted lies below. */
static _Atomic int end;
static _Atomic int lowest; /* numbers to move to; 0: soda_fds_start() was not called */
/*
 * In memory that the child of a fork has as zeros: not 0 in the process whose they are, and in a
 * child of vfork(2), which shares its memory, and whose faults need them as well.
 */
static _Atomic uint32_t *_Atomic here;

/* The file behind a number, never 0 where there is one; 0: there is none. */
static uint64_t file_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return 0;
	return ((uint64_t)st.st_dev << 40 ^ (uint64_t)st.st_ino << 1) | 1;
}

/* NULL where the kernel cannot: then a child spares numbers that are not its own. */
static _Atomic uint32_t *wiped_on_fork(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, bytes, MADV_WIPEONFORK)) {
		munmap(p, bytes);
		return NULL;
	}
	return p;
}

static bool are_here(void)
{
	_Atomic uint32_t *word = atomic_load_explicit(&here, memory_order_relaxed);

	return !word || atomic_load_explicit(word, memory_order_relaxed);
}

void soda_fds_start(void)
{
	struct rlimit limit;
	int half = FLOOR_MAX;

	if (atomic_load(&lowest))
		return;
	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur / 2 < FLOOR_MAX)
		half = limit.rlim_cur > 1 ? (int)(limit.rlim_cur / 2) : 1;
	atomic_store(&here, wiped_on_fork());
	if (here)
		atomic_store(here, 1);
	atomic_store(&lowest, half);
}

static void note(int fd, uint64_t file)
{
	int seen = atomic_load(&end);

	if (fd >= SODA_FDS_MAX)
		return;
	atomic_store(&files[fd], file);
	while (seen <= fd && !atomic_compare_exchange_weak(&end, &seen, fd + 1))
		;
}

int soda_fd_own(int fd)
{
	int saved = errno, from = atomic_load(&lowest), moved;

	if (fd < 0 || !from)
		return fd;
	moved = fd < from ? fcntl(fd, F_DUPFD_CLOEXEC, from) : -1;
	if (moved >= 0)
		syscall(SYS_close, fd);
	else
		moved = fd;
	note(moved, file_of(moved));
	errno = saved;
	return moved;
}

void soda_fd_close(int fd)
{
	int saved = errno;
	uint64_t file = fd >= 0 && fd < SODA_FDS_MAX ? atomic_exchange(&files[fd], 0) : 0;

	if (fd < 0)
		return;
	if (!atomic_load(&lowest))
		close(fd);
	else if (!file || file == file_of(fd))
		syscall(SYS_close, fd);
	errno = saved;
}

bool soda_fd_is_own(int fd)
{
	return fd >= 0 && fd < SODA_FDS_MAX &&
	       atomic_load_explicit(&files[fd], memory_order_relaxed) && are_here();
}

int soda_fd_next_own(int fd)
{
	int until = atomic_load(&end);

	if (fd >= until || !are_here())
		return SODA_FDS_MAX;
	for (fd = fd < 0 ? 0 : fd; fd < until; fd++)
		if (atomic_load_explicit(&files[fd], memory_order_relaxed))
			return fd;
	return SODA_FDS_MAX;
}

/* The library itself may close it, and get the number again, at the same time: look more often. */
static bool is_lost(int fd)
{
	uint64_t file = atomic_load(&files[fd]);

	for (int i = 0; i < LOOKS; i++)
		if (!file || file_of(fd) == file || atomic_load(&files[fd]) != file)
			return false;
	return true;
}

int soda_fd_lost(void)
{
	int saved = errno, fd = soda_fd_next_own(0);

	while (fd < SODA_FDS_MAX && !is_lost(fd))
		fd = soda_fd_next_own(fd + 1);
	errno = saved;
	return fd < SODA_FDS_MAX ? fd : -1;
}

void soda_fds_end(int fd)
{
	/* Another thread that finds it at the same time leaves the first one the time to say so. */
	const struct timespec moment = { .tv_sec = 1 };
	static _Atomic bool said;

	if (atomic_exchange(&said, true))
		syscall(SYS_nanosleep, &moment, NULL);
	else
		soda_log_error(
			"descriptor %d, which fabric memory needs, was closed or replaced by "
			"the program: ending it rather than read zeros; a program must not "
			"close descriptors that it has not opened",
			fd);
	abort();
}

void soda_fds_check(void)
{
	int fd = soda_fd_lost();

	if (fd >= 0)
		soda_fds_end(fd);
}

void soda_fds_forget(void)
{
	for (int fd = 0, until = atomic_load(&end); fd < until; fd++)
		atomic_store_explicit(&files[fd], 0, memory_order_relaxed);
	if (here)
		atomic_store(here, 1);
}
