/* SPDX-License-Identifier: BSD-3-Clause */
/* Path resolution that cannot leave a directory. */
#include "mem_server/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "mem_server/store.h"

#define OPEN_TRIES 16 /* openat2 gives EAGAIN when a rename races it */

bool soda_beneath_walk_only;

static int open_checked(int dir, const char *name, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)flags,
		.mode = flags & O_CREAT ? 0666 : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};

	for (int i = 0; i < OPEN_TRIES; i++) {
		long fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EBUSY;
}

/* The directory that holds the last component; *last_p points to that. Owned by the caller. */
static int walk_to_parent(int dir, const char *name, const char **last_p)
{
	char part[SODA_WIRE_MAX_NAME + 1];
	const char *slash;
	int at = fcntl(dir, F_DUPFD_CLOEXEC, 0), next;

	while (at >= 0 && (slash = strchr(name, '/'))) {
		memcpy(part, name, (size_t)(slash - name));
		part[slash - name] = 0;
		name = slash + 1;
		if (!*part)
			continue;
		next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0) {
			/* A link is "not a directory" to O_DIRECTORY | O_NOFOLLOW. */
			next = errno == ENOTDIR ? -ELOOP : -errno;
			close(at);
			return next;
		}
		close(at);
		at = next;
	}
	*last_p = name;
	return at < 0 ? -errno : at;
}

static int open_by_walking(int dir, const char *name, int flags)
{
	const char *last;
	int parent = walk_to_parent(dir, name, &last), fd;

	if (parent < 0)
		return parent;
	fd = openat(parent, last, flags | O_NOFOLLOW, 0666);
	fd = fd < 0 ? -errno : fd;
	close(parent);
	return fd;
}

static int explain(int r, const char *name, struct soda_why *why)
{
	switch (r) {
	case -EXDEV:
		soda_server_why(why, "%s: leaves the server's export directory", name);
		return -EACCES;
	case -ELOOP:
		soda_server_why(why, "%s: a symbolic link that is not followed", name);
		return -EACCES;
	case -EISDIR:
	case -ENXIO:
	case -ENODEV:
		soda_server_why(why, "%s: not a regular file", name);
		return -EACCES;
	case -ENOTDIR:
		r = -ENOENT;
		break;
	case -EPERM:
	case -EROFS:
	case -ETXTBSY:
		soda_server_why(why, "%s: %s", name, soda_strerror(r));
		return -EACCES;
	default:
		break;
	}
	soda_server_why(why, "%s: %s", name, soda_strerror(r));
	return r;
}

int soda_beneath_open(int dir, const char *name, int flags, struct soda_why *why)
{
	struct stat st;
	int fd = -ENOSYS;

	flags |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK; /* a FIFO must not hold the server up */
	if (!soda_beneath_walk_only)
		fd = open_checked(dir, name, flags);
	if (fd == -ENOSYS || fd == -EPERM) /* EPERM: a container's filter that predates openat2 */
		fd = open_by_walking(dir, name, flags);
	if (fd < 0)
		return explain(fd, name, why);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return explain(-ENODEV, name, why);
	}
	return fd;
}

/* The directory that holds a file which was opened a moment ago. */
static int open_parent(int dir, const char *name, const char **last_p)
{
	const char *slash = strrchr(name, '/');
	char path[SODA_WIRE_MAX_NAME + 1] = ".";
	int fd = -ENOSYS;

	*last_p = slash ? slash + 1 : name;
	if (slash) {
		memcpy(path, name, (size_t)(slash - name));
		path[slash - name] = 0;
	}
	if (!soda_beneath_walk_only)
		fd = open_checked(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd == -ENOSYS || fd == -EPERM ? walk_to_parent(dir, name, last_p) : fd;
}

int soda_beneath_settle(int dir, const char *name)
{
	const char *last;
	int parent = open_parent(dir, name, &last), fd, r;

	if (parent < 0)
		return parent;
	/* The walked one is an O_PATH descriptor, which cannot be synced. */
	fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	close(parent);
	return r;
}

void soda_beneath_remove(int dir, const char *name)
{
	const char *last;
	int parent = open_parent(dir, name, &last);

	if (parent < 0)
		return;
	unlinkat(parent, last, 0);
	close(parent);
}
