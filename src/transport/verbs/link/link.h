/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What both sides of the verbs transport share (RDMA: rdma-core's libibverbs and librdmacm).
 *
 *   link.c              a connection's objects: set up by librdmacm, waited on, torn down
 *   registered.h        registered memory, its limit, registrations of a daemon's memory
 *   message.c           control plane: frames as SENDs
 *   receives.c          receives that many control connections share
 *   ../client/          the side that connects
 *   ../server/          the side that listens
 *
 * HELLO and welcome are the private data of the connection request and its answer: 56
 * bytes each, exactly what InfiniBand's connection manager leaves a request of
 * RDMA_PS_TCP, so that a stranger costs no queue pair.  A refusal is the private data of
 * a reject: a frame with the status, and the reason.  Where a proof is asked for
 * (docs/internals/tenants.md) it takes three requests, the first two of which are rejected with
 * what is to be answered by the next.
 *
 * A region of a one-sided daemon is one registration, in the protection domain of its client,
 * addressed by offset from 0.  READ and WRITE are one-sided: the server's processors
 * have no part in them.  A key comes with the answer of an OPEN and is valid as long as
 * the control connection that asked for it.  So is one that comes with an ADVISE, to a part
 * of a region that a two-sided daemon has in its static cache.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_VERBS_LINK_H
#define SODA_VERBS_LINK_H

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/limits.h"
#include "transport/api/transport_impl.h"
#include "transport/verbs/link/registered.h"
#include "wire/proof.h"

#define SODA_VERBS_PREFIX "verbs://"

enum {
	SODA_VERBS_REASON = 140, /* bytes that a reject has for the reason */
	SODA_VERBS_READS = 16,	 /* READs under way of one queue pair */
	SODA_VERBS_INLINE = 128, /* bytes that travel within a request, where the device can */
	SODA_VERBS_ACK_TIMEOUT =
		16,		/* 4.096 us * 2^16: what the end of a burst that got lost costs */
	SODA_VERBS_RETRIES = 7, /* 7: of a receiver that is not ready, for ever */
	SODA_VERBS_RNR_TIMER = 12, /* 0.64 ms: that long a peer waits for a receive of ours */
	SODA_VERBS_CALL_BYTES = SODA_WIRE_FRAME_BYTES + SODA_WIRE_MAX_CONTROL,
	SODA_VERBS_CALL_ROOM = (SODA_VERBS_CALL_BYTES + 4095) / 4096 * 4096,
	SODA_VERBS_CALLS_MOST = 1024, /* buffers of soda_verbs_receives */
	SODA_VERBS_WELCOME_BYTES = SODA_WIRE_WELCOME_BYTES + SODA_WIRE_TWO_SIDED_BYTES,
	/* where a proof was asked for */
	SODA_VERBS_PROVED_BYTES = SODA_VERBS_WELCOME_BYTES + SODA_WIRE_MAC_BYTES,
};

/* link.c */

/* The verbs objects of one connection. */
struct soda_verbs_link {
	struct rdma_event_channel *events; /* the connecting side's own; else NULL */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	bool own_pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	int end_fd;	       /* readable: the connection has ended (epoll: events, wake_fd) */
	int wake_fd;	       /* eventfd: it was aborted; -1: none, and so the next */
	int poke_fd;	       /* eventfd: there is something to collect */
	int fd;		       /* epoll: completions, end_fd and poke_fd, for soda_conn_fd */
	bool armed;	       /* the next completion makes an event */
	unsigned comp_events;  /* taken, to be acknowledged */
	uint32_t inline_bytes; /* that the queue pair takes */
};

/* How much a queue pair holds, and another one that completes into the same queue. */
struct soda_verbs_room {
	uint32_t sends, receives, others;
	struct ibv_srq *srq; /* receives are from there; else NULL */
};

/* Reach ADDRESS:PORT: device and route. Undone by soda_verbs_link_close, also on failure. */
int soda_verbs_link_resolve(struct soda_verbs_link *l, const char *rest, uint64_t deadline_ns,
			    struct soda_why *why);
/* Completion queue and queue pair on l->id; l->pd, or one of its own if that is NULL. */
int soda_verbs_link_prepare(struct soda_verbs_link *l, const struct soda_verbs_room *room,
			    struct soda_why *why);
/* What the peer has answered to a request to connect. */
struct soda_verbs_heard {
	bool accepted; /* data: welcome, how to ask, and the mac; else a frame CHALLENGE and its
			  body */
	size_t bytes;  /* of data: that, and whatever the network has put behind it */
	uint8_t data[SODA_WIRE_FRAME_BYTES + SODA_VERBS_REASON]; /* a refusal is the longest */
};
/*
 * Ask to connect, with these private data.  0: *heard_p; errors as soda_conn_connect, a refusal's
 * included.
 */
int soda_verbs_link_say(struct soda_verbs_link *l, const char *rest,
			const uint8_t said[SODA_WIRE_HELLO_BYTES], uint64_t deadline_ns,
			struct soda_verbs_heard *heard_p, struct soda_why *why);
/* The parameters of both sides; theirs: of the peer's request, or NULL. */
void soda_verbs_link_param(const struct soda_verbs_link *l, const struct rdma_conn_param *theirs,
			   struct rdma_conn_param *param_p);
/*
 * How long a queue pair waits: for acknowledgements, before it is connected or accepted; and how
 * long its peer waits for a receive, once it is.  librdmacm has no better than its own
 * (0.65 s for a receive); what cannot be changed is only slower.
 */
void soda_verbs_link_patience(struct rdma_cm_id *id);
void soda_verbs_link_rnr(struct rdma_cm_id *id);
/* The device touches no memory of it any more: what is registered can go. */
void soda_verbs_link_stop(struct soda_verbs_link *l);
/* Whatever there is of it; its memory has been unregistered. */
void soda_verbs_link_close(struct soda_verbs_link *l);
/* End it, and wake who sleeps. Any thread. AS. */
void soda_verbs_link_abort(struct soda_verbs_link *l);

/* The next completion wakes: reap once more behind it. 0 or negative errno. AS. */
int soda_verbs_link_arm(struct soda_verbs_link *l);
/* Take the events that have woken us. AS. */
void soda_verbs_link_drain(struct soda_verbs_link *l);
/* l->fd is readable, until the next call of this with false. AS. */
void soda_verbs_link_poke(struct soda_verbs_link *l, bool on);
/* No link yet. */
void soda_verbs_link_none(struct soda_verbs_link *l);
/* Sleep until something happens, at most timeout_ns (< 0: no limit). 0; -ECONNRESET: the end. AS.
 */
int soda_verbs_link_sleep(struct soda_verbs_link *l, int64_t timeout_ns);
/* Has the peer ended it, or soda_verbs_link_abort? AS. */
bool soda_verbs_link_ended(const struct soda_verbs_link *l);
/* What a completion's error means for the connection; in words in the log, if nobody expects it. */
int soda_verbs_link_error(enum ibv_wc_status status, const char *peer);

/* Immediate data: `imm` of wire.h. err is positive. */
static inline uint32_t soda_verbs_imm(enum soda_msg type, uint32_t flags, int err)
{
	return htobe32((uint32_t)type | flags << 8 | soda_status_from_errno(err) << 16);
}

/* The IBV functions may be cancellation points; a fault handler must not be one. */
int soda_verbs_uncancel(void);
void soda_verbs_recancel(int before);

/* soda_conn_device */
int soda_verbs_link_device(const struct soda_verbs_link *l, char name[SODA_DEVICE_NAME]);

/* receives.c */

/* A buffer for one message, SODA_VERBS_CALL_BYTES long. */
struct soda_verbs_receive {
	struct soda_verbs_receive *next;
	uint8_t *data;
	uint32_t lkey;
	uint32_t bytes; /* that have come */
};

/* Those that the control connections of a listener on one device share. */
struct soda_verbs_receives;
int soda_verbs_receives_create(struct ibv_context *device, struct soda_verbs_receives **all_p);
/* No connection is left. */
void soda_verbs_receives_destroy(struct soda_verbs_receives *all);
/* One connection more. False: there are all that there may be. */
bool soda_verbs_receives_join(struct soda_verbs_receives *all);
/* It has no queue pair any more. */
void soda_verbs_receives_leave(struct soda_verbs_receives *all);
struct ibv_srq *soda_verbs_receives_queue(const struct soda_verbs_receives *all);
/* Whose all queue pairs are: there are no remote keys in it. */
struct ibv_pd *soda_verbs_receives_pd(const struct soda_verbs_receives *all);
int soda_verbs_receives_post(struct soda_verbs_receives *all, struct soda_verbs_receive *r);

/* message.c */

/* Frames in both directions. */
struct soda_verbs_messages {
	struct soda_verbs_link *link;
	const char *peer;
	_Atomic bool *aborted;		    /* or NULL */
	struct soda_verbs_receives *shared; /* or NULL: receives of its own */
	unsigned calls;			    /* buffers to send from, and own receives */
	uint8_t *memory;		    /* of both */
	struct ibv_mr *mr;
	struct soda_verbs_receive own[SODA_CONN_CALLS];
	uint8_t *out;			 /* the next message, after begin */
	unsigned sent, sending;		 /* messages; of them, those that are under way */
	struct soda_verbs_receive *came; /* and nobody has awaited them: the oldest first */
	struct soda_verbs_receive *now;	 /* the one that was awaited last */
	unsigned came_n;
	unsigned reads; /* RDMA READs under way */
	bool probes;	/* while it waits without a deadline it looks whether the peer is there */
	bool probing, silent; /* ... and the peer's adapter has not answered */
	uint64_t probed_ns;
};

/*
 * Before connect or accept: the first message may come at once.  calls: messages that may be under
 * way in each direction; shared: receives are from there, and the link's domain is theirs.
 */
int soda_verbs_messages_create(struct soda_verbs_messages *m, struct soda_verbs_link *l,
			       unsigned calls, struct soda_verbs_receives *shared, const char *peer,
			       struct soda_why *why);
/* Stops the link. */
void soda_verbs_messages_destroy(struct soda_verbs_messages *m);
/* The message that was awaited last is done with, and there is room for one more. */
int soda_verbs_message_expect(struct soda_verbs_messages *m);
/* `out` is free to be written to. 0, -ETIMEDOUT, -ECONNRESET, -ECONNABORTED. */
int soda_verbs_message_begin(struct soda_verbs_messages *m, uint64_t deadline_ns);
/* Send the frame and the body behind it in `out`. */
int soda_verbs_message_send(struct soda_verbs_messages *m, const struct soda_wire_frame *frame);
/*
 * The next message, in now->data. Errors as begin; -EPROTO: not a message, or more than
 * SODA_CONN_CALLS have come at once.
 */
int soda_verbs_message_await(struct soda_verbs_messages *m, uint64_t deadline_ns,
			     struct soda_wire_frame *frame_p);

/*
 * RDMA READ: begin one of the peer's memory at a key of the peer's; waits where too many are under
 * way.  The memory is registered in the link's domain.  await_reads: all have ended.  Errors as
 * begin: a key that is none ends the connection.
 */
int soda_verbs_message_read(struct soda_verbs_messages *m, void *to, uint32_t lkey,
			    const struct soda_wire_flow_part *from, uint64_t deadline_ns);
int soda_verbs_message_await_reads(struct soda_verbs_messages *m, uint64_t deadline_ns);

/* The text of a refusal, from the peer, for people. */
void soda_verbs_refusal(const char *peer, const void *text, size_t bytes, struct soda_why *why);

#endif
