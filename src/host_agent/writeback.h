/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty chunks on their way to the server.  One thread, one deep connection.
 *
 *   queue -> DIRTY -> BUSY, write-protect -> CLEAN + SENDING, WRITEs posted
 *         -> all acknowledged: BACKED; to be evicted: BUSY, dropped
 *         -> failed: the mask is put back, DIRTY, queued again
 *
 * The WRITEs are sent straight from the chunk's pages.  A store meanwhile makes
 * the chunk DIRTY again, which cancels its eviction; what the server then holds is
 * a mixture, and is overwritten before the chunk can go.
 */
#ifndef SODA_HOST_WRITEBACK_H
#define SODA_HOST_WRITEBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/transport/transport.h"

enum { SODA_WB_EVICT = 1, SODA_WB_SYNC = 2 };

/* Start and end the thread. stop: what is queued is not sent. */
int soda_writeback_start(void);
void soda_writeback_stop(void);

/* A new connection, owned from now on; the thread goes on with what failed. */
void soda_writeback_connect(struct soda_conn *conn);
/* The connection is gone: returns when nothing is in flight any more. */
void soda_writeback_disconnect(void);

/* In a fork's child: fn for its connection. */
void soda_writeback_forget(void (*fn)(struct soda_conn *conn));

/*
 * Queue chunks whose QUEUED flag the caller has set; returns how many.  Never waits:
 * where the queue is full the flag of the rest is taken back. AS.
 */
int soda_writeback_queue(const uint32_t *ids, int n, int why);

/*
 * Goes up with each answered batch, and when a connection is lost; wait until it is not
 * `seen` any more.
 */
uint32_t soda_writeback_progress(void);
/* Goes up with each answered batch only: the server is there and takes data. */
uint32_t soda_writeback_answers(void);
void soda_writeback_await(uint32_t seen, int64_t timeout_ns);
/* How many WRITEs were refused so far; *error_p: the error of the last of them. */
uint32_t soda_writeback_refusals(int *error_p);

#endif
