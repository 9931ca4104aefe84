/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a READ_ONLY file has: the SHA-256 of its content, by which a program knows that two servers
 * export the same.  A thread of low priority, "soda-content", computes it, one file after the
 * other; of a small file the asking thread does.  What was computed is remembered while the server
 * runs, by device, inode, size, mtime and ctime.
 *
 * Of a file in memory it is that memory's, which never changes (files.h): what programs read, and
 * not what the file has become since.
 */
#ifndef SODA_MEM_SERVER_CONTENT_H
#define SODA_MEM_SERVER_CONTENT_H

#include "mem_server/files/files.h"
#include "wire/pool.h"

/*
 * Of a file that is open, READ_ONLY. 0; -EINVAL: it is another one; -ENOTSUP: there is no OpenSSL;
 * with why.  *content_p may say that it is being computed. Any thread; takes no lock for long.
 */
int soda_content_of_file(struct soda_files *files, struct soda_file *file,
			 struct soda_wire_content *content_p, struct soda_why *why);
/*
 * Of a file of that name; it is not loaded.  Errors of soda_files_open(), too; -EFBIG: it has fewer
 * bytes than asked for.
 */
int soda_content_of_name(struct soda_files *files, const struct soda_file_request *req,
			 struct soda_wire_content *content_p, struct soda_why *why);
/* End the thread: nothing is computed any more.  Before the clients' files are closed. */
void soda_contents_stop(struct soda_files *files);

#endif
