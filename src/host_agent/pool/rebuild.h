/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copies of slabs with redundancy (object/copies.h): opened and closed, given up when their
 * server is away, and rebuilt by a thread of its own, "soda-rebuild", while the program runs.
 *
 * A stale copy is rebuilt on its server, if that is there again, else on another one that has no
 * copy of the slab.  There it always gets a new region, of zeros:
 *
 *   1. the copy is written: each write-back that begins now goes there, too
 *   2. chunk by chunk: what is REMOTE is read from a current copy and written to the new one, and
 *      is FETCHING meanwhile, so that nobody stores to it, and no write-back of it is under way;
 *      what is resident becomes dirty, all of it, and so is written to all copies before it is
 *      dropped; what is ZERO is zeros there already
 *   3. the copy is current
 *
 * A copy whose server is drained moves in the same way: the new one is made in the place that is
 * free, and the old one is given up and closed when the new one is current, so that there is never
 * a copy less.  A slab without redundancy gets a copy for that: the region that it has.
 *
 * So content never replaces newer content: there is one WRITE of a chunk at a time, and its source
 * is either memory or, while the chunk is not in memory, a copy that has its latest write-back.
 */
#ifndef SODA_HOST_REBUILD_H
#define SODA_HOST_REBUILD_H

#include <stdint.h>

#include "host_agent/object/region.h"
#include "pool/pool.h"

/* What is known of the members now: one that cannot be reached, or is drained, takes no slab. */
void soda_members_look(struct soda_candidate *members, uint32_t n);

/*
 * Open copy k of the slab, whose bytes are set, on one of the members.  Those of its failure domain
 * are marked as refused then, as are those that do not take it.  0, or the last refusal, which is
 * also kept in *refusal_p: -ENOTCONN before the slab's first copy, and of use for the next one,
 * whose members are fewer.  api_lock held.
 */
int soda_copy_open(struct soda_region *r, uint32_t k, struct soda_candidate *members,
		   int *refusal_p, struct soda_why *why);
/* The slab has its addresses: so has the copy. */
void soda_copy_fit(struct soda_region *copy, const struct soda_region *r);
/* Close its region, now or when its server is there again. api_lock held. */
void soda_copy_close(struct soda_region *copy);

/* The server is away: what has another copy goes on without. The link's keeper calls this. */
void soda_rebuild_expel(struct soda_link *link);

/*
 * Start the thread, unless it runs; before the first slab with copies is made, and with api_lock. 0
 * or negative errno.  stop: end it; the caller may hold api_lock.
 */
int soda_rebuild_start(void);
void soda_rebuild_stop(void);
/* The slab is about to be freed: it is not rebuilt any more when this returns. */
void soda_rebuild_leave(struct soda_region *r);

struct soda_rebuild_counts {
	uint64_t expelled;  /* how often copies became stale */
	uint64_t bytes;	    /* that were copied */
	uint64_t completed; /* copies that were rebuilt */
	uint64_t moved;	    /* from servers that are drained, to others */
};
void soda_rebuild_count(struct soda_rebuild_counts *out);
/* Slabs with fewer copies than they should have. Looks at all. */
uint64_t soda_rebuild_missing(void);

#endif
