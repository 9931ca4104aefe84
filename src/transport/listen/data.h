/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One data connection of the listening side as a state machine without any
 * system call: an engine asks where to receive and what to send, does it in
 * whatever way, and reports how many bytes it was.
 *
 * At most one receive and one send are under way.  Requests are answered in
 * their order.  READs are sent from the region's memory.  WRITEs are received
 * into it, apart from what came together with their header (at most RX_BYTES).
 * While TX_REPLIES answers wait, nothing is received.
 *
 * Two-sided daemons: an answer's place is taken when the request comes in, and the
 * answer is ready when the daemon says so (soda_request_done), which puts the
 * connection on its worker's ready list.
 */
#ifndef SODA_SERVER_DATA_H
#define SODA_SERVER_DATA_H

#include <sys/socket.h>

#include "transport/listen/server.h"

enum {
	SODA_RX_BYTES = 1024,		 /* requests not yet looked at; a READ has 64 bytes */
	SODA_TX_REPLIES = 64,		 /* answers that wait for the socket; a power of two */
	SODA_TX_BATCH = 16,		 /* answers in one send */
	SODA_TX_BATCH_BYTES = 512 << 10, /* and bytes, beyond the first: others wait meanwhile */
};

struct soda_answer {
	struct soda_span span; /* bytes 0: no data follows, nothing to release */
	_Atomic bool ready;    /* release after the rest; acquire before it is sent */
	uint8_t head[SODA_WIRE_HEAD_BYTES];
};

/* Whether something that the peer is to do gets done (soda_stream_conn_look). */
struct soda_stuck {
	uint32_t seen;	/* its number at the last look */
	unsigned looks; /* so many in a row have found this one */
};

struct soda_stream_conn {
	struct soda_peer peer;
	struct soda_worker *worker;
	struct soda_stream_conn *next, *prev; /* of the worker's list */
	bool closing;			      /* no further receive or send is to start */
	bool wants_polling;		      /* the last request came from a client that polls */
	bool same_host;			      /* the client runs on this machine, by TCP */
	/* whose requests these are, at this worker; NULL: nobody counts */
	struct soda_flow *flow;
	struct soda_flow_share *share;
	bool held;			    /* a request waits for its turn, or for the rate */
	uint64_t due_ns;		    /* of the rate; 0: with the next round */
	struct soda_stream_conn *held_next; /* of the worker's list */
	/* the engine's */
	bool rx_busy, tx_busy;
	bool watched;	 /* epoll: it is in the set */
	unsigned events; /* epoll: what is awaited */
	bool rx_drained; /* io_uring: the socket had no more at the last receive */
	/* two-sided */
	uint32_t pending; /* requests not answered, or answered and not yet collected */
	bool rung;	  /* requests since the last doorbell: it is on worker->rung */
	struct soda_stream_conn *rung_next;
	bool paused;			     /* there was no memory for a WRITE: nothing is taken */
	struct soda_stream_conn *ready_next; /* guarded by worker->lock, and so below */
	bool on_ready;
	bool resumed;
	uint32_t answered; /* to be collected from `pending` */
	/* a WRITE whose data is under way */
	bool writing;
	struct soda_request *write_rq; /* two-sided: what will tell of it */
	bool write_keep;	       /* SODA_WIRE_KEEP */
	bool discard;		       /* its translation failed: the data goes nowhere */
	int write_status;
	uint32_t write_left;
	struct soda_wire_write write;
	struct soda_span write_span;
	uint32_t writes; /* begun; their number is that of the one under way */
	struct soda_stuck half, untaken;
	/* bytes received and not yet looked at: rx[rx_begin..rx_end) */
	uint32_t rx_begin, rx_end;
	/* answers: tx_head is the oldest not wholly sent, tx_offset how much of it has gone */
	uint32_t tx_head, tx_tail;
	size_t tx_offset;
	struct msghdr rx_msg, tx_msg;
	struct iovec rx_iov[2], tx_iov[2 * SODA_TX_BATCH];
	uint8_t rx[SODA_RX_BYTES];
	struct soda_answer tx[SODA_TX_REPLIES];
};

/*
 * Where to receive: rx_msg is filled. False: not now (answers wait, or closing).
 * scratch takes the data of refused WRITEs.
 */
bool soda_stream_conn_aim_recv(struct soda_stream_conn *c, void *scratch, size_t scratch_bytes);
/* The receive's result: bytes, 0 at the end of the stream, or negative errno. */
void soda_stream_conn_received(struct soda_stream_conn *c, int result);
/* Whether aim_recv would be true. */
bool soda_stream_conn_may_recv(const struct soda_stream_conn *c);
/* What to send: tx_msg is filled. False: nothing. */
bool soda_stream_conn_aim_send(struct soda_stream_conn *c);
/* The send's result: bytes or negative errno. */
void soda_stream_conn_sent(struct soda_stream_conn *c, int result);
/* Answers have become ready, or the connection may go on: it comes from the ready list. */
void soda_stream_conn_continue(struct soda_stream_conn *c, uint32_t answered, bool resumed);
/*
 * Called SODA_STUCK_LOOKS times in stuck_timeout_ms: it is closing from now on if one WRITE has
 * been under way, or one answer ready, at one look more than those.  So time that the daemon itself
 * stood still for ends no connection.
 */
void soda_stream_conn_look(struct soda_stream_conn *c);
/* It is held no more: its requests go on, or it is held again. */
void soda_stream_conn_release(struct soda_stream_conn *c);
/* No receive, send or request is under way: give spans back, tell the daemon, close, free. */
void soda_stream_conn_destroy(struct soda_stream_conn *c);

#endif
