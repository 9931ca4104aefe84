/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the node's store: memfds of the kernel's that the agent fills and punches, and that
 * others map.  What happens to them goes through here, a page at a time, so that others see halves,
 * and a system that lacks memory may refuse.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fibers.h"
#include "net.h"
#include "nodes.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { PAGE = 4096, FILES = 256 };

static uint64_t files[FILES]; /* by their numbers in the kernel */
static unsigned files_n;

uint64_t sim_memfd_file(int fd)
{
	struct stat st;

	if (!files_n || fd < 0 || fstat(fd, &st))
		return 0;
	for (unsigned i = 0; i < files_n; i++)
		if (files[i] == st.st_ino)
			return st.st_ino;
	return 0;
}

int sim_memfd_create(const char *name, unsigned flags)
{
	struct stat st;
	int fd;

	if (sim_lacks_descriptor()) {
		errno = EMFILE;
		return -1;
	}
	fd = memfd_create(name, flags);
	if (fd >= 0 && !strcmp(name, "soda-store") && files_n < FILES && !fstat(fd, &st))
		files[files_n++] = st.st_ino;
	return fd;
}

/* The system has none for it; which of both it says depends on who limits it. */
static bool no_memory(void)
{
	errno = sim_chance(50) ? ENOMEM : ENOSPC;
	return sim_lacks_memory();
}

/* Whole pages, or fewer than were asked for. */
ssize_t sim_memfd_write(int fd, const void *data, size_t bytes, off_t at)
{
	size_t done = 0;

	if (!sim_memfd_file(fd))
		return pwrite(fd, data, bytes, at);
	sim_point();
	if (sim_chance(2)) {
		errno = EINTR;
		return -1;
	}
	for (; done < bytes; done += PAGE) {
		sim_point();
		if (no_memory())
			return done ? (ssize_t)done : -1;
		if (done && sim_chance(3))
			break;
		if (pwrite(fd, (const char *)data + done, PAGE, at + (off_t)done) != PAGE)
			sim_fail("a page of the store cannot be written: %s", strerror(errno));
		sim_spend(PAGE / 4);
	}
	return (ssize_t)done;
}

int sim_memfd_punch(int fd, int mode, off_t at, off_t bytes)
{
	uint64_t file = sim_memfd_file(fd);
	int ret;

	if (!file)
		return fallocate(fd, mode, at, bytes);
	sim_point();
	if (sim_chance(20) && no_memory())
		return -1;
	ret = fallocate(fd, mode, at, bytes);
	sim_host_punched(file, (uint64_t)at, (uint64_t)bytes);
	sim_spend((uint64_t)bytes / 8);
	sim_point();
	return ret;
}

bool sim_memfd_has(const void *addr)
{
	unsigned char has = 0;

	return !mincore((void *)(uintptr_t)addr, PAGE, &has) && has & 1;
}
