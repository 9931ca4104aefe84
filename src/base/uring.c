/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/uring.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>

/* Where ends of rings leave word for beginnings. */
static char rings;
#define AFTER_EARLIER_ENDS() __tsan_acquire(&rings)
#define BEFORE_LATER_BEGINNINGS() __tsan_release(&rings)
#else
#define AFTER_EARLIER_ENDS() ((void)0)
#define BEFORE_LATER_BEGINNINGS() ((void)0)
#endif

int soda_uring_begin(struct io_uring *ring, unsigned entries, struct io_uring_params *params)
{
	int ret = io_uring_queue_init_params(entries, ring, params);

	AFTER_EARLIER_ENDS();
	return ret;
}

void soda_uring_end(struct io_uring *ring)
{
	BEFORE_LATER_BEGINNINGS();
	io_uring_queue_exit(ring);
}

/* io_uring_register(2), for headers that do not have it yet. */
enum { SYNC_CANCEL = 24, CANCEL_ANY = 1u << 2, CANCEL_S = 5 };

int soda_uring_cancel_all(struct io_uring *ring)
{
	struct {
		uint64_t addr;
		int32_t fd;
		uint32_t flags;
		int64_t seconds, ns;
		uint64_t reserved[4];
	} all = { .flags = CANCEL_ANY, .seconds = CANCEL_S };

	if (syscall(SYS_io_uring_register, ring->ring_fd, SYNC_CANCEL, &all, 1) < 0 &&
	    errno != ENOENT)
		return -errno;
	return 0;
}
