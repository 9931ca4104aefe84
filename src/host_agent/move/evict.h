/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making room.  Clean chunks are dropped in batches by the thread that faults;
 * dirty ones go to the write-back thread and are dropped when the server has
 * acknowledged them.  A fault waits only when nothing clean is left.
 *
 *   clean   CLEAN -> BUSY -> (batch of DONTNEED) -> REMOTE or ZERO
 *   dirty   QUEUED -> write-back: BUSY, write-protect, CLEAN + SENDING, sent,
 *           acknowledged -> as clean.  A store in between cancels the eviction.
 */
#ifndef SODA_HOST_EVICT_H
#define SODA_HOST_EVICT_H

#include <stdint.h>

#include "host_agent/core/thread.h"

/* One batch, if the buffer is over its high mark. AS. */
void soda_evict_ahead(struct soda_thread *t);

/*
 * A credit for one chunk: taken if there is one, else room is made, else waited
 * for until deadline_ns.  0; -EAGAIN: none, and deadline_ns is 0; -ETIMEDOUT. AS.
 */
int soda_evict_credit(struct soda_thread *t, uint64_t deadline_ns);

/*
 * No credit, and nothing could be evicted: see what is in the way, which is chunks held
 * by threads that are gone or too many, and answers that nobody collects. AS.
 */
void soda_evict_unstick(struct soda_thread *t);

/* The buffer has become smaller: evict what is over it, until deadline_ns. AS. */
void soda_evict_down(uint64_t deadline_ns);

#endif
