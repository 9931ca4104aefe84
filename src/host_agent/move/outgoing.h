/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty chunks that wait for their write-back, and the next ones of them to go: taken from
 * the queue, made BUSY, write-protected.  For writeback.c.
 */
#ifndef SODA_HOST_OUTGOING_H
#define SODA_HOST_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>

enum { SODA_OUTGOING_MAX = 32 };

struct soda_outgoing {
	uint32_t id;
	uint32_t mask;	 /* blocks to send; 0: nobody stored to it, it is CLEAN again */
	int why;	 /* SODA_WB_EVICT, SODA_WB_SYNC */
	bool unreadable; /* the program has closed some of it: see closed_pages.h */
};

/* Empty the queue. */
void soda_outgoing_start(void);

/* As soda_writeback_queue, but for the thread's wake-up. AS. */
int soda_outgoing_queue(const uint32_t *ids, int n, int why);

/*
 * Goes up each time that the queue is full and flags are taken back, before they are: who relies
 * on a flag that another one has set looks at it.
 */
uint32_t soda_outgoing_refused(void);

/*
 * A chunk that was taken comes back, with the flag QUEUED set: there is always a place for it.
 * soda_outgoing_leaves is still to be called. AS.
 */
void soda_outgoing_return(uint32_t id, int why);

/*
 * Up to max chunks, and up to SODA_OUTGOING_MAX, ordered by address.  Those with a mask are
 * BUSY, protected, and the caller's to settle; the others are CLEAN.  Returns how many; 0 also
 * where those that were queued had nothing to send.  Of each, soda_outgoing_leaves is still to be
 * called.
 */
int soda_outgoing_take(struct soda_outgoing *out, int max);

/* fn for each place in the queue; nobody changes it meanwhile. For audit.c. */
void soda_outgoing_each(void (*fn)(uint32_t id, int why, void *arg), void *arg);

/*
 * A read of one has failed with -EFAULT: there are dirty chunks that the program has closed
 * (mprotect). From now on each chunk is looked at when it is taken; before, none was, as that costs
 * a system call for each. AS.
 */
void soda_outgoing_doubt(void);
/* Whether these blocks of the chunk may be read. AS. */
bool soda_outgoing_readable(uint32_t id, uint32_t mask);

/* What the queue takes of memory. */
uint64_t soda_outgoing_bytes(void);
/* How many are in the queue, about. AS. */
uint32_t soda_outgoing_waiting(void);

/* A chunk that was queued for this reason has been dealt with. */
void soda_outgoing_leaves(int why);

#endif
