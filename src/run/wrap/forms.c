/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that reach the kernel by a call inside of the C library, where no wrapper of another
 * file comes between: forms for _FORTIFY_SOURCE, functions that take a file's name and look at
 * several things with it, those that make a name, and the rarer ones.  scripts/check-libc finds
 * which there are.
 */
#include "run/wrap/near.h"

#include <dirent.h>
#include <errno.h>
#include <mntent.h>
#include <nl_types.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* A fortified form may use so much of the n that it asks for; else it ends the program itself. */
#define WITHIN(n, room) ((n) <= (room) ? (n) : 0)

RUN_NEAR(ssize_t, __readlink_chk, (const char *path, char *buf, size_t n, size_t room),
	 (path, buf, n, room), FAM(path) || FAM(buf), STRING(path);
	 OUT_BYTES(buf, WITHIN(n, room)))
RUN_NEAR(ssize_t, __readlinkat_chk, (int dir, const char *path, char *buf, size_t n, size_t room),
	 (dir, path, buf, n, room), FAM(path) || FAM(buf), STRING(path);
	 OUT_BYTES(buf, WITHIN(n, room)))
RUN_NEAR(int, __getgroups_chk, (int n, gid_t *p, size_t room), (n, p, room), FAM(p),
	 OUT_BYTES(p, n > 0 ? WITHIN((size_t)n * sizeof(*p), room) : 0))
RUN_NEAR(int, ttyname_r, (int fd, char *buf, size_t n), (fd, buf, n), FAM(buf), OUT_BYTES(buf, n))
RUN_NEAR(int, __ttyname_r_chk, (int fd, char *buf, size_t n, size_t room), (fd, buf, n, room),
	 FAM(buf), OUT_BYTES(buf, WITHIN(n, room)))

/* The local copy is where the directory's name is written: the caller gets its own. */
RUN_API char *__getcwd_chk(char *p, size_t n, size_t room);
RUN_API char *__getcwd_chk(char *p, size_t n, size_t room)
{
	static char *(*next)(char *, size_t, size_t);
	struct run_near near = { 0 };
	char *given = p;

	OUT_BYTES(p, WITHIN(n, room));
	p = RUN_NEXT(next, "__getcwd_chk")(p, n, room);
	run_near_end(&near);
	return p && run_fam(given) ? given : p;
}

RUN_NEAR(ssize_t, getdirentries, (int fd, char *buf, size_t n, off_t *base), (fd, buf, n, base),
	 FAM(buf), OUT_BYTES(buf, n))
RUN_NEAR(ssize_t, getdirentries64, (int fd, char *buf, size_t n, off64_t *base), (fd, buf, n, base),
	 FAM(buf), OUT_BYTES(buf, n))

/* A name, and no more. */
#define NAMED(type, name, PARAMS, ARGS) RUN_NEAR(type, name, PARAMS, ARGS, FAM(path), STRING(path))

NAMED(int, lchmod, (const char *path, mode_t mode), (path, mode))
NAMED(long, pathconf, (const char *path, int what), (path, what))
NAMED(nl_catd, catopen, (const char *path, int flags), (path, flags))

#define LISTS(name, entry)                                                                         \
	NAMED(int, name,                                                                           \
	      (const char *path, struct entry ***list_p, int (*pick)(const struct entry *),        \
	       int (*order)(const struct entry **, const struct entry **)),                        \
	      (path, list_p, pick, order))
#define LISTS_AT(name, entry)                                                                      \
	NAMED(int, name,                                                                           \
	      (int dir, const char *path, struct entry ***list_p,                                  \
	       int (*pick)(const struct entry *),                                                  \
	       int (*order)(const struct entry **, const struct entry **)),                        \
	      (dir, path, list_p, pick, order))

LISTS(scandir, dirent)
LISTS(scandir64, dirent64)
LISTS_AT(scandirat, dirent)
LISTS_AT(scandirat64, dirent64)

/* A name that the function completes. */
#define COMPLETES(type, name, PARAMS, ARGS)                                                        \
	RUN_NEAR(type, name, PARAMS, ARGS, FAM(path), OUT_BYTES(path, strlen(path) + 1))

COMPLETES(int, mkstemp, (char *path), (path))
COMPLETES(int, mkstemp64, (char *path), (path))
COMPLETES(int, mkostemp, (char *path, int flags), (path, flags))
COMPLETES(int, mkostemp64, (char *path, int flags), (path, flags))
COMPLETES(int, mkstemps, (char *path, int tail), (path, tail))
COMPLETES(int, mkstemps64, (char *path, int tail), (path, tail))
COMPLETES(int, mkostemps, (char *path, int tail, int flags), (path, tail, flags))
COMPLETES(int, mkostemps64, (char *path, int tail, int flags), (path, tail, flags))

RUN_API char *mkdtemp(char *path)
{
	static char *(*next)(char *);
	struct run_near near = { 0 };
	char *given = path, *made;

	RUN_NEXT(next, "mkdtemp");
	if (!run_handed(path, RUN_CALLER))
		return next(path);
	OUT_BYTES(path, strlen(path) + 1);
	made = next(path);
	run_near_end(&near);
	return made ? given : NULL;
}

/* The clock's adjustment, read and filled. */
RUN_NEAR(int, adjtimex, (struct timex * p), (p), FAM(p), OUT(p))
RUN_NEAR(int, ntp_adjtime, (struct timex * p), (p), FAM(p), OUT(p))
RUN_NEAR(int, clock_adjtime, (clockid_t clock, struct timex *p), (clock, p), FAM(p), OUT(p))

/* Calls of C11, and of descriptors: they fill what they are given. */
FILLS(int, timespec_getres, (struct timespec * p, int base), (p, base))
CHANGES(thrd_sleep, (const struct timespec *p, struct timespec *old), (p, old))
FILLS(int, eventfd_read, (int fd, eventfd_t *p), (fd, p))

/* The size of a new terminal's window. */
READS(int, openpty,
      (int *one, int *other, char *text, const struct termios *t, const struct winsize *p),
      (one, other, text, t, p))
READS(int, forkpty, (int *one, char *text, const struct termios *t, const struct winsize *p),
      (one, text, t, p))
