/* SPDX-License-Identifier: BSD-3-Clause */
/* The work of soda_advise(), soda_prefetch() and soda_hold(), on a checked range of one object. */
#ifndef SODA_HOST_ADVISE_H
#define SODA_HOST_ADVISE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "host_agent/object/region.h"

/* Carry out an advice on [addr, addr + bytes). Errors of soda_advise(). */
int soda_advise_range(struct soda_region *r, char *addr, size_t bytes, int advice,
		      struct soda_why *why);
/* How many chunks more PIN may make resident; less than 0 after the page buffer became smaller. */
int64_t soda_advise_pinnable(void);
/*
 * Keep the chunks first .. last resident, each for one holder more, until soda_advise_unhold(). 0;
 * 1: they were made resident, and are nobody's to hold, as the node's store has them; -ENOMEM: over
 * what may be held; the other errors of PIN, -EFAULT: the program has closed a chunk.
 */
int soda_advise_hold(struct soda_region *r, uint32_t first, uint32_t last, struct soda_why *why);
/* One holder less of each of the chunks; also where their object is gone. */
void soda_advise_unhold(uint32_t first, uint32_t last);
/* From the first to the last chunk of which the server has a copy; n 0: of none. */
struct soda_backed {
	uint32_t first, n;
};

/*
 * DISCARD: the chunks that lie wholly inside the range become zeros; those at its edges keep their
 * content.  The server is not told: *backed, which is all zeros before, says what it still holds.
 * Errors of soda_advise(SODA_DISCARD); some chunks may be discarded then.
 */
int soda_advise_discard(struct soda_region *r, char *addr, size_t bytes,
			struct soda_backed *backed);
/*
 * DISCARD of a range that no thread touches before the call returns, so that the server can be told
 * to give its memory back, too.  May wait as long as a fault.  Errors of soda_advise(SODA_DISCARD).
 */
int soda_advise_purge(struct soda_region *r, char *addr, size_t bytes);
/*
 * Post READs for the REMOTE chunks of n ranges, each inside one object, while slots and credits are
 * free. Never waits.
 */
void soda_advise_willneed(const struct iovec *ranges, int n);
/*
 * Write chunks first .. last back and drop them, pinned ones, too. 0, or the error of
 * soda_sync_chunks(): none was dropped.
 */
int soda_advise_vacate(uint32_t first, uint32_t last);

#endif
