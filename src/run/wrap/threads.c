/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls for threads' affinity, scheduling, names, and users. */
#include "run/wrap/near.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

RUN_NEAR(int, sched_getaffinity, (pid_t pid, size_t n, cpu_set_t *p), (pid, n, p), FAM(p),
	 OUT_BYTES(p, n))
RUN_NEAR(int, sched_setaffinity, (pid_t pid, size_t n, const cpu_set_t *p), (pid, n, p), FAM(p),
	 IN_BYTES(p, n))
RUN_NEAR(int, pthread_getaffinity_np, (pthread_t thread, size_t n, cpu_set_t *p), (thread, n, p),
	 FAM(p), OUT_BYTES(p, n))
RUN_NEAR(int, pthread_setaffinity_np, (pthread_t thread, size_t n, const cpu_set_t *p),
	 (thread, n, p), FAM(p), IN_BYTES(p, n))
FILLS(int, sched_getparam, (pid_t pid, struct sched_param *p), (pid, p))
READS(int, sched_setparam, (pid_t pid, const struct sched_param *p), (pid, p))
READS(int, sched_setscheduler, (pid_t pid, int policy, const struct sched_param *p),
      (pid, policy, p))
READS(int, pthread_setschedparam, (pthread_t thread, int policy, const struct sched_param *p),
      (thread, policy, p))
FILLS(int, sched_rr_get_interval, (pid_t pid, struct timespec *p), (pid, p))
RUN_NEAR(int, pthread_setname_np, (pthread_t thread, const char *p), (thread, p), FAM(p), STRING(p))
RUN_NEAR(int, pthread_getname_np, (pthread_t thread, char *p, size_t n), (thread, p, n), FAM(p),
	 OUT_BYTES(p, n))
RUN_NEAR(int, getgroups, (int n, gid_t *p), (n, p), FAM(p),
	 OUT_BYTES(p, n > 0 ? (size_t)n * sizeof(*p) : 0))
RUN_NEAR(int, setgroups, (size_t n, const gid_t *p), (n, p), FAM(p),
	 IN_BYTES(p, n < 1 << 20 ? n * sizeof(*p) : 0))
RUN_NEAR(int, getresuid, (uid_t * p, uid_t *q, uid_t *r), (p, q, r), FAM(p) || FAM(q) || FAM(r),
	 OUT(p);
	 OUT(q); OUT(r))
RUN_NEAR(int, getresgid, (gid_t * p, gid_t *q, gid_t *r), (p, q, r), FAM(p) || FAM(q) || FAM(r),
	 OUT(p);
	 OUT(q); OUT(r))
