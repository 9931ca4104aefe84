/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty chunks that wait for their write-back, and the next ones of them to go: taken from
 * the queue, made BUSY, write-protected.  For writeback.c.
 */
#ifndef SODA_HOST_OUTGOING_H
#define SODA_HOST_OUTGOING_H

#include <stdint.h>

enum { SODA_OUTGOING_MAX = 32 };

struct soda_outgoing {
	uint32_t id;
	uint32_t mask; /* blocks to send; 0: nobody stored to it, it is CLEAN again */
	int why;       /* SODA_WB_EVICT, SODA_WB_SYNC */
};

/* Empty the queue. */
void soda_outgoing_start(void);

/* As soda_writeback_queue, but for the thread's wake-up. AS. */
int soda_outgoing_queue(const uint32_t *ids, int n, int why);

/*
 * Up to max chunks, and up to SODA_OUTGOING_MAX, ordered by address.  Those with a mask are
 * BUSY, protected, and the caller's to settle; the others are CLEAN.  Returns how many; 0 also
 * where those that were queued had nothing to send.  Of each, soda_outgoing_leaves is still to be
 * called.
 */
int soda_outgoing_take(struct soda_outgoing *out, int max);

/* How many are in the queue, about. AS. */
uint32_t soda_outgoing_waiting(void);

/* A chunk that was queued for this reason has been dealt with. */
void soda_outgoing_leaves(int why);

#endif
