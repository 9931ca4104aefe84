/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks become resident (install.c: pages in, policy told, chunk settled) and cease to be
 * (drop.c: pages out, credits back).  The caller owns the chunks, FETCHING or BUSY, and their
 * credits. AS.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_INSTALL_H
#define SODA_HOST_INSTALL_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"

struct soda_install {
	uint32_t id;
	int16_t block; /* of the store that faulted; -1: a load */
	bool ahead;    /* fetched ahead of its fault */
	bool shared;   /* of an object in the node's store: asked for and settled in another way */
	bool late;     /* the request before was late: the store is not waited for once more */
};

/*
 * Install n chunks with consecutive ids from consecutive memory at src, one
 * object, only the last one short.  Of several only the first may be for a store; the others
 * become dirty with it if all of it is opened.
 * On failure the chunks go back to REMOTE (or ZERO), credits are returned, and the
 * error is that of the page operation (core/page_ops.h).
 */
int soda_install_run(struct soda_region *r, const struct soda_install *in, uint32_t n,
		     const void *src);

/*
 * Whether a peer that has our userfaultfd may install the chunk, and how.  Only where a
 * store cannot follow before we know of it, so that a chunk of which half was installed can be
 * dropped again; and not where we want to take a fingerprint of the content first (guess.h).
 */
bool soda_install_by_peer(const struct soda_region *r, const struct soda_install *in,
			  bool *protect_p);
/* The peer has installed the chunk's pages: settle the chunk, which is resident now. */
void soda_install_settle(const struct soda_install *in);

/* soda_install_run() with zeros, of at most 2 MiB, for chunks that were never written. */
int soda_install_zeros(struct soda_region *r, const struct soda_install *in, uint32_t n);

/*
 * The kernel has dropped the first bytes of a BUSY chunk and refused to drop the rest: install
 * zeros in the place of those bytes.  Ends the process where there is no memory for them.
 */
void soda_install_refill(uint32_t id, size_t bytes);

/* soda_install_cancel() of a chunk of which the peer may have installed some pages. */
void soda_install_undo(uint32_t id);

/* A fetch failed: the chunk goes back to where it was, the credit too. */
void soda_install_cancel(uint32_t id);

/*
 * First touches: chunks that were never written become zeros.  Where a thread goes through an
 * object in order, one fault may fill several of them.
 */

/*
 * Whether chunk id, which is FETCHING now, may be filled though no thread has touched it.  A filled
 * chunk may count as stored to, and is then read when it is written back; so the answer must be no
 * for a chunk that the program has closed (region.h), and only a library that sees every mprotect()
 * can give it.  Set before the runtime starts; NULL, the default: a fault fills one chunk. AS.
 */
extern bool (*soda_fill_allowed)(uint32_t id);

/*
 * The caller has made chunk id FETCHING, from ZERO, and has a credit for it.  block: of the store
 * that faulted; -1: a load.  The chunks that follow are filled too, as long as there is room
 * without an eviction, and in the same way: where a store opens chunk id as a whole, all count as
 * stored to. 0, or the error of the page operation: nothing was filled, and the credit is back. AS.
 */
int soda_fill(struct soda_thread *t, struct soda_region *r, uint32_t id, int block);

/* Chunks go: drop.c. */

enum { SODA_DROP_MAX = 32 };

/*
 * Drop up to SODA_DROP_MAX chunks that the caller has made BUSY and taken out of the policy's
 * lists: their pages go, waiters are woken, credits come back.  ids is sorted in place. Returns how
 * many were dropped; chunks that the kernel refuses to drop become CLEAN again.  One of which the
 * kernel drops a part counts as dropped: what stays has the server's content. AS.
 */
int soda_drop_chunks(uint32_t *ids, int n);

/*
 * The kernel has refused to drop pages, which stay in memory; the first refusal is logged.
 * partly: of a chunk that is no longer resident, with the server's content. AS.
 */
void soda_drop_refused(int err, bool partly);
/* Whether chunks that are not resident may have pages of old content. AS. */
bool soda_drop_left_pages(void);

#endif
