/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The limit of the page buffer: what the settings ask for, what it must have at least, and what
 * depends on it (replacement lists, staging slots, places for sealed chunks) fitted to it.
 */
#ifndef SODA_HOST_LIMIT_H
#define SODA_HOST_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/api/transport.h"

/* Whether a buffer whose size is given is large enough for the settings. 0, -EINVAL with *why. */
int soda_limit_check(struct soda_why *why);
/*
 * settings.servers is another number, and so is the least buffer: fit the limit to it.  api_lock
 * held.  False: the buffer is lent, and is too small for it.
 */
bool soda_limit_refit(void);
/*
 * The same at the start, before anything is resident: a buffer that is lent is asked for more,
 * which waits for those that have it.  0; -ENOMEM, with a reason or, where the buffer could not be
 * so large, without.
 */
int soda_limit_refit_first(struct soda_why *why);
/* The limit that settings and objects ask for, chunks; who lends the buffer may give another. */
int64_t soda_limit_wanted(void);
/* Whether somebody lends this process its buffer (soda_lender). */
bool soda_limit_is_lent(void);
/*
 * Make the limit that many chunks larger, for the rest of the process, also where it is lent. Takes
 * api_lock.
 */
void soda_limit_add(int64_t chunks);
/* How many chunks soda_limit_add() has added in all. */
int64_t soda_limit_added(void);
/* Chunks that a buffer must have for `threads` threads, staging included. */
int64_t soda_limit_minimum(uint32_t threads);
/* Chunks that must stay unpinned: that, and what reads ahead and the handler may have. */
int64_t soda_limit_unpinned(void);
/*
 * Recompute the buffer's limit from fam_bytes, and evict what is over it; api_lock held.  first:
 * there was no object before, so nothing is resident yet.
 */
void soda_limit_resize(bool first);
/*
 * Where the buffer is lent (soda_lender): make the limit smaller by so many chunks, and evict what
 * is over it.  Returns how many it became smaller by: fewer, where they could not be evicted until
 * then.  api_lock held.
 */
int64_t soda_limit_shrink(int64_t chunks, uint64_t deadline_ns);
/* Likewise: the limit has become wider; fit to it what depends on it. api_lock held. */
void soda_limit_grown(void);

#endif
