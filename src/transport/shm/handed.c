/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/handed.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "wire/wire.h"

/* A client whose memory map changes all the time is not waited for. */
enum { FRUITLESS_MAX = 16 };

/*
 * The kernel's name first: an ioctl on a descriptor of another kind might do
 * anything, or block.  No path can look like this one, as paths begin with '/'.
 */
bool soda_handed_is_uffd(int fd)
{
	static const char kind[] = "anon_inode:[userfaultfd]";
	struct uffdio_range any = { .start = 1 << 20, .len = SODA_WIRE_PAGE };
	char link[32], name[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name));
	if (n != (ssize_t)sizeof(kind) - 1 || memcmp(name, kind, sizeof(kind) - 1) != 0)
		return false;
	/* waking nobody is refused before the handshake only */
	return ioctl(fd, UFFDIO_WAKE, &any) == 0;
}

/* One piece. 0 and *done_p, which may be 0: try again; or negative errno. */
static int piece(int fd, uint64_t addr, const uint8_t *src, uint32_t bytes, bool protect,
		 uint32_t *done_p)
{
	struct uffdio_copy c = { .dst = addr,
				 .src = (uintptr_t)src,
				 .len = bytes,
				 .mode = protect ? UFFDIO_COPY_MODE_WP : 0 };
	int ret = ioctl(fd, UFFDIO_COPY, &c) < 0 ? -errno : 0;

	*done_p = 0;
	if (ret == 0)
		*done_p = bytes;
	else if (c.copy > 0) /* cut short; a signed count */
		*done_p = c.copy < (int64_t)bytes ? (uint32_t)c.copy : bytes;
	else if (ret == -EEXIST || c.copy == -EEXIST)
		*done_p = SODA_WIRE_PAGE; /* the first page is there: skip it */
	return *done_p || ret == -EAGAIN ? 0 : ret;
}

int soda_handed_install(int fd, uint64_t addr, const void *src, uint32_t bytes, bool protect)
{
	const uint8_t *from = src;
	int fruitless = 0;

	for (uint32_t at = 0, done; at < bytes; at += done) {
		int ret = piece(fd, addr + at, from + at, bytes - at, protect, &done);

		if (ret < 0)
			return ret;
		fruitless = done ? 0 : fruitless + 1;
		if (fruitless == FRUITLESS_MAX)
			return -EAGAIN;
	}
	return 0;
}
