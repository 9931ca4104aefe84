/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making room in the page buffer.  The thread that faults drops clean chunks itself, in batches; it
 * queues dirty ones for write-back, and they are dropped when the server has acknowledged them.  A
 * fault waits only when no clean chunk is left.
 *
 *   clean   CLEAN -> BUSY -> (batch of DONTNEED) -> REMOTE or ZERO
 *   dirty   QUEUED -> write-back: BUSY, write-protect, CLEAN + SENDING, sent,
 *           acknowledged, then as a clean one.  A store before that cancels the eviction.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_EVICT_H
#define SODA_HOST_EVICT_H

#include <stdint.h>

#include "host_agent/core/thread.h"

/* Evict one batch of chunks, if the buffer is over its high mark. AS. */
void soda_evict_ahead(struct soda_thread *t);

/*
 * Take a credit for one chunk; where none is free evict, and wait for one until deadline_ns.
 * 0; -EAGAIN: there is none, and deadline_ns is 0; -ETIMEDOUT. AS.
 */
int soda_evict_credit(struct soda_thread *t, uint64_t deadline_ns);

/*
 * No credit is free and nothing can be evicted: collect answers that no thread waits for, free the
 * last chunks of threads that have ended, or take those of a living one. AS.
 */
void soda_evict_unstick(struct soda_thread *t);

/*
 * The buffer has become smaller: evict until it holds no more than its limit, or deadline_ns. AS.
 */
void soda_evict_down(uint64_t deadline_ns);

#endif
