/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A benchmark that leaves nothing behind.  The work is done in a child; this process only waits,
 * and cleans up when the child has ended, however it ended, or when a signal wants an end:
 * links and cgroups by name (bench_link.h, bench_cgroup.h), and a directory.  All that the
 * child has started ends with it.
 */
#ifndef SODA_BENCH_GUARD_H
#define SODA_BENCH_GUARD_H

#include <sys/types.h>

struct soda_bench_guarded {
	pid_t owner;  /* what links and cgroups are named after */
	char dir[64]; /* for files; removed with all that is in it */
};

/* Run work(arg, guarded) in a child; its return value is the exit code, 128 + signal after one. */
int soda_bench_guard_run(int (*work)(void *arg, const struct soda_bench_guarded *guarded),
			 void *arg);

#endif
