/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty chunks on their way to the server: the queue that they wait in, and senders, each of which
 * sends them over one connection:
 *
 *   marked QUEUED, in the queue -> taken from there: BUSY, write-protected
 *         -> CLEAN + SENDING, WRITEs posted
 *         -> all acknowledged: BACKED; to be evicted: BUSY, dropped
 *         -> failed: the mask is put back, DIRTY; queued again where the connection
 *            failed it, not the server
 *
 * The WRITEs are sent straight from the chunk's pages, or from a copy of what the program has
 * closed.  One caller of a sender at a time; which threads have one, and when they send, is
 * writeback.h's.  All AS.
 */
#ifndef SODA_HOST_SENDER_H
#define SODA_HOST_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/pages/install.h"
#include "transport/api/transport.h"

/* Why a chunk is sent: to be dropped then; because somebody waits for it. */
enum { SODA_WB_EVICT = 1, SODA_WB_SYNC = 2 };

enum { SODA_SENDER_BATCH = 32 };    /* chunks that are taken from the queue together */
enum { SODA_SENDER_PARTS_MAX = 8 }; /* WRITEs of one chunk: runs of its sixteen blocks */

struct soda_sending {
	uint32_t id;
	uint32_t mask; /* blocks that it carries */
	uint32_t bytes;
	uint16_t parts; /* WRITEs not answered yet */
	uint8_t why;
	bool used, failed; /* failed: refused, or */
	bool lost;	   /* not answered, as the connection failed */
	void *copy;	   /* of a chunk that may not be read (closed_pages.h), or NULL */
};

struct soda_sender {
	struct soda_thread *t;	  /* who counts */
	struct soda_conn *conn;	  /* depth: max * SODA_SENDER_PARTS_MAX or more */
	struct soda_sending *ops; /* max of them, zeroed; max: SODA_SENDER_BATCH or fewer */
	uint32_t max, used;
	uint32_t gone[SODA_DROP_MAX]; /* BUSY, to be dropped */
	int gone_n;
};

/* Empty the queue. */
void soda_sender_queue_clear(void);

/*
 * Queue chunks whose QUEUED flag the caller has set; returns how many.  Never waits:
 * where the queue is full the flag of the rest is taken back.
 */
int soda_sender_queue_put(const uint32_t *ids, int n, int why);

/*
 * Goes up each time that the queue is full and flags are taken back, before they are: who relies
 * on a flag that another one has set looks at it.
 */
uint32_t soda_sender_queue_refused(void);

/* fn for each place in the queue; nobody changes it meanwhile. For audit.c. */
void soda_sender_queue_each(void (*fn)(uint32_t id, int why, void *arg), void *arg);

/* What the queue takes of memory. */
uint64_t soda_sender_queue_bytes(void);
/* How many are in the queue, about. */
uint32_t soda_sender_queue_waiting(void);

/*
 * Take what waits, as far as there is room, post it and flush.  How many chunks were taken;
 * an error of the connection: then soda_sender_lose.
 */
int soda_sender_send(struct soda_sender *s);
/*
 * Answers within timeout_ns, and what follows. How many; 0: none, and nothing is left to be
 * dropped; an error, as above.
 */
int soda_sender_collect(struct soda_sender *s, int64_t timeout_ns);
/*
 * The connection has failed with err: nothing that is under way will be answered.  -EFAULT is our
 * own: some of the data cannot be read in the ordinary way.
 */
void soda_sender_lose(struct soda_sender *s, int err);
/* Drop what was acknowledged and is to go; done in batches by the others, at the end by this. */
void soda_sender_drop(struct soda_sender *s);

#endif
