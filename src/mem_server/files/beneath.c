/* SPDX-License-Identifier: BSD-3-Clause */
/* Path resolution that cannot leave a directory. */
#include "mem_server/files/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "mem_server/store/store.h"

#define OPEN_TRIES 16 /* openat2 fails with EAGAIN when another thread renames on the way */

/* The mode of files that are made, less the server's umask: a tenant's content is not the
 * machine's. */
#define NEW_FILE_MODE 0660

bool soda_beneath_walk_only;

static int open_checked(int dir, const char *name, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)flags,
		.mode = flags & O_CREAT ? NEW_FILE_MODE : 0,
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

/* Permissions, as the last three bits of a mode have them. */
enum { MAY_READ = 4, MAY_WRITE = 2, MAY_PASS = 1 };

static bool in_group(const struct soda_file_user *user, gid_t gid)
{
	unsigned i = 0;

	while (i < user->groups_n && user->groups[i] != gid)
		i++;
	return user->gid == gid || i < user->groups_n;
}

/*
 * Whether the file has an access control list: then the group's bits are a mask, and the list may
 * name further users. True also where that cannot be told.
 */
static bool may_have_list(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return getxattr(path, "system.posix_acl_access", NULL, 0) >= 0 ||
	       (errno != ENODATA && errno != EOPNOTSUPP);
}

/* Whether the user has the wanted permissions. fd: opened in any way, also O_PATH. 0, -EACCES. */
static int permit(int fd, const struct soda_file_user *user, unsigned wanted)
{
	struct stat st;
	unsigned has;

	if (fstat(fd, &st))
		return -EACCES;
	if (st.st_uid == user->uid)
		has = st.st_mode >> 6;
	else if (may_have_list(fd))
		has = 0;
	else
		has = in_group(user, st.st_gid) ? st.st_mode >> 3 : st.st_mode;
	/* A set-id program runs as its owner: another user must not change it. */
	if (S_ISREG(st.st_mode) && wanted & MAY_WRITE && st.st_mode & (S_ISUID | S_ISGID))
		return -EACCES;
	return wanted & ~has ? -EACCES : 0;
}

/*
 * A descriptor of the directory that holds the name's last component, to which *last_p points; the
 * caller closes it.  user: must be permitted to pass through all directories; or NULL.
 */
static int walk_to_parent(int dir, const char *name, const struct soda_file_user *user,
			  const char **last_p)
{
	char part[SODA_WIRE_MAX_NAME + 1];
	const char *slash;
	int at = fcntl(dir, F_DUPFD_CLOEXEC, 0), next;

	if (at < 0)
		return -errno;
	while (!(next = user ? permit(at, user, MAY_PASS) : 0) && (slash = strchr(name, '/'))) {
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
	if (next) {
		close(at);
		return next;
	}
	*last_p = name;
	return at;
}

/* Make a new file the user's, as if the user had created it, which takes a server that is root. */
static int give_away(int parent, int fd, const struct soda_file_user *user)
{
	struct stat st;
	bool group_stays = !fstat(parent, &st) && st.st_mode & S_ISGID;

	if (!fstat(fd, &st) && st.st_uid == user->uid)
		return 0;
	return fchown(fd, user->uid, group_stays ? (gid_t)-1 : user->gid) ? -EACCES : 0;
}

/*
 * look: an O_PATH descriptor. 0: it is a regular file, and the user has the permissions for flags.
 */
static int may_open(int look, int flags, const struct soda_file_user *user)
{
	struct stat st;

	if (fstat(look, &st))
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (user && permit(look, user, MAY_READ | (flags & O_RDWR ? MAY_WRITE : 0)))
		return -EACCES;
	return S_ISREG(st.st_mode) ? 0 : S_ISDIR(st.st_mode) ? -EISDIR : -ENODEV;
}

/* Open a file that exists. Only after a look at it, because opening a device may have effects. */
static int open_existing(int parent, const char *last, int flags, const struct soda_file_user *user)
{
	int look = openat(parent, last, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd;
	char path[32];

	if (look < 0)
		return -errno;
	fd = may_open(look, flags, user);
	if (!fd) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", look);
		fd = open(path, flags); /* the same file, even if its name is another's by now */
		if (fd < 0 && errno == ENOENT) /* no /proc */
			fd = openat(parent, last, flags | O_NOFOLLOW);
		fd = fd < 0 ? -errno : fd;
	}
	close(look);
	return fd;
}

static int create_file(int parent, const char *last, int flags, const struct soda_file_user *user)
{
	int r = user ? permit(parent, user, MAY_WRITE | MAY_PASS) : 0, fd;

	if (r)
		return r;
	fd = openat(parent, last, flags | O_NOFOLLOW, NEW_FILE_MODE);
	if (fd < 0)
		return -errno;
	if (user)
		r = give_away(parent, fd, user);
	if (r) {
		unlinkat(parent, last, 0);
		close(fd);
	}
	return r ? r : fd;
}

/* Open or create a file in its directory; symbolic links are not followed. */
static int open_last(int parent, const char *last, int flags, const struct soda_file_user *user)
{
	return flags & O_CREAT ? create_file(parent, last, flags, user)
			       : open_existing(parent, last, flags, user);
}

static int open_by_walking(int dir, const char *name, int flags, const struct soda_file_user *user)
{
	const char *last;
	int parent = walk_to_parent(dir, name, user, &last), fd;

	if (parent < 0)
		return parent;
	fd = open_last(parent, last, flags, user);
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

int soda_beneath_open(int dir, const char *name, int flags, const struct soda_file_user *user,
		      struct soda_why *why)
{
	struct stat st;
	int fd = -ENOSYS;

	flags |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK; /* O_NONBLOCK: do not wait at a FIFO */
	if (!soda_beneath_walk_only && !user)
		fd = open_checked(dir, name, flags);
	if (fd == -ENOSYS || fd == -EPERM) /* EPERM: a container's filter that predates openat2 */
		fd = open_by_walking(dir, name, flags, user);
	if (fd == -EACCES && user) {
		soda_server_why(why,
				flags & O_CREAT ? "%s: user %u may not create it: the directory's"
						  " permissions, or a server that is not root and"
						  " cannot give it to them"
						: "%s: user %u has no permission: of the file, or"
						  " of a directory on the way",
				name, (unsigned)user->uid);
		return fd;
	}
	if (fd < 0)
		return explain(fd, name, why);
	/* Clear O_NONBLOCK: some file systems would answer EAGAIN to reads. */
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || fcntl(fd, F_SETFL, flags & O_ACCMODE)) {
		close(fd);
		return explain(-ENODEV, name, why);
	}
	return fd;
}

/* A descriptor of the directory that holds a file; *last_p: the file's name in it. */
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
	return fd == -ENOSYS || fd == -EPERM ? walk_to_parent(dir, name, NULL, last_p) : fd;
}

int soda_beneath_settle(int dir, const char *name)
{
	const char *last;
	int parent = open_parent(dir, name, &last), fd, r;

	if (parent < 0)
		return parent;
	/* walk_to_parent() gives an O_PATH descriptor, which cannot be synced. */
	fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	close(parent);
	return r;
}

void soda_beneath_remove(int dir, const char *name, int fd)
{
	const char *last;
	int parent = open_parent(dir, name, &last);
	struct stat made, named;

	if (parent < 0)
		return;
	if (!fstat(fd, &made) && !fstatat(parent, last, &named, AT_SYMLINK_NOFOLLOW) &&
	    made.st_dev == named.st_dev && made.st_ino == named.st_ino)
		unlinkat(parent, last, 0);
	close(parent);
}
