/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls with names of files, or with arguments for a new program, that may lie in fabric memory. */
#include "run/wrap/near.h"

#include <dirent.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Where no file may be created the caller passes no mode; whatever is in its place is passed on. */
#define OPENS(name, PARAMS, last, ARGS)                                                            \
	static int (*next_##name)(PARAMS, ...);                                                    \
	RUN_API int name(PARAMS, ...)                                                              \
	{                                                                                          \
		struct run_near near = { 0 };                                                      \
		mode_t mode;                                                                       \
		va_list ap;                                                                        \
		int fd;                                                                            \
                                                                                                   \
		va_start(ap, last);                                                                \
		mode = va_arg(ap, mode_t);                                                         \
		va_end(ap);                                                                        \
		RUN_NEXT(next_##name, #name);                                                      \
		if (!run_is_ours(__builtin_return_address(0)))                                     \
			STRING(path);                                                              \
		fd = next_##name ARGS;                                                             \
		run_near_end(&near);                                                               \
		return fd;                                                                         \
	}
#define COMMA ,

OPENS(open, const char *path COMMA int flags, flags, (path, flags, mode))
OPENS(open64, const char *path COMMA int flags, flags, (path, flags, mode))
OPENS(openat, int dir COMMA const char *path COMMA int flags, flags, (dir, path, flags, mode))
OPENS(openat64, int dir COMMA const char *path COMMA int flags, flags, (dir, path, flags, mode))

#define PATH(type, name, PARAMS, ARGS) RUN_NEAR(type, name, PARAMS, ARGS, FAM(path), STRING(path))
#define PATHS(name, PARAMS, ARGS)                                                                  \
	RUN_NEAR(int, name, PARAMS, ARGS, FAM(path) || FAM(other), STRING(path); STRING(other))

PATH(int, __open_2, (const char *path, int flags), (path, flags))
PATH(int, __open64_2, (const char *path, int flags), (path, flags))
PATH(int, __openat_2, (int dir, const char *path, int flags), (dir, path, flags))
PATH(int, __openat64_2, (int dir, const char *path, int flags), (dir, path, flags))
PATH(int, creat, (const char *path, mode_t mode), (path, mode))
PATH(int, creat64, (const char *path, mode_t mode), (path, mode))
PATH(FILE *, fopen, (const char *path, const char *mode), (path, mode))
PATH(FILE *, fopen64, (const char *path, const char *mode), (path, mode))
PATH(FILE *, freopen, (const char *path, const char *mode, FILE *f), (path, mode, f))
PATH(FILE *, freopen64, (const char *path, const char *mode, FILE *f), (path, mode, f))
PATH(DIR *, opendir, (const char *path), (path))
PATH(int, memfd_create, (const char *path, unsigned flags), (path, flags))
PATH(int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask))
PATH(int, access, (const char *path, int mode), (path, mode))
PATH(int, euidaccess, (const char *path, int mode), (path, mode))
PATH(int, eaccess, (const char *path, int mode), (path, mode))
PATH(int, faccessat, (int dir, const char *path, int mode, int flags), (dir, path, mode, flags))
PATH(int, chdir, (const char *path), (path))
PATH(int, chroot, (const char *path), (path))
PATH(int, chmod, (const char *path, mode_t mode), (path, mode))
PATH(int, fchmodat, (int dir, const char *path, mode_t mode, int flags), (dir, path, mode, flags))
PATH(int, chown, (const char *path, uid_t user, gid_t group), (path, user, group))
PATH(int, lchown, (const char *path, uid_t user, gid_t group), (path, user, group))
PATH(int, fchownat, (int dir, const char *path, uid_t user, gid_t group, int flags),
     (dir, path, user, group, flags))
PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
PATH(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
PATH(int, mkfifo, (const char *path, mode_t mode), (path, mode))
PATH(int, mkfifoat, (int dir, const char *path, mode_t mode), (dir, path, mode))
PATH(int, mknod, (const char *path, mode_t mode, dev_t dev), (path, mode, dev))
PATH(int, mknodat, (int dir, const char *path, mode_t mode, dev_t dev), (dir, path, mode, dev))
PATH(int, rmdir, (const char *path), (path))
PATH(int, unlink, (const char *path), (path))
PATH(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
PATH(int, remove, (const char *path), (path))
PATH(int, truncate, (const char *path, off_t bytes), (path, bytes))
PATH(int, truncate64, (const char *path, off64_t bytes), (path, bytes))
PATHS(rename, (const char *path, const char *other), (path, other))
PATHS(renameat, (int dir, const char *path, int to, const char *other), (dir, path, to, other))
PATHS(renameat2, (int dir, const char *path, int to, const char *other, unsigned flags),
      (dir, path, to, other, flags))
PATHS(link, (const char *path, const char *other), (path, other))
PATHS(linkat, (int dir, const char *path, int to, const char *other, int flags),
      (dir, path, to, other, flags))
PATHS(symlink, (const char *path, const char *other), (path, other))
PATHS(symlinkat, (const char *path, int to, const char *other), (path, to, other))
PATHS(removexattr, (const char *path, const char *other), (path, other))
PATHS(lremovexattr, (const char *path, const char *other), (path, other))
PATH(int, fremovexattr, (int fd, const char *path), (fd, path))
PATH(key_t, ftok, (const char *path, int id), (path, id))
PATH(FILE *, setmntent, (const char *path, const char *mode), (path, mode))
RUN_NEAR(int, fanotify_mark, (int fd, unsigned flags, uint64_t mask, int dir, const char *path),
	 (fd, flags, mask, dir, path), FAM(path), STRING(path))

/* As much of a handle as the caller says that there is, but none is longer than that. */
static size_t handle_bytes(const struct file_handle *handle)
{
	unsigned n = handle->handle_bytes;

	return sizeof(*handle) + (n < MAX_HANDLE_SZ ? n : MAX_HANDLE_SZ);
}

RUN_NEAR(int, name_to_handle_at,
	 (int dir, const char *path, struct file_handle *p, int *mount, int flags),
	 (dir, path, p, mount, flags), FAM(path) || FAM(p) || FAM(mount), STRING(path);
	 OUT_BYTES(p, handle_bytes(p)); OUT(mount))
RUN_NEAR(int, open_by_handle_at, (int mount, struct file_handle *p, int flags), (mount, p, flags),
	 FAM(p), IN_BYTES(p, handle_bytes(p)))

/* Calls with a path and a buffer to fill. */
#define FINDS(type, name, PARAMS, ARGS)                                                            \
	RUN_NEAR(type, name, PARAMS, ARGS, FAM(path) || FAM(buf), STRING(path);                    \
		 OUT_BYTES(buf, bytes))

FINDS(ssize_t, readlink, (const char *path, char *buf, size_t bytes), (path, buf, bytes))
FINDS(ssize_t, readlinkat, (int dir, const char *path, char *buf, size_t bytes),
      (dir, path, buf, bytes))
FINDS(ssize_t, listxattr, (const char *path, char *buf, size_t bytes), (path, buf, bytes))
FINDS(ssize_t, llistxattr, (const char *path, char *buf, size_t bytes), (path, buf, bytes))
RUN_NEAR(ssize_t, flistxattr, (int fd, char *buf, size_t bytes), (fd, buf, bytes), FAM(buf),
	 OUT_BYTES(buf, bytes))

#define XATTR(type, name, PARAMS, ARGS, VALUE)                                                     \
	RUN_NEAR(type, name, PARAMS, ARGS, FAM(path) || FAM(key) || FAM(value), STRING(path);      \
		 STRING(key); VALUE(value, bytes))
#define FXATTR(type, name, PARAMS, ARGS, VALUE)                                                    \
	RUN_NEAR(type, name, PARAMS, ARGS, FAM(key) || FAM(value), STRING(key); VALUE(value, bytes))

XATTR(ssize_t, getxattr, (const char *path, const char *key, void *value, size_t bytes),
      (path, key, value, bytes), OUT_BYTES)
XATTR(ssize_t, lgetxattr, (const char *path, const char *key, void *value, size_t bytes),
      (path, key, value, bytes), OUT_BYTES)
FXATTR(ssize_t, fgetxattr, (int fd, const char *key, void *value, size_t bytes),
       (fd, key, value, bytes), OUT_BYTES)
XATTR(int, setxattr,
      (const char *path, const char *key, const void *value, size_t bytes, int flags),
      (path, key, value, bytes, flags), IN_BYTES)
XATTR(int, lsetxattr,
      (const char *path, const char *key, const void *value, size_t bytes, int flags),
      (path, key, value, bytes, flags), IN_BYTES)
FXATTR(int, fsetxattr, (int fd, const char *key, const void *value, size_t bytes, int flags),
       (fd, key, value, bytes, flags), IN_BYTES)

/* Whether the vector, or one of its strings, is in fabric memory, which a child does not have. */
static bool any(char *const *v)
{
	if (run_fam(v))
		return true;
	for (; v && *v; v++)
		if (run_fam(*v))
			return true;
	return false;
}

/*
 * system() and popen() use the environment: make its strings that are in fabric memory local, for
 * good.
 */
static void bring_environment(void)
{
	for (char **v = environ; v && *v; v++) {
		char *copy = run_fam(*v) ? strdup(*v) : NULL;

		if (copy)
			*v = copy;
	}
}

RUN_NEAR(int, system, (const char *path), (path), FAM(path) || any(environ), STRING(path);
	 bring_environment())
RUN_NEAR(FILE *, popen, (const char *path, const char *type), (path, type),
	 FAM(path) || any(environ), STRING(path);
	 bring_environment())
