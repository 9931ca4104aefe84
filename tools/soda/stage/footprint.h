/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory processes hold, as the kernel counts it: nothing that the processes say about
 * themselves is taken.
 *
 *   proportional sets   /proc/PID/smaps_rollup: pages that several processes have mapped count for
 *                       each of them by its part, so that sums over processes are true
 *   memfds              the blocks that tmpfs has allocated to files that a process has open and
 *                       that have no name in any folder, mapped or not
 *
 * A page of a memfd that programs have mapped is in both: in the shared part of their sets, and in
 * the memfd's blocks.  Who adds them up takes the anonymous part and the blocks.
 *
 * The shared parts of several processes cannot be added up while pages come and go: a page that is
 * taken from the one after a look at it, and its room given to a page that is mapped by the other
 * before the look at that, is counted twice, and a look takes as long as a walk over all of a
 * process's page tables.  A memfd's blocks are one number of the kernel's.
 *
 * Needs the right to trace the process: one of the same user's, or any for root.
 */
#ifndef SODA_TOOLS_FOOTPRINT_H
#define SODA_TOOLS_FOOTPRINT_H

#include <stdint.h>
#include <sys/types.h>

struct soda_footprint {
	uint64_t anon_bytes;  /* Pss_Anon */
	uint64_t shmem_bytes; /* Pss_Shmem */
};

/* 0; -ENODATA: the kernel does not split the set (before Linux 5.4); errors of reading. */
int soda_footprint_read(pid_t pid, struct soda_footprint *out);
/*
 * The same without the memfds whose name, as given to memfd_create(2), begins with `name`: for
 * those the caller takes soda_footprint_memfds().
 */
int soda_footprint_beside(pid_t pid, const char *name, struct soda_footprint *out);
/*
 * The blocks of all memfds of the process whose name, as given to memfd_create(2), begins with
 * `name`.  0, or an error of reading.
 */
int soda_footprint_memfds(pid_t pid, const char *name, uint64_t *bytes_p);

#endif
