/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who sends dirty chunks to the server (how: sender.h).  A thread of its own, on a connection
 * of its own; and, where as many threads fault as there are processors, these threads
 * themselves, a batch at a time on their own connections: nothing is gained by handing
 * work to a thread that no processor is free for.
 */
#ifndef SODA_HOST_WRITEBACK_H
#define SODA_HOST_WRITEBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/link.h"
#include "host_agent/core/thread.h"
#include "host_agent/move/sender.h"
#include "transport/api/transport.h"

/*
 * Make the link's write-back and start its thread; and end that.  stop: what is queued is not sent,
 * and who comes later still finds an empty queue.
 */
int soda_writeback_start(struct soda_link *link);
void soda_writeback_stop(struct soda_link *link);

/* A new connection, owned from now on; the thread goes on with what failed. */
void soda_writeback_connect(struct soda_link *link, struct soda_conn *conn);
/* The connection is gone: returns when nothing is in flight on it any more. */
void soda_writeback_disconnect(struct soda_link *link);

/* In a fork's child: fn for its connection. */
void soda_writeback_forget(struct soda_link *link, void (*fn)(struct soda_conn *conn));

/*
 * Queue chunks whose QUEUED flag the caller has set; returns how many.  Never waits:
 * where the queue is full the flag of the rest is taken back. AS.
 */
int soda_writeback_queue(const uint32_t *ids, int n, int why);
/* The same for chunks that are to be evicted: does not wake the thread where t will help. AS. */
int soda_writeback_evict(struct soda_thread *t, const uint32_t *ids, int n);

/*
 * Send a batch, if one waits and the thread had better do it itself; no channel's lock is
 * held. AS.
 */
void soda_writeback_help(struct soda_thread *t);

/*
 * The same for a thread that waits for what is in the queue: whatever the processors do.
 * False: nothing waits, or it cannot.
 */
bool soda_writeback_share(struct soda_thread *t);

/*
 * fn for each sender that may have chunks: the thread's, and those of threads that help.  Nobody
 * sends meanwhile. For audit.c.
 */
void soda_writeback_each_sender(void (*fn)(const struct soda_sender *s, void *arg), void *arg);

/* See that the thread looks at the queue. AS. */
void soda_writeback_ring(void);

/* As soda_progress_await, for those who need what is in the queue. */
void soda_writeback_await(uint32_t seen, int64_t timeout_ns);

#endif
