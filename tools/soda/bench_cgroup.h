/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cap on the CPU time of processes, by a cgroup of version 1 or 2, whichever has the
 * cpu controller here.  Needs the right to make one: root.
 */
#ifndef SODA_BENCH_CGROUP_H
#define SODA_BENCH_CGROUP_H

#include <stdint.h>
#include <sys/types.h>

struct soda_bench_cgroup {
	char path[512]; /* "": none */
};

/*
 * Make one named after `owner` that gets pct percent of one processor.  0, or negative
 * errno after a message.
 */
int soda_bench_cgroup_create(uint32_t pct, pid_t owner, struct soda_bench_cgroup *group);
/* Put the calling process into it: for soda_bench_daemon_start, arg is the group. */
int soda_bench_cgroup_enter(void *arg);

/* Remove that of this owner once it is empty, for which it waits a while. */
void soda_bench_cgroup_remove(pid_t owner);
/* Remove those of processes that are gone. */
void soda_bench_cgroup_sweep(void);

#endif
