/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls with small objects that the kernel reads or fills: struct stat and the like, of which a
 * program may have arrays in fabric memory.  Objects that the C library fills in itself
 * (gettimeofday, sigaction) need no wrapper; and clock_gettime has none, because faults themselves
 * call it.
 */
#include "run/wrap/near.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <dirent.h>
#include <grp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#define R restrict

/* Calls with a path that fill an object. */
#define FILLS_OF(name, PARAMS, ARGS)                                                               \
	RUN_NEAR(int, name, PARAMS, ARGS, FAM(path) || FAM(p), STRING(path); OUT(p))

FILLS_OF(stat, (const char *R path, struct stat *R p), (path, p))
FILLS_OF(lstat, (const char *R path, struct stat *R p), (path, p))
FILLS(int, fstat, (int fd, struct stat *p), (fd, p))
FILLS_OF(fstatat, (int dir, const char *R path, struct stat *R p, int flags), (dir, path, p, flags))
FILLS_OF(stat64, (const char *R path, struct stat64 *R p), (path, p))
FILLS_OF(lstat64, (const char *R path, struct stat64 *R p), (path, p))
FILLS(int, fstat64, (int fd, struct stat64 *p), (fd, p))
FILLS_OF(fstatat64, (int dir, const char *R path, struct stat64 *R p, int flags),
	 (dir, path, p, flags))
FILLS_OF(statx, (int dir, const char *R path, int flags, unsigned mask, struct statx *R p),
	 (dir, path, flags, mask, p))
FILLS_OF(statfs, (const char *path, struct statfs *p), (path, p))
FILLS_OF(statfs64, (const char *path, struct statfs64 *p), (path, p))
FILLS(int, fstatfs, (int fd, struct statfs *p), (fd, p))
FILLS(int, fstatfs64, (int fd, struct statfs64 *p), (fd, p))
FILLS_OF(statvfs, (const char *R path, struct statvfs *R p), (path, p))
FILLS_OF(statvfs64, (const char *R path, struct statvfs64 *R p), (path, p))
FILLS_OF(__xstat, (int v, const char *path, struct stat *p), (v, path, p))
FILLS_OF(__lxstat, (int v, const char *path, struct stat *p), (v, path, p))
FILLS(int, __fxstat, (int v, int fd, struct stat *p), (v, fd, p))
FILLS_OF(__fxstatat, (int v, int dir, const char *path, struct stat *p, int flags),
	 (v, dir, path, p, flags))
FILLS_OF(__xstat64, (int v, const char *path, struct stat64 *p), (v, path, p))
FILLS_OF(__lxstat64, (int v, const char *path, struct stat64 *p), (v, path, p))
FILLS(int, __fxstat64, (int v, int fd, struct stat64 *p), (v, fd, p))
FILLS_OF(__fxstatat64, (int v, int dir, const char *path, struct stat64 *p, int flags),
	 (v, dir, path, p, flags))

/* Times, two of them where times are set. */
#define SETS_TIMES(name, PARAMS, ARGS)                                                             \
	RUN_NEAR(int, name, PARAMS, ARGS, FAM(path) || FAM(p), STRING(path);                       \
		 IN_BYTES(p, 2 * sizeof(*p)))

SETS_TIMES(utimensat, (int dir, const char *path, const struct timespec p[2], int flags),
	   (dir, path, p, flags))
RUN_NEAR(int, futimens, (int fd, const struct timespec p[2]), (fd, p), FAM(p),
	 IN_BYTES(p, 2 * sizeof(*p)))
SETS_TIMES(utimes, (const char *path, const struct timeval p[2]), (path, p))
SETS_TIMES(lutimes, (const char *path, const struct timeval p[2]), (path, p))
RUN_NEAR(int, futimes, (int fd, const struct timeval p[2]), (fd, p), FAM(p),
	 IN_BYTES(p, 2 * sizeof(*p)))
RUN_NEAR(int, utime, (const char *path, const struct utimbuf *p), (path, p), FAM(path) || FAM(p),
	 STRING(path);
	 IN(p))
READS(int, clock_settime, (clockid_t clock, const struct timespec *p), (clock, p))
FILLS(clock_t, times, (struct tms * p), (p))
CHANGES(nanosleep, (const struct timespec *p, struct timespec *old), (p, old))
CHANGES(clock_nanosleep,
	(clockid_t clock, int flags, const struct timespec *p, struct timespec *old),
	(clock, flags, p, old))
FILLS(int, getitimer, (__itimer_which_t which, struct itimerval *p), (which, p))
CHANGES(setitimer, (__itimer_which_t which, const struct itimerval *R p, struct itimerval *R old),
	(which, p, old))
READS(int, timer_create, (clockid_t clock, struct sigevent *R p, timer_t *R timer),
      (clock, p, timer))
FILLS(int, clock_getres, (clockid_t clock, struct timespec *p), (clock, p))
FILLS(int, timer_gettime, (timer_t timer, struct itimerspec *p), (timer, p))
CHANGES(timer_settime,
	(timer_t timer, int flags, const struct itimerspec *R p, struct itimerspec *R old),
	(timer, flags, p, old))
FILLS(int, timerfd_gettime, (int fd, struct itimerspec *p), (fd, p))
CHANGES(timerfd_settime, (int fd, int flags, const struct itimerspec *p, struct itimerspec *old),
	(fd, flags, p, old))

/* Processes and their limits. */
FILLS(int, getrusage, (__rusage_who_t who, struct rusage *p), (who, p))
FILLS(int, getrlimit, (__rlimit_resource_t what, struct rlimit *p), (what, p))
FILLS(int, getrlimit64, (__rlimit_resource_t what, struct rlimit64 *p), (what, p))
READS(int, setrlimit, (__rlimit_resource_t what, const struct rlimit *p), (what, p))
READS(int, setrlimit64, (__rlimit_resource_t what, const struct rlimit64 *p), (what, p))
CHANGES(prlimit, (pid_t pid, __rlimit_resource_t what, const struct rlimit *p, struct rlimit *old),
	(pid, what, p, old))
CHANGES(prlimit64,
	(pid_t pid, __rlimit_resource_t what, const struct rlimit64 *p, struct rlimit64 *old),
	(pid, what, p, old))
FILLS(pid_t, wait, (int *p), (p))
FILLS(pid_t, waitpid, (pid_t pid, int *p, int options), (pid, p, options))
RUN_NEAR(pid_t, wait3, (int *p, int options, struct rusage *usage), (p, options, usage),
	 FAM(p) || FAM(usage), OUT(p);
	 OUT(usage))
RUN_NEAR(pid_t, wait4, (pid_t pid, int *p, int options, struct rusage *usage),
	 (pid, p, options, usage), FAM(p) || FAM(usage), OUT(p);
	 OUT(usage))
FILLS(int, waitid, (idtype_t type, id_t id, siginfo_t *p, int options), (type, id, p, options))
FILLS(int, sysinfo, (struct sysinfo * p), (p))
FILLS(int, uname, (struct utsname * p), (p))
static char *(*next_getcwd)(char *, size_t);

RUN_API char *getcwd(char *p, size_t n)
{
	struct run_near near = { 0 };
	char *given = p;

	OUT_BYTES(p, n);
	p = RUN_NEXT(next_getcwd, "getcwd")(p, n);
	run_near_end(&near);
	return p && run_fam(given) ? given : p;
}

/* Signals. */
FILLS(int, sigpending, (sigset_t * p), (p))
RUN_NEAR(int, sigtimedwait, (const sigset_t *R set, siginfo_t *R p, const struct timespec *R until),
	 (set, p, until), FAM(set) || FAM(p) || FAM(until), IN(set);
	 OUT(p); IN(until))
RUN_NEAR(int, sigwaitinfo, (const sigset_t *R set, siginfo_t *R p), (set, p), FAM(set) || FAM(p),
	 IN(set);
	 OUT(p))
RUN_NEAR(int, sigwait, (const sigset_t *R set, int *R p), (set, p), FAM(set), IN(set))
RUN_NEAR(int, sigsuspend, (const sigset_t *p), (p), true, sigset_t open;
	 p = run_open_mask(p, &open))
RUN_NEAR(int, pthread_attr_setsigmask_np, (pthread_attr_t * R attr, const sigset_t *R p), (attr, p),
	 p, sigset_t open;
	 p = run_open_mask(p, &open))
READS(int, signalfd, (int fd, const sigset_t *p, int flags), (fd, p, flags))

/* Descriptors. */
RUN_NEAR(int, pipe, (int p[2]), (p), FAM(p), OUT_BYTES(p, 2 * sizeof(*p)))
RUN_NEAR(int, pipe2, (int p[2], int flags), (p, flags), FAM(p), OUT_BYTES(p, 2 * sizeof(*p)))
FILLS(ssize_t, sendfile, (int to, int from, off_t *p, size_t n), (to, from, p, n))
FILLS(ssize_t, sendfile64, (int to, int from, off64_t *p, size_t n), (to, from, p, n))
RUN_NEAR(ssize_t, splice, (int from, off64_t *p, int to, off64_t *q, size_t n, unsigned flags),
	 (from, p, to, q, n, flags), FAM(p) || FAM(q), OUT(p);
	 OUT(q))
RUN_NEAR(ssize_t, copy_file_range,
	 (int from, off64_t *p, int to, off64_t *q, size_t n, unsigned flags),
	 (from, p, to, q, n, flags), FAM(p) || FAM(q), OUT(p);
	 OUT(q))
RUN_NEAR(ssize_t, getdents64, (int fd, void *p, size_t n), (fd, p, n), FAM(p), OUT_BYTES(p, n))

/* How many bytes of a set of n descriptors the kernel uses: whole words. */
static size_t set_bytes(int n)
{
	return n > 0 ? ((size_t)n + NFDBITS - 1) / NFDBITS * sizeof(fd_mask) : 0;
}

#define SETS                                                                                       \
	OUT_BYTES(in, set_bytes(n));                                                               \
	OUT_BYTES(out, set_bytes(n));                                                              \
	OUT_BYTES(err, set_bytes(n))

RUN_NEAR(int, select, (int n, fd_set *R in, fd_set *R out, fd_set *R err, struct timeval *R p),
	 (n, in, out, err, p), FAM(in) || FAM(out) || FAM(err) || FAM(p), SETS;
	 OUT(p))
RUN_NEAR(int, pselect,
	 (int n, fd_set *R in, fd_set *R out, fd_set *R err, const struct timespec *R p,
	  const sigset_t *R mask),
	 (n, in, out, err, p, mask), FAM(in) || FAM(out) || FAM(err) || FAM(p) || mask, SETS;
	 IN(p); sigset_t open; mask = run_open_mask(mask, &open))

/* How many bytes the argument of that fcntl points to; 0: it is a number. */
static size_t pointed_to(int command)
{
	switch (command) {
	case F_GETLK:
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		return sizeof(struct flock);
	case F_GETOWN_EX:
	case F_SETOWN_EX:
		return sizeof(struct f_owner_ex);
	case F_GET_RW_HINT:
	case F_SET_RW_HINT:
	case F_GET_FILE_RW_HINT:
	case F_SET_FILE_RW_HINT:
		return sizeof(uint64_t);
	default:
		return 0;
	}
}

#define FCNTL(name)                                                                                \
	static int (*next_##name)(int, int, ...);                                                  \
	RUN_API int name(int fd, int command, ...)                                                 \
	{                                                                                          \
		struct run_near near = { 0 };                                                      \
		va_list ap;                                                                        \
		void *p;                                                                           \
		int ret;                                                                           \
                                                                                                   \
		va_start(ap, command);                                                             \
		p = va_arg(ap, void *);                                                            \
		va_end(ap);                                                                        \
		RUN_NEXT(next_##name, #name);                                                      \
		if (pointed_to(command))                                                           \
			OUT_BYTES(p, pointed_to(command));                                         \
		ret = next_##name(fd, command, p);                                                 \
		run_near_end(&near);                                                               \
		return ret;                                                                        \
	}

FCNTL(fcntl)
FCNTL(fcntl64)
