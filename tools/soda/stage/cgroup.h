/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caps on the memory or the CPU time of processes: cgroups of version 1 or 2, whichever has the
 * controller here.  A group's name contains the number of its owner, a process, so that the group
 * can be found and removed when that process has died.  Nothing here prints.
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
 * A group that has `bytes` of memory, page cache included, and all swap or none.  It is made below
 * this process's group, or beside that, or at the top.  Errors as above.
 */
int soda_cgroup_open_memory(uint64_t bytes, bool swap, pid_t owner, struct soda_cgroup *group_p);
/* Put the calling process into it. 0 or negative errno. */
int soda_cgroup_enter(const struct soda_cgroup *group);
/* How many of the group's processes the kernel has killed because the group's memory was full. */
uint64_t soda_cgroup_oom_kills(const struct soda_cgroup *group);
/* Wait until the group's processes have gone, and remove the group. */
void soda_cgroup_close(struct soda_cgroup *group);

/* For tests: read this folder in the place of /proc/self. The text must stay. */
void soda_cgroup_look_in(const char *folder);

/* Remove the groups of this owner. */
void soda_cgroup_remove(pid_t owner);
/* Remove the groups whose owners have ended. */
void soda_cgroup_sweep(void);

#endif
