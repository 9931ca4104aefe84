/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READ_ONLY files on a pool.  Such an object is a slab with copies (object/copies.h): each is the
 * file's region on one server, and nobody ever writes to any.  It begins with one, on the first
 * server of the list that has the file; a thread of its own, "soda-files",
 *
 *   - asks for the content's hash (wire/pool.h), and which other servers have the same;
 *   - opens the file on another server that has the same content when the server of a copy is away
 *     or drained, and then gives that copy up: what is resident stays, and reads go on there.  With
 *     redundancy it opens a second one at once;
 *   - opens it again on a server that has started anew, if it has the same content there still.
 *
 * A server that has another content under the name is named in the log, and not read.  While no
 * server that has the content can be reached, faults wait, as they do for any server.
 *
 * WRITABLE and PRIVATE files lie on one server, as a region without copies.
 */
#ifndef SODA_HOST_FILES_H
#define SODA_HOST_FILES_H

#include "host_agent/object/region.h"

/* Whether the refusal means that the server has no such file for this program. */
static inline bool soda_files_lacks(int err)
{
	return err == -ENOENT || err == -EACCES;
}

/* Start the thread, unless it runs. api_lock held. 0 or negative errno. */
int soda_files_start(void);
/* End it; the caller may hold api_lock. */
void soda_files_stop(void);

/*
 * Open the file's first copy, in place 0: r has its name, its flags and the bytes that are asked
 * for, and gets the bytes that it has.  api_lock held.  Errors of soda_alloc_file().
 */
int soda_files_open(struct soda_region *r, struct soda_why *why);
/* Whether the server has such a file, although it takes nothing new. 0; errors of an OPEN. */
int soda_files_look(struct soda_region *r, struct soda_link *link, struct soda_why *why);

/* The object is about to be freed: the thread has left it when this returns. */
void soda_files_leave(struct soda_region *r);
/* Free what is known of it; its copies are closed. */
void soda_files_forget(struct soda_region *r);
/* Whether it stays on a server that is drained, as no other one can be read. */
bool soda_files_held(const struct soda_region *r);

#endif
