/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty tracking by write-protection.  A store to a clean chunk is a fault, whose handler opens
 * either the whole chunk, all of which is then written back, or one block.  Which is cheaper
 * depends on the program: now and then a chunk of an object is opened block by block, to see how
 * many of its blocks get stored to.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_PROTECT_H
#define SODA_HOST_PROTECT_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"

/*
 * The blocks to open for a first store to `block` of a chunk whose dirty mask is `dirty`.
 * loaded: a load had brought it in. AS.
 */
uint32_t soda_protect_choose(struct soda_region *r, uint32_t dirty, uint32_t block, bool loaded);

/* Whether stores to the object's chunks go to few blocks of them. AS. */
bool soda_protect_sparse(const struct soda_region *r);

/* Learn from a chunk that was opened block by block and written back with this mask. AS. */
void soda_protect_learn(struct soda_region *r, uint32_t dirty);

/*
 * Make the blocks of a resident chunk writable; the caller owns it (BUSY, or
 * FETCHING).  Errors of page_ops->protect. AS.
 */
int soda_protect_open(const struct soda_region *r, uint32_t id, uint32_t blocks);

/*
 * Late store faults, in handler mode.  The handler reads a fault and cannot serve it at once;
 * another thread brings or opens the page; the fault's thread goes on and stores, and soda_sync()
 * brings that to the server and says so.  If the handler then served the fault, the chunk would be
 * dirty with nothing stored since, and would be lost with an agent that has acknowledged, and not
 * passed on, the same bytes once more.
 *
 * closings: how often stores to any chunk have come to an end; never 0.  To be asked before faults
 * are read.
 * close: stores to this chunk come to an end: the caller owns it, and will send or discard it.
 * closed_since: whether soda_protect_close() was called for the chunk, which the caller owns, since
 * soda_protect_closings() returned `since`.  Seldom true without that, as chunks share entries.
 *
 * All AS.
 */
uint64_t soda_protect_closings(void);
void soda_protect_close(uint32_t id);
bool soda_protect_closed_since(uint32_t id, uint64_t since);

#endif
