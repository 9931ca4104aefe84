/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making chunks resident: pages in, policy told, chunk settled.  The caller owns
 * the chunks (FETCHING) and their credits. AS.
 */
#ifndef SODA_HOST_INSTALL_H
#define SODA_HOST_INSTALL_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"

struct soda_install {
	uint32_t id;
	int16_t block; /* of the store that faulted; -1: a load */
	bool ahead;    /* fetched ahead of its fault */
};

/*
 * Install n chunks with consecutive ids from consecutive memory at src, one
 * object, only the last one short.  Of several only the first may be for a store; the others
 * become dirty with it if all of it is opened.
 * On failure the chunks go back to REMOTE (or ZERO), credits are returned, and the
 * error is that of the pager.
 */
int soda_install_run(struct soda_region *r, const struct soda_install *in, uint32_t n,
		     const void *src);

/*
 * Whether a peer that has our userfaultfd may install the chunk, and how.  Only where a
 * store cannot follow before we know of it, so that half of the chunk can be dropped
 * again; and not where we want to see the content first (guess.h).
 */
bool soda_install_by_peer(const struct soda_region *r, const struct soda_install *in,
			  bool *protect_p);
/* It has done so: the chunk is resident. */
void soda_install_settle(const struct soda_install *in);

/* The same with zeros, of which there are 2 MiB: chunks that were never written. */
int soda_install_zeros(struct soda_region *r, const struct soda_install *in, uint32_t n);

/*
 * The first bytes of a BUSY chunk were dropped, and the kernel refused the rest: zeros come to
 * stand there.  Ends the process where there is no memory for them.
 */
void soda_install_refill(uint32_t id, size_t bytes);

/* The same as cancel where the peer may have installed some of it. */
void soda_install_undo(uint32_t id);

/* A fetch failed: the chunk goes back to where it was, the credit too. */
void soda_install_cancel(uint32_t id);

#endif
