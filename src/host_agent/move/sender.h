/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Write-back of dirty chunks: the queue in which they wait, and senders, each of which sends chunks
 * over one connection:
 *
 *   marked QUEUED, in the queue -> taken from there: BUSY, write-protected
 *         -> CLEAN + SENDING, WRITEs posted
 *         -> all WRITEs acknowledged: BACKED; if it was to be evicted: BUSY, dropped
 *         -> a WRITE refused by the server: DIRTY, with the dirty mask from before
 *         -> the connection failed: the same, and QUEUED again
 *
 * A chunk of a slab with copies (object/copies.h) goes to their servers one after the other: when
 * one has acknowledged it waits, still SENDING, in the relay of the next one's server, whose sender
 * takes it from there.  A thread may store to the chunk meanwhile, and the copies get different
 * content: then the chunk is DIRTY, and all of them get those blocks again before it is dropped.
 * Through an agent in front of the pool the data travel to it once: it keeps those of the WRITE to
 * the first server for the WRITE to the next one, which says where they were.  With erasure codes
 * it keeps those of all pieces of data, of a chunk that is sent as a whole, and computes parity.
 *
 * The WRITEs are sent straight from the chunk's pages; of pages that the program has closed
 * (closed_pages.c), from a copy; of a sealed object, from a place of sealing.h, which the chunk
 * keeps until all copies' servers have acknowledged it: they get the same bytes.  A sender is one
 * thread's at a time; writeback.h decides which threads have one and when they send.  All functions
 * are AS.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_SENDER_H
#define SODA_HOST_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/pages/install.h"
#include "transport/api/transport.h"

/*
 * Why a chunk is sent: to be dropped afterwards; because a thread waits for it to be on the server.
 */
enum { SODA_WB_EVICT = 1, SODA_WB_SYNC = 2 };

enum { SODA_SENDER_BATCH = 32 };    /* chunks that are taken from the queue together */
enum { SODA_SENDER_ANSWERS = 32 };  /* collected in one call */
enum { SODA_SENDER_PARTS_MAX = 8 }; /* WRITEs of one chunk: runs of its sixteen blocks */

struct soda_sending {
	uint32_t id;
	uint32_t mask; /* blocks that are sent */
	uint32_t bytes;
	uint16_t parts; /* WRITEs not answered yet */
	uint8_t why;
	uint8_t copy_k;			 /* of a slab with copies: which one it is sent to... */
	uint32_t done;			 /* ...and, a bit each, which have acknowledged it */
	const struct soda_region *there; /* that copy's region when it was posted */
	/*
	 * An agent in front of the pool has kept the data of the WRITEs to the copy before this
	 * one: that server's link, and 1 more, and its region.  0: they travel.
	 */
	uint8_t from;
	uint16_t from_region;
	uint32_t kept_by; /* with erasure codes: the copies, a bit each, whose piece it has kept */
	bool kept;	  /* it keeps those of these WRITEs */
	bool again;	  /* it keeps what is sent no more: the data have to travel */
	bool coded; /* the WRITE is of parity, which the agent computes; `code` says from what */
	bool used;
	bool failed;  /* the server has refused a WRITE, or `lost` */
	bool lost;    /* the connection has failed */
	bool sealed;  /* `copy` is one of sealing.h's places, with the blocks sealed */
	void *stripe; /* a place of stripe.h with the piece of parity that is sent, or NULL */
	void *copy;   /* what is sent, where the chunk itself may not be read (closed_pages.c), or
			 NULL */
	uint8_t code_bytes;
	uint8_t code[SODA_WIRE_CODE_BYTES_MAX];
};

/* A chunk that has been taken from the queue. */
struct soda_outgoing {
	uint32_t id;
	uint32_t mask;	 /* blocks to send; 0: nothing to send, it is CLEAN again */
	int why;	 /* SODA_WB_EVICT, SODA_WB_SYNC */
	bool unreadable; /* the program has closed pages of it: a copy is sent (closed_pages.c) */
	void *sealed;	 /* one of sealing.h's places, with the blocks sealed, or NULL */
};

/* A chunk that one copy's server has acknowledged, and that waits for the next one's. */
struct soda_relayed {
	uint32_t id;
	uint16_t mask;
	uint8_t why;
	uint32_t done;
	uint8_t from; /* as in soda_sending */
	uint16_t from_region;
	uint32_t kept_by;
	void *sealed; /* the place of sealing.h with the blocks, or NULL */
};

/* Large arrays lie here, and not on the stack of a thread's signal handler: docs/limits.md. */
struct soda_sender {
	struct soda_thread *t;	  /* whose counters count what is sent */
	uint32_t server;	  /* to which `conn` leads: index of its link */
	uint32_t station;	  /* with whose engine it seals: object/sealing.h */
	struct soda_conn *conn;	  /* depth: max * SODA_SENDER_PARTS_MAX or more */
	struct soda_sending *ops; /* max of them, zeroed; max: SODA_SENDER_BATCH or fewer */
	uint32_t max, used;
	uint32_t put_back;	      /* chunks, by the last batch, for which there was no place */
	uint32_t gone[SODA_DROP_MAX]; /* chunks to be dropped: BUSY, acknowledged */
	int gone_n;
	/* of one call each: what was taken from the queue and from the relay, answers */
	struct soda_outgoing out[SODA_SENDER_BATCH];
	struct soda_relayed relayed[SODA_SENDER_BATCH];
	struct soda_done done[SODA_SENDER_ANSWERS];
};

/* Empty the queue of chunks for that server. */
void soda_sender_queue_clear(const struct soda_link *link);

/*
 * Queue chunks, each for its server, whose QUEUED flag the caller has set.  Returns how many were
 * queued; where the queue is full, clears the flag of the others.  Never waits.
 */
int soda_sender_queue_put(const uint32_t *ids, int n, int why);

/*
 * How many times the queue was full and QUEUED flags had to be cleared.  The number goes up before
 * the flags go, so that a thread that waits for a chunk which another thread has queued sees that
 * it must queue the chunk itself.
 */
uint32_t soda_sender_queue_refused(void);

/* Call fn for each place in the queue, which no thread may change meanwhile. For audit.c. */
void soda_sender_queue_each(void (*fn)(uint32_t id, int why, void *arg), void *arg);

/* The same for the relays. */
void soda_sender_relays_each(void (*fn)(uint32_t id, int why, void *arg), void *arg);
/* Whether a sender may have chunks in its hands that it has taken from a relay. */
bool soda_sender_relays_taken(void);

/*
 * The sender's server is away: chunks in its queue and its relay whose copies there are not written
 * any more go to those of another server, or are done.
 */
void soda_sender_reroute(struct soda_sender *s);

/* Memory that the queue takes. */
uint64_t soda_sender_queue_bytes(void);
/* About how many chunks are in the queue for that server; and in all queues. */
uint32_t soda_sender_queue_waits_for(const struct soda_link *link);
uint32_t soda_sender_queue_waiting(void);

/*
 * Take chunks from the queue, as many as the sender has room for, post their WRITEs and flush.
 * Where the server is not UP they wait again.  How many chunks were taken, but for those; an error
 * of the connection: the caller then calls soda_sender_lose.
 */
int soda_sender_send(struct soda_sender *s);
/*
 * Wait at most timeout_ns for answers, and settle their chunks.  How many answers; 0: none, and
 * every chunk that was to be dropped has been; an error of the connection: the caller then calls
 * soda_sender_lose.
 */
int soda_sender_collect(struct soda_sender *s, int64_t timeout_ns);
/*
 * The connection has failed with err, and soda_server_report() has been told: chunks under way are
 * dirty again, and queued again; nobody posts them before the next epoch.  -EFAULT means that the
 * kernel could not read the data of a WRITE, as the program has closed its pages.
 */
void soda_sender_lose(struct soda_sender *s, int err);
/*
 * Drop the chunks that are to be dropped and have not been; send and collect drop them in batches.
 */
void soda_sender_drop(struct soda_sender *s);

#endif
