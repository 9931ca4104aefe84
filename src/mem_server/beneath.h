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

#include "common/transport/transport.h"

/* Only for tests: pretend that the kernel has no openat2. */
extern bool soda_beneath_walk_only;

/*
 * Open a regular file.  name: not empty, terminated, relative, no ".." in it.
 * flags: O_RDONLY or O_RDWR, with O_CREAT | O_EXCL to make it.
 * A descriptor; -ENOENT; -EEXIST; -EACCES: leaves the directory, is no regular file,
 * or no permission; -EMFILE, -EIO and the like.
 */
int soda_beneath_open(int dir, const char *name, int flags, struct soda_why *why);

/* Make the name of a file that was just made by soda_beneath_open last. 0 or negative errno. */
int soda_beneath_settle(int dir, const char *name);

/* Remove a file that was just made by soda_beneath_open. */
void soda_beneath_remove(int dir, const char *name);

#endif
