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

#endif
