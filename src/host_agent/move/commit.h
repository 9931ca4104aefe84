/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed files (wire/sealed_file.h): opening one, and bringing one to a state that stays.
 *
 * A commit: all dirty chunks are sent; then, while the file is held (object/sealing.h), the pages
 * of the table that have changed and the header are written to the server's memory, and the
 * server's SYNC changes all of that in the file, or nothing (mem_server/files/journal.h).  What is
 * sent between two commits changes the server's memory, which ends with the server, and never the
 * file.
 */
#ifndef SODA_HOST_COMMIT_H
#define SODA_HOST_COMMIT_H

#include "host_agent/object/region.h"

/*
 * The object's region has just been opened, and nobody sees the object yet: read what the file is,
 * see that it is sealed with our key and was not changed, and set r->sealing and the object's size;
 * a new one is made, and committed.  0; -EINVAL, -EACCES, -EBADMSG, with a sentence; -ENOMEM, -EIO;
 * errors of the connection.
 */
int soda_commit_open(struct soda_region *r, struct soda_why *why);
/*
 * All chunks that were dirty have been sent: commit them, and what else the server has by then. 0;
 * -EIO: the file cannot be committed any more, with a sentence; -ETIMEDOUT; errors of
 * soda_sync_chunks() and of the server.
 */
int soda_commit_region(struct soda_region *r, struct soda_why *why);

#endif
