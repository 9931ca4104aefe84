/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a chunk of a slab with erasure codes: K of its pieces, each over the thread's channel to
 * that piece's server.
 *
 * All are asked for before the first is waited for.  A server that cannot be asked, or whose
 * connection ends, is replaced by another one; so are those that are late (SODA_HEDGE_MS), whose
 * answers are withdrawn when K others have come; where there is no other, one whose channel has no
 * slot for a moment is asked again.  Pieces of data that are missing then are decoded.
 *
 * Of a sealed object the pieces are of ciphertext, and what is decoded is opened.  Where that says
 * that a piece was changed, each K of those that there are are tried; the pieces that were wrong
 * are given up, as a copy is, and rebuilt.  So is a piece that an agent which seals refuses, as it
 * cannot open what the server has.  Where no K are right the chunk is LOST.
 *
 * One channel's lock is held at a time.  The chunk is FETCHING and the caller's all the while, so
 * that nobody changes its pieces.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_GATHER_H
#define SODA_HOST_GATHER_H

#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"

/* As soda_fetch_demand(). */
int soda_gather_demand(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		       uint64_t deadline_ns);
/*
 * The data of a chunk to `stripe`, where there is room for all of its pieces.  The chunk stays
 * FETCHING. 0, or an error as of soda_fetch_demand; -EBADMSG: it was sealed, by the
 * program or an agent, no K pieces are right, and it is LOST.  Of a sealed object it is the
 * ciphertext, which has been checked.
 */
int soda_gather_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *stripe,
		     uint64_t deadline_ns);

#endif
