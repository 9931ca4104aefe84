/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptors of a library in a process that is not its own.  They lie high, out of the way of
 * programs that choose numbers (a shell's `exec 4>file`), and stand in one table, with the file
 * that each was opened as: so that a close() or dup2() of the program can spare them, and one that
 * was closed or replaced all the same is noticed.
 *
 * Until soda_fds_start() is called, as in daemons and tools, a descriptor stays as it is, and no
 * table is kept.  Safe from any thread.  AS: async-signal-safe.
 */
#ifndef SODA_BASE_OWN_FD_H
#define SODA_BASE_OWN_FD_H

#include <stdbool.h>

/* Numbers from here on are not in the table. */
enum { SODA_FDS_MAX = 65536 };

/* This process has a library of that kind from now on.  More than once does nothing more. */
void soda_fds_start(void);
/*
 * The descriptor is the library's: moved up, close-on-exec, and noted.  Returns its number; fd
 * itself if it cannot be moved (no number is free above), or is negative.  Keeps errno.
 */
int soda_fd_own(int fd);
/*
 * Close what soda_fd_own() returned; -1 does nothing.  Not if another file has that number by now.
 * Keeps errno.  AS.
 */
void soda_fd_close(int fd);
/*
 * Whether it is the library's in this process.  A child of vfork(2) counts as this process, because
 * its faults need it as well; the child of a fork does not.  AS.
 */
bool soda_fd_is_own(int fd);
/* The lowest one at or above fd, SODA_FDS_MAX: there is none. AS. */
int soda_fd_next_own(int fd);
/* One that was closed or replaced by somebody else; -1: there is none. AS. */
int soda_fd_lost(void);
/*
 * End the process, with a line about the descriptor that was lost: its pages cannot be had any
 * more, and what it was used for may go to a file of the program's.  AS.
 */
_Noreturn void soda_fds_end(int fd);
/* Do so if one is lost.  AS. */
void soda_fds_check(void);
/* In the child of a fork, which has closed them: none is the library's any more. AS. */
void soda_fds_forget(void);

#endif
