/* SPDX-License-Identifier: BSD-3-Clause */
/* The page operations on userfaultfd, and how it is opened. */
#ifndef SODA_HOST_UFFD_H
#define SODA_HOST_UFFD_H

#include <stdbool.h>
#include <stddef.h>

#include "host_agent/core/page_ops.h"
#include "transport/api/transport.h"

/* The kernel's. */
extern const struct soda_page_ops soda_uffd_page_ops;

/*
 * Open a userfaultfd and probe.  sigbus: faults raise SIGBUS (inline mode).
 * plain: use only what Linux 5.7 has.  kernel_faults: wanted (handler mode), and
 * if it is not to be had, user_only says so.
 * -EPERM, -ENOSYS, -ENOTSUP (no write-protect); why: reason and remedy.
 */
int soda_uffd_open(bool sigbus, bool plain, bool kernel_faults, struct soda_uffd_info *info,
		   struct soda_why *why);
int soda_uffd_register(void *addr, size_t bytes);
/* A shared mapping of a memfd, that could be written to: for soda_page_ops.map and copy. */
int soda_uffd_register_shared(void *addr, size_t bytes);
void soda_uffd_close(void);

/*
 * The holder (holder.c): a thread with a table of descriptors of its own, in which the userfaultfd
 * is the only one.  When the last descriptor of a userfaultfd goes the kernel takes its faults
 * away, without a word: a missing page is then a page of zeros.  A program can close ours past the
 * C library (close_range(2) by number, say); with this thread the faults stay, the next one finds
 * that the descriptor is gone, and ends the process (soda_fds_end).
 *
 * Start it, and wait until it has the descriptor.  0; an error of soda_helper_start(), or the
 * kernel's: then a program that closes the descriptor is noticed by the keeper only.
 */
int soda_holder_start(int fd);
/* Before the descriptor is closed.  Nothing where it does not run, as in the child of a fork. */
void soda_holder_stop(void);

#endif
