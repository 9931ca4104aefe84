/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP, the side that connects.
 *
 * queue.c has the requests of a data connection, without any system call: where to send from,
 * where to receive to, and what follows from how many bytes it was.  Async-signal-safe after
 * create.
 *
 * Requests wait in a ring of slots:
 *
 *      done <= received <= sent <= posted          (free-running counters)
 *       |       |           |       +- queued by post
 *       |       |           +- handed to the socket
 *       |       +- reply is here
 *       +- reported
 *
 * Replies come in the order of the requests, so one receive can aim at header
 * and destination of the oldest replies expected, and usually gets a whole READ
 * at once.  Where the peer sends less (an error), what lies in the wrong place
 * is moved to the stash, which is used up before the next receive.
 *
 * READs of neighbours into neighbouring memory may travel as one request, so that
 * small chunks in a row cost what large ones do: the first slot has the request and
 * the reply's header, those that follow it only their part of the data.
 */
#ifndef SODA_TCP_H
#define SODA_TCP_H

#include "transport/api/transport_impl.h"

#define SODA_TCP_PREFIX "tcp://"

/* A data connection on a connected socket that has said HELLO; owns fd. -ENOMEM. */
int soda_tcp_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p);

enum {
	SODA_TCP_RX_WINDOW = 16, /* replies that one receive aims at */
	SODA_TCP_TX_IOV = 64,
};

struct soda_tcp_slot {
	uint64_t cookie;
	uint64_t tag;
	uint8_t *data;
	uint32_t bytes;
	uint32_t total; /* of the request that begins here; 0: a part of the one before */
	bool write;
	int status;
	uint8_t reply[SODA_WIRE_HEAD_BYTES];
};

struct soda_tcp_queue {
	uint32_t mask; /* slots - 1 */
	uint32_t done, received, sent, posted;
	uint32_t last;	  /* slot of the last request */
	size_t tx_offset; /* bytes of request `sent` that have gone */
	size_t rx_offset; /* bytes of reply `received` that have come */
	uint64_t next_tag;
	struct soda_tcp_slot *slots;
	uint8_t (*requests)[SODA_WIRE_HEAD_BYTES];
	uint8_t *stash;
	size_t stash_begin, stash_end;
	struct iovec rx[2 * SODA_TCP_RX_WINDOW];
	struct iovec tx[SODA_TCP_TX_IOV];
};

/* 0, -ENOMEM (destroy it all the same). */
int soda_tcp_queue_create(struct soda_tcp_queue *q, uint32_t depth);
void soda_tcp_queue_destroy(struct soda_tcp_queue *q);

void soda_tcp_queue_post(struct soda_tcp_queue *q, const struct soda_post *p);
/* The latest request carries SODA_WIRE_POLLING. */
void soda_tcp_queue_mark_polling(struct soda_tcp_queue *q);

/* What is to be sent next, in q->tx: how many pieces. */
int soda_tcp_queue_aim_send(struct soda_tcp_queue *q);
void soda_tcp_queue_sent(struct soda_tcp_queue *q, size_t bytes);

/*
 * Where the next bytes go, in q->rx: how many pieces, and of how many bytes; at
 * least one reply must be due.  Then what came. 0 or -EPROTO.
 */
int soda_tcp_queue_aim_recv(struct soda_tcp_queue *q, size_t *total_p);
int soda_tcp_queue_received(struct soda_tcp_queue *q, size_t bytes);

static inline bool soda_tcp_queue_has_stash(const struct soda_tcp_queue *q)
{
	return q->stash_begin != q->stash_end;
}

/* Feed the oldest reply from the stash: its header, or a part of its data. 0 or -EPROTO. */
int soda_tcp_queue_use_stash(struct soda_tcp_queue *q);

/* Completions, oldest first: how many. */
int soda_tcp_queue_report(struct soda_tcp_queue *q, struct soda_done *done, int max);

#endif
