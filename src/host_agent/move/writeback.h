/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which threads send dirty chunks to the server, and when (sender.h says how).  A write-back thread
 * does, on a connection of its own.  Where as many threads fault as there are processors, these
 * threads do it themselves, a batch at a time on their own connections, because no processor is
 * free for the write-back thread.  At the end: waiting for write-backs, which soda_sync(), COLD and
 * the end of an object need (sync.c, progress.c).
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_WRITEBACK_H
#define SODA_HOST_WRITEBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/link.h"
#include "host_agent/core/thread.h"
#include "host_agent/move/sender.h"
#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/*
 * Make the link's write-back and start its thread.  0, -ENOMEM, or the error of starting the
 * thread. stop: end the thread; chunks in the queue are not sent.  The memory stays for the
 * process's life, so that a thread that is late may still use it.
 */
int soda_writeback_start(struct soda_link *link);
void soda_writeback_stop(struct soda_link *link);

/* Give the write-back thread a new connection, which it owns from now on. */
void soda_writeback_connect(struct soda_link *link, struct soda_conn *conn);
/* Close the thread's connection; returns when no WRITE is under way on it any more. */
void soda_writeback_disconnect(struct soda_link *link);

/* In a fork's child: call fn for the thread's connections, used and new. */
void soda_writeback_forget(struct soda_link *link, void (*fn)(struct soda_conn *conn));

/*
 * As soda_sender_queue_put, and wakes the write-back thread. AS.
 */
int soda_writeback_queue(const uint32_t *ids, int n, int why);
/*
 * Queue chunks that are to be evicted. Does not wake the write-back thread where t will help. AS.
 */
int soda_writeback_evict(struct soda_thread *t, const uint32_t *ids, int n);

/*
 * Send a batch over t's own connection, if one waits and all processors are busy; returns when it
 * is acknowledged.  The caller holds no channel's lock. AS.
 */
void soda_writeback_help(struct soda_thread *t);

/*
 * The same for a thread that waits for chunks in the queue, also where processors are free.
 * False: nothing was sent.
 */
bool soda_writeback_share(struct soda_thread *t);

/*
 * Call fn for each sender that may have chunks: the write-back thread's, and those of threads that
 * help.  No thread may send meanwhile. For audit.c.
 */
void soda_writeback_each_sender(void (*fn)(const struct soda_sender *s, void *arg), void *arg);

/* Wake the write-back thread, which then looks at the queue. AS. */
void soda_writeback_ring(void);

/* As soda_progress_await, for a thread that waits for chunks in the queue. */
void soda_writeback_await(uint32_t seen, int64_t timeout_ns);

/*
 * Tells threads that wait for write-backs when it pays to look again. Any thread; all but the wait
 * is async-signal-safe.
 */
void soda_progress_start(void);

/* Wake the waiting threads: chunks are not under way any more, or a connection was lost. */
void soda_progress_tell(void);
/* As soda_progress_tell, and WRITEs were answered: the server is there and takes data. */
void soda_progress_answered(void);

/* Goes up with each soda_progress_tell and each soda_progress_answered. */
uint32_t soda_progress_seen(void);
/* Wait until soda_progress_seen() is not `seen` any more, at most timeout_ns. */
void soda_progress_await(uint32_t seen, int64_t timeout_ns);
/* Goes up with each soda_progress_answered. */
uint32_t soda_progress_answers(void);

/*
 * Write the dirty chunks of [first, first + n) back and wait for the acknowledgments.  0;
 * -ETIMEDOUT: for the fault time-out no write-back was answered, or another thread had one of the
 * chunks BUSY or FETCHING; the error of a refused WRITE.  What could not be written stays dirty and
 * resident.
 */
int soda_sync_chunks(uint32_t first, uint32_t n);

/*
 * soda_sync_chunks() for chunks of r, and then wait until unacknowledged ones are on the server,
 * and until a WRITABLE file's content is in that file.  Errors of soda_sync_chunks() and of the
 * control call; -EIO: since the last call an agent or a server has ended with some of the object's
 * data.
 */
int soda_sync_range(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why);

/*
 * commit.c: sealed files (wire/sealed_file.h), opening one, and bringing one to a state that stays.
 *
 * A commit: all dirty chunks are sent; then, while the file is held (object/sealing.h), the pages
 * of the table that have changed and the header are written to the server's memory, and the
 * server's SYNC changes all of that in the file, or nothing (mem_server/files/journal.h).  What is
 * sent between two commits changes the server's memory, which ends with the server, and never the
 * file.
 */

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

/* Wait until the chunk is neither queued nor in flight, at most until deadline_ns. */
void soda_sync_settle(uint32_t id, uint64_t deadline_ns);

#endif
