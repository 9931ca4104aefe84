/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A benchmark that leaves nothing behind.  The work is done in a child; this process only waits,
 * and cleans up when the child has ended, however it ended, or when a signal wants an end:
 * links and cgroups by name (link.h, cgroup.h), and a directory.  All that the
 * child has started ends with it.
 */
#ifndef SODA_BENCH_GUARD_H
#define SODA_BENCH_GUARD_H

#include <sys/types.h>

struct soda_bench_guarded {
	pid_t owner;  /* what links and cgroups are named after */
	char dir[64]; /* for files; removed with all that is in it */
};

struct soda_bench_work {
	/* In a child; its return value is the exit code. */
	int (*run)(void *arg, const struct soda_bench_guarded *guarded);
	/* In this process, once all that the child had started has ended; may be NULL. */
	void (*clean)(void *arg, const struct soda_bench_guarded *guarded);
};

/* Do the work; the exit code, 128 + signal after one. */
int soda_bench_guard_run(const struct soda_bench_work *work, void *arg);

#endif
