/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A benchmark that leaves nothing behind.  A child does the work; this process only waits for the
 * child's end, or for a signal that ends the benchmark, and then cleans up: it waits until all
 * processes that the child has started have ended with it, and removes the links and cgroups that
 * bear the owner's number (link.h, cgroup.h) and the folder.
 */
#ifndef SODA_BENCH_GUARD_H
#define SODA_BENCH_GUARD_H

#include <sys/types.h>

struct soda_bench_guarded {
	pid_t owner;  /* the names of links and cgroups contain this number */
	char dir[64]; /* a folder for files, which is removed with all of them */
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
