/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every call to the kernel that maps, protects or drops pages of FAM, behind one
 * table, so that the page state machine, replacement and eviction run in unit
 * tests against fakes.  All of it is async-signal-safe and keeps errno.
 * Errors are negative errno.
 */
#ifndef SODA_HOST_PAGE_OPS_H
#define SODA_HOST_PAGE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct soda_page_ops {
	/*
	 * Fill missing pages with a copy of src, write-protected or not, atomically a page;
	 * wakes the threads that wait for them.  Pages that are there already are left.
	 * 0, -ENOMEM, -ESRCH (the process is going away).
	 */
	int (*copy)(void *dst, const void *src, size_t bytes, bool protect);
	/* Write-protect present pages, or undo it and wake. */
	int (*protect)(void *addr, size_t bytes, bool on);
	/*
	 * Drop the pages of up to 64 ranges, also those that the program has locked (mlock); where
	 * nothing is mapped there is nothing to drop.  0, or the error of the page where it came
	 * to an end.  *dropped_p: so many bytes, counted through the ranges, are gone; all that
	 * follows is as it was.
	 */
	int (*drop)(const struct iovec *ranges, int n, size_t *dropped_p);
	/* Wake threads that wait for a page of the range to try again (handler mode). */
	int (*wake)(void *addr, size_t bytes);
	/*
	 * Make a touch of the missing pages SIGBUS for good; who waits for one is woken by `wake`
	 * alone.  -ENOTSUP before Linux 6.6; -EEXIST: one is there, or has a mark of the kernel's.
	 */
	int (*poison)(void *addr, size_t bytes);
	/*
	 * Map missing pages of a shared mapping (soda_uffd_register_shared) to those that its memfd
	 * has, and wake the threads that wait for them.  Pages that are mapped already stay.  0;
	 * -EFAULT: the memfd lacks one, those before it are mapped.
	 */
	int (*map)(void *addr, size_t bytes);
};

/* What the kernel was found to have; set by soda_uffd_open, then constant. */
struct soda_uffd_info {
	int fd;
	bool user_only;	 /* faults of system calls are not served */
	bool batch_drop; /* process_madvise on oneself */
	bool poison;
	bool thread_id;	 /* messages name the thread */
	bool minor;	 /* what a memfd has can be mapped: soda_page_ops.map */
	const char *how; /* "userfaultfd(2)", "/dev/userfaultfd" */
};

#endif
