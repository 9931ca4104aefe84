/* SPDX-License-Identifier: BSD-3-Clause */
/* The work of soda_advise() and soda_prefetch(), on a checked range of one object. */
#ifndef SODA_HOST_ADVISE_H
#define SODA_HOST_ADVISE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "host_agent/object/region.h"

/* Carry out an advice on [addr, addr + bytes). Errors of soda_advise(). */
int soda_advise_range(struct soda_region *r, char *addr, size_t bytes, int advice,
		      struct soda_why *why);
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
