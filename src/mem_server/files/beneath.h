/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening files beneath a directory, whatever a peer calls them.
 *
 * openat2(RESOLVE_BENEATH) where there is one (Linux 5.6): symbolic links work as
 * long as they stay inside.  Without it the path is walked by hand, one component
 * at a time, and every symbolic link is refused.
 */
#ifndef SODA_MEM_SERVER_BENEATH_H
#define SODA_MEM_SERVER_BENEATH_H

#include <stdbool.h>
#include <sys/types.h>

#include "transport/api/transport.h"

/* Only for tests: pretend that the kernel has no openat2. */
extern bool soda_beneath_walk_only;

/*
 * Somebody whose own permissions decide, not the server's: those of the owner, the group or of
 * all others, of the file and of each directory from `dir` on.  A new file wants permission to
 * write to its directory, and belongs to them.  Symbolic links are refused, and so is what has
 * an access control list, unless it is their own: nobody here reads it.  What cannot be told to
 * have none, as without /proc, counts as having one.
 */
struct soda_file_user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* supplementary ones */
	unsigned groups_n;
};

/*
 * Open a regular file.  name: not empty, terminated, relative, no ".." in it.
 * flags: O_RDONLY or O_RDWR, with O_CREAT | O_EXCL to make it.  user: NULL: the server itself.
 * A descriptor, without O_NONBLOCK; -ENOENT; -EEXIST; -EACCES: leaves the directory, is no
 * regular file, or no permission; -EMFILE, -EIO and the like.
 */
int soda_beneath_open(int dir, const char *name, int flags, const struct soda_file_user *user,
		      struct soda_why *why);

/* Make the name of a file that was just made by soda_beneath_open last. 0 or negative errno. */
int soda_beneath_settle(int dir, const char *name);

/* Remove a file that soda_beneath_open has made, if it is fd's still. */
void soda_beneath_remove(int dir, const char *name, int fd);

#endif
