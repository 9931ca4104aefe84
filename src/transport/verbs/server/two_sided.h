/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two-sided daemons on verbs, the side that listens.
 *
 *   pool.c      receive buffers, all clients' in one shared receive queue
 *   worker.c    threads: completions of their connections' requests and answers
 *   conn.c      one connection: its requests, their answers in order, its life
 *
 * A request arrives in the next buffer of the shared receive queue, whichever client sent it.  That
 * of a READ goes back at once; that of a WRITE is the daemon's until soda_request_free,
 * and another one takes its place, as long as the pool may grow.  Where no buffer is
 * posted the clients' adapters try again until one is.  A client has at most
 * SODA_VERBS_CREDITS requests without an answer, or loses its connection; and the answers
 * of its WRITEs wait while the daemon has more than SODA_VERBS_HELD buffers of it.  That ends:
 * a buffer is held until it is written to the server, or by an answer that waits here, of
 * which there are fewer.
 *
 * Answers are sent from the daemon's memory by the thread that has them (memory.h), or copied.
 *
 * The thread of connection events makes connections and ends them: their queue pairs go
 * into error; once nobody looks at one and no request is pending, the queue pair is
 * destroyed, and with it goes every use of the daemon's memory; then `gone`.  But not before
 * SODA_VERBS_DRAIN_MS: the receive of a message that has come in half is its queue pair's until it
 * comes back as flushed, and of a queue pair that is destroyed adapters report nothing more.
 *
 * Lock order: listener, worker, connection, pool; the daemon is never called with one held.
 */
#ifndef SODA_VERBS_TWO_SIDED_H
#define SODA_VERBS_TWO_SIDED_H

#include "transport/api/spin.h"
#include "transport/verbs/link/registered.h"
#include "transport/verbs/server/server.h"

enum {
	SODA_VERBS_MESSAGE = 64 << 10, /* most data of one request */
	SODA_VERBS_CREDITS = 16,
	SODA_VERBS_HELD = 4 * SODA_VERBS_CREDITS,
	SODA_VERBS_ANSWERS = 4 * SODA_VERBS_CREDITS, /* power of two: not answered, or not sent */
	SODA_VERBS_UNSENT = 2 * SODA_VERBS_CREDITS,  /* of them in the queue pair */
	SODA_VERBS_BUCKETS = 64,
};

struct soda_verbs_conn;

/* A request; the daemon's until done or free. */
struct soda_verbs_request {
	struct soda_request rq; /* first */
	struct soda_verbs_conn *conn;
	uint32_t turn; /* of its answer */
};

/* A receive buffer, and the WRITE that came in it. */
struct soda_verbs_buffer {
	struct soda_verbs_request ask; /* first */
	struct soda_wire_code code;    /* of a WRITE of parity that has no data */
	struct soda_verbs_pool *pool;
	struct soda_verbs_buffer *next; /* guarded by the pool's lock */
	uint8_t *head;			/* the first bytes, as many as a WRITE's head has */
	uint8_t *data;
	uint32_t lkey;
};

/* An answer's place in the order of the requests. */
struct soda_verbs_answer {
	struct soda_verbs_request read; /* a READ's request */
	struct soda_span span;		/* READ that succeeded: what is sent; bytes 0: nothing */
	uint64_t dest_addr;
	uint32_t dest_rkey;
	uint16_t status; /* errno */
	bool write, ready;
	uint8_t *copy; /* span's data, where the device cannot reach them */
	struct ibv_mr *copy_mr;
};

struct soda_verbs_conn {
	struct soda_verbs_peer p; /* first */
	struct soda_verbs_worker *worker;
	struct soda_verbs_conn *next; /* guarded by worker->lock */
	struct soda_verbs_conn *rung_next;
	uint32_t qp_num;
	uint64_t ended_ns;  /* `ending` since; the events thread's, and so the next */
	bool drains;	    /* it ends when it has drained, and not before */
	bool closing, rung; /* the worker's */
	uint8_t *tags;	    /* of the answers */
	struct ibv_mr *tags_mr;
	pthread_mutex_t lock; /* guards all below */
	bool ending, gone;
	uint32_t pins;	  /* looks of the worker */
	uint32_t pending; /* requests without an answer */
	uint32_t held;	  /* WRITEs not freed */
	uint32_t refs;	  /* itself, and `held` */
	uint32_t taken, posted, reaped;
	struct soda_verbs_answer answers[SODA_VERBS_ANSWERS];
};

/* pool.c */

/* On the listener's behalf; lives until the last buffer has come back. 0, or why. */
int soda_verbs_pool_create(struct ibv_context *device, struct soda_verbs_pool **pool_p,
			   struct soda_why *why);
/* Nobody receives any more. */
void soda_verbs_pool_close(struct soda_verbs_pool *pool);
struct ibv_srq *soda_verbs_pool_srq(const struct soda_verbs_pool *pool);
struct soda_regcache *soda_verbs_pool_regcache(const struct soda_verbs_pool *pool);
/* Something came in it; keeps: it will come back by soda_verbs_buffer_put, another one is to
 * follow. */
void soda_verbs_buffer_taken(struct soda_verbs_buffer *b, bool keeps);
void soda_verbs_buffer_put(struct soda_verbs_buffer *b);
/* How many receives there may be at a time. */
uint32_t soda_verbs_pool_most(const struct soda_verbs_pool *pool);

/* worker.c */

struct soda_verbs_worker {
	struct soda_verbs_workers *all;
	pthread_t thread;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	unsigned unacked; /* events of the channel */
	bool started;
	unsigned room; /* for connections; the events thread's */
	_Atomic unsigned load;
	pthread_mutex_t lock;
	struct soda_verbs_conn *conns[SODA_VERBS_BUCKETS]; /* by qp_num; guarded by lock */
	/* the thread's own */
	struct soda_verbs_conn *rung;
	bool polls; /* the last request came from a client that polls */
	struct soda_spin spin;
};

/* One device's. */
struct soda_verbs_workers {
	struct soda_verbs_workers *next; /* the events thread's */
	struct soda_listener *listener;
	struct ibv_context *device;
	struct soda_verbs_pool *pool;
	int stop_fd;
	_Atomic bool stop;
	unsigned n;
	struct soda_verbs_worker at[];
};

static inline struct soda_verbs_conn **soda_verbs_worker_bucket(struct soda_verbs_worker *w,
								uint32_t qp_num)
{
	return &w->conns[qp_num % SODA_VERBS_BUCKETS];
}

/* Those of the device, made if there are none. 0, or why. The events thread. */
int soda_verbs_workers_get(struct soda_verbs_listener *vl, struct ibv_context *device,
			   struct soda_verbs_workers **all_p, struct soda_why *why);
/* At the end of the listener, which has no connection left. */
void soda_verbs_workers_end(struct soda_verbs_listener *vl);

/* conn.c */

void soda_verbs_conn_init(struct soda_verbs_conn *c);
/* A connection's queues, and its worker. Undone by soda_verbs_conn_abandon. The events thread. */
int soda_verbs_conn_prepare(struct soda_verbs_listener *vl, struct soda_verbs_conn *c,
			    struct soda_why *why);
/* The welcome's second part. */
void soda_verbs_conn_say(const struct soda_listener *l, struct soda_wire_two_sided *how);
/* It was not accepted. */
void soda_verbs_conn_abandon(struct soda_verbs_conn *c);
/*
 * End it. True: nothing is pending, and its queue pair is gone; the rest follows by
 * soda_verbs_conn_free. False: ask again, when the listener is woken, or if it drains after a
 * while. The events thread.
 */
bool soda_verbs_conn_end(struct soda_verbs_conn *c);
/* After `gone`. Its memory goes with the last WRITE's soda_request_free. */
void soda_verbs_conn_free(struct soda_verbs_conn *c);
/* The worker looks at it no longer; while it does, it stays. */
void soda_verbs_conn_unpin(struct soda_verbs_conn *c);

static inline struct soda_verbs_answer *soda_verbs_conn_answer(struct soda_verbs_conn *c,
							       uint32_t turn)
{
	return &c->answers[turn % SODA_VERBS_ANSWERS];
}

static inline uint8_t *soda_verbs_conn_tag(const struct soda_verbs_conn *c, uint32_t turn)
{
	return c->tags + (size_t)(turn % SODA_VERBS_ANSWERS) * SODA_WIRE_TAG_BYTES;
}

/* A request came in the buffer, which it takes. NULL, or what is wrong with it. */
const char *soda_verbs_conn_request(struct soda_verbs_conn *c, struct soda_verbs_buffer *b,
				    const struct ibv_wc *wc);
/* Answers up to this one have been sent. */
void soda_verbs_conn_sent(struct soda_verbs_conn *c, uint32_t end);
/* It cannot go on: the events thread is to end it. Any thread. */
void soda_verbs_conn_fail(struct soda_verbs_conn *c);
/* One reference less; the lock is held, and released. */
void soda_verbs_conn_unref_locked(struct soda_verbs_conn *c);

/* wr_id of an answer's SEND; a receive's is the address of its buffer. */
static inline uint64_t soda_verbs_send_id(uint32_t turn)
{
	return (uint64_t)turn << 1 | 1;
}

#endif
