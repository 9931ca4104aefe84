/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens files by names from a peer, and never one that lies outside of a directory.
 *
 * By openat2(RESOLVE_BENEATH), from Linux 5.6 on: symbolic links are followed as
 * long as they stay inside.  Without openat2 the path is walked one component
 * at a time, and every symbolic link is refused.
 */
#ifndef SODA_MEM_SERVER_BENEATH_H
#define SODA_MEM_SERVER_BENEATH_H

#include <stdbool.h>
#include <sys/types.h>

#include "transport/api/transport.h"

/* Set by tests only: the kernel counts as having no openat2. */
extern bool soda_beneath_walk_only;

/*
 * A user whose permissions decide, instead of the server's: the mode bits for the owner, the group
 * or all others, of the file and of each directory from `dir` on.  To create a file the user needs
 * permission to write to its directory; the file then belongs to the user.  Symbolic links are
 * refused, and so is a file with an access control list that is not the user's own, because the
 * lists are not read here; a file of which it cannot be told whether it has one, as without /proc,
 * counts as having one.
 */
struct soda_file_user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups; /* supplementary ones */
	unsigned groups_n;
};

/*
 * Open a regular file.  name: not empty, terminated, relative, no ".." in it.
 * flags: O_RDONLY or O_RDWR, with O_CREAT | O_EXCL to create it.  user: NULL: the server's
 * permissions decide.  Returns a descriptor, without O_NONBLOCK; -ENOENT; -EEXIST; -EACCES: the
 * name leads out of the directory, it is no regular file, or no permission; -EMFILE, -EIO and the
 * like.
 */
int soda_beneath_open(int dir, const char *name, int flags, const struct soda_file_user *user,
		      struct soda_why *why);

/*
 * Bring the name of a file that soda_beneath_open has created to stable storage. 0 or negative
 * errno.
 */
int soda_beneath_settle(int dir, const char *name);

/* Remove a file that soda_beneath_open has created, if the name is still that of fd's file. */
void soda_beneath_remove(int dir, const char *name, int fd);

#endif
