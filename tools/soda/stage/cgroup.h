/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caps on the memory or the CPU time of processes: cgroups of version 1 or 2, whichever has the
 * controller here.  A group bears its owner's number, so that it can be found and removed when
 * the owner has died.  Nothing here prints.
 */
#ifndef SODA_TOOLS_CGROUP_H
#define SODA_TOOLS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct soda_cgroup {
	int version;   /* 1 or 2; 0: none */
	char dir[700]; /* the group */
};

/*
 * A group that gets pct percent of one processor.  0; -ENOENT: no cpu controller here;
 * -EACCES and the like: it needs root.
 */
int soda_cgroup_open_cpu(uint32_t pct, pid_t owner, struct soda_cgroup *group_p);
/*
 * A group that has `bytes` of memory, page cache included; swap: and as much of that as there is,
 * else none.  Below our own group, beside it, or at the top.  Errors as above.
 */
int soda_cgroup_open_memory(uint64_t bytes, bool swap, pid_t owner, struct soda_cgroup *group_p);
/* Put the calling process into it. 0 or negative errno. */
int soda_cgroup_enter(const struct soda_cgroup *group);
/* How many processes of it were killed for want of memory. */
uint64_t soda_cgroup_oom_kills(const struct soda_cgroup *group);
/* Remove it, for which it waits until its processes have gone. */
void soda_cgroup_close(struct soda_cgroup *group);

/* For tests: what to take for /proc/self. The text stays the caller's. */
void soda_cgroup_look_in(const char *folder);

/* Remove those of this owner. */
void soda_cgroup_remove(pid_t owner);
/* Remove those of processes that are gone. */
void soda_cgroup_sweep(void);

#endif
