/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel says that a process has in memory. */
#ifndef SODA_TEST_SMAPS_H
#define SODA_TEST_SMAPS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Resident bytes of the mappings that touch [from, to).  Exact only while the
 * process stands still: pages that move during the walk count twice or not at all.
 */
size_t smaps_rss(pid_t pid, uintptr_t from, uintptr_t to);
/* Resident bytes of the mappings whose line in smaps contains the name. */
size_t smaps_mapped(pid_t pid, const char *name);
/* Anonymous memory of the whole process. */
size_t smaps_anonymous(pid_t pid);

#endif
