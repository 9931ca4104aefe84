/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file says itself who may write it, so that the next instance of the server knows it: the
 * extended attribute SODA_MARK holds the mark that the client of the last WRITABLE open has chosen
 * (SODA_MSG_OPEN), and the file's ctime as its last write-back has left it; none while the server
 * changes the file, in which it may end.
 *
 * A client that comes back brings the mark along.  If it finds another one, a file without any
 * (that is another file, or its file system has no extended attributes), or another ctime, what it
 * has of the file may be older than what is there, and it does not get it.
 */
#ifndef SODA_MEM_SERVER_MARK_H
#define SODA_MEM_SERVER_MARK_H

#include <stdint.h>

struct soda_file_request;
struct soda_why;

#define SODA_MARK "user.soda.writer"

/*
 * Before a claimed file is opened WRITABLE: compare (req->again), and leave the mark.  0, and the
 * mark; -ESTALE; -EIO: the mark of another one cannot be replaced.
 */
int soda_mark_take(int fd, const struct soda_file_request *req, uint64_t *mark_p,
		   struct soda_why *why);

/*
 * The server is about to change the file: 0; or why it may not, because a mark that is there, and
 * cannot be changed, would tell of what the file was before.
 */
int soda_mark_change(int fd, uint64_t mark);
/* It has. An error leaves a mark by which its client, and any change meanwhile, gets in. */
void soda_mark_settle(int fd, uint64_t mark);

#endif
