/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cap on the memory of processes, page cache included: a memory cgroup of version 1 or 2,
 * whichever the machine has, without swap.
 */
#ifndef SODA_EVAL_CAP_H
#define SODA_EVAL_CAP_H

#include <stdint.h>
#include <sys/types.h>

struct soda_eval_cap {
	int version;   /* 1 or 2; 0: none */
	char dir[700]; /* the group */
};

/*
 * Make one named after `owner`.  0; -ENOENT: no memory controller here; -EACCES and the like.
 * No message.
 */
int soda_eval_cap_open(uint64_t bytes, pid_t owner, struct soda_eval_cap *cap_p);
/* Put the calling process into it. 0 or negative errno. */
int soda_eval_cap_enter(const struct soda_eval_cap *cap);
/* How many processes of it were killed for want of memory. */
uint64_t soda_eval_cap_oom_kills(const struct soda_eval_cap *cap);
/* Remove it, for which it waits until its processes have gone. */
void soda_eval_cap_close(struct soda_eval_cap *cap);

/* Remove that of this owner, if it is there. */
void soda_eval_cap_remove(pid_t owner);
/* Remove those of processes that are gone. */
void soda_eval_cap_sweep(void);

#endif
