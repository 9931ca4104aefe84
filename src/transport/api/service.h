/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side that listens.  A daemon implements struct soda_service; transports
 * own sockets, framing, threads and the HELLO time-out, validate what can be
 * validated without the daemon, and call it.
 *
 * One soda_peer is one accepted connection.  It belongs to the transport; the
 * daemon may keep the pointer from hello until gone returns.
 *
 * Threads: callbacks come from several threads.  call (control plane) runs in a
 * thread of that control connection's own and may block; hello may block for a
 * control connection, not for a data one; translate, reserve and release run in the
 * data workers and must not block, nor may request and doorbell, apart from a
 * daemon that means to serve one request after the other.
 *
 * A daemon is one-sided or two-sided.  One-sided (ops->request is NULL): its data
 * are in memory when they are asked for; translate says where, and the transport
 * does the rest.  Two-sided: it answers when it can, from any thread:
 *
 *   READ    request -> ... -> soda_request_done -> (sent) -> release
 *   WRITE   reserve -> (received) -> request -> ... -> soda_request_done
 *                                                      -> ... -> soda_request_free
 *
 * Answers leave in the order of the requests of one connection; one that is
 * pending holds back those behind it.  A transport bounds the requests that are
 * outstanding on a connection.
 */
#ifndef SODA_SERVICE_H
#define SODA_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "transport/api/transport.h"
#include "wire/wire.h"

struct soda_peer;
struct soda_listener;
struct soda_guard; /* trust/proof.h, and so the next */
struct soda_proved;
struct soda_tls_context; /* trust/tls.h */

/* Who is at the other end. */
struct soda_peer_info {
	char address[96]; /* for messages */
	bool local;	  /* a UNIX socket: uid, gid and pid are the kernel's word */
	uid_t uid;
	gid_t gid;
	pid_t pid;
	bool unmetered; /* what its data connections ask for waits for no rate (verbs) */
	/* Local: supplementary groups, by the kernel's word; none where there are too many. */
	unsigned groups_n;
	gid_t groups[SODA_PEER_GROUPS_MAX];
	/* What the connection has proved, during hello; NULL: the listener has no guard. */
	const struct soda_proved *proved;
	/* The daemon's: which tenant has proved itself, counted from 1; 0: nobody has. */
	uint32_t tenant;
};

/* A piece of a region's memory, held between translate and release. */
struct soda_span {
	uint8_t *memory;
	void *hold; /* the daemon's, and so the next */
	uint64_t since_ns;
	uint64_t offset; /* of memory in the region */
	uint32_t bytes;
	bool stored; /* an answer: the data are in the node's store, and memory is not looked at */
};

/*
 * A READ or WRITE of a two-sided daemon: the daemon's from ops->request until
 * soda_request_done (READ) or soda_request_free (WRITE), the transport's memory.
 * Checked is no more than the layout: whole pages, 1..SODA_WIRE_MAX_DATA bytes.
 */
struct soda_request {
	const struct soda_request_ops *ops; /* the transport's */
	void *client;
	struct soda_peer *peer;	   /* whose; until done */
	struct soda_request *next; /* the daemon's, for its queues, and so below */
	uint64_t arrived_ns;
	uint64_t offset; /* bytes into the region, not checked against it */
	uint32_t bytes;
	uint16_t region_id; /* not checked */
	bool write;
	bool polling; /* the client awaits the answer by polling */
	bool told;    /* READ: `residency` came with it */
	bool stored;  /* READ: may be answered by a span that is `stored` */
	bool keep;    /* WRITE: its client will ask for the data again (SODA_WIRE_KEEP) */
	bool kept;    /* WRITE: without data: they are those of `origin`, which is not checked */
	struct soda_wire_origin origin;
	/* WRITE, kept: parity of those of these origins, then, which are not checked; else NULL */
	struct soda_wire_code *code;
	struct soda_wire_residency residency;
	/*
	 * WRITE: the data, not written to by anybody else until soda_request_free, and
	 * apart from shared memory not by the client either.  READ: memory of `bytes`
	 * bytes which the client reads from, so that an answer that is put there needs
	 * no further copy; NULL: the daemon uses memory of its own.
	 */
	uint8_t *data;
	void *hold; /* WRITE: soda_span.hold of the reserve that gave data, or NULL */
};

/*
 * The answer, exactly once for each request.  status: 0 or negative errno.  span
 * (READ with status 0): where the data are, rq->data or the daemon's own; the
 * transport calls ops->release(client, false, span, false) when it has no more use
 * for them.  A READ's rq is gone afterwards.  Any thread, also within ops->request;
 * wakes the connection's thread only if that sleeps, once for many.
 */
void soda_request_done(struct soda_request *rq, int status, const struct soda_span *span);
/*
 * WRITE, after its soda_request_done, exactly once: the daemon has no more use for
 * rq and rq->data.  May come long after gone, and after
 * soda_listener_close.  Any thread.
 */
void soda_request_free(struct soda_request *rq);

/* What an opened region, or a part in a static cache, hands to a transport that can share memory.
 */
struct soda_share {
	int fd;		      /* memfd, borrowed; -1: nothing to share */
	uint64_t offset;      /* of the region, where it begins; an opened region: 0 */
	uint64_t bytes;	      /* of the region's memory in it, from its beginning on */
	uint64_t dirty_bytes; /* of the dirty map behind it; 0: none */
	void *memory;	      /* where the daemon has mapped all of that, or NULL */
	bool writable;
};

/* Reply of a control call: at most SODA_WIRE_MAX_CONTROL bytes in body. */
struct soda_reply {
	uint8_t *body; /* the transport's buffer */
	size_t bytes;
	struct soda_share share; /* OPEN, ADVISE, STORE on a sharing transport */
	struct soda_why why;	 /* the reason, when call returns an error */
};

/* The body and the data of a streamed call, as they come. */
struct soda_inflow {
	uint64_t left; /* bytes that have not been taken */
	/* The transport's. */
	int (*take)(struct soda_inflow *in, struct iovec *iov, int n);
	int (*end)(struct soda_inflow *in);
};

/*
 * The next bytes, all of iov, which is used up; waits for them, for each call at most
 * SODA_CALL_BODY_MS.  -EPROTO: there are not so many; or the stream's error, which the service
 * returns: the connection ends then.
 */
int soda_inflow_take(struct soda_inflow *in, struct iovec *iov, int n);
/*
 * All has been taken: 0; -EFAULT: the client could not read all of its data, and these are zeros in
 * part; or the stream's error.
 */
int soda_inflow_end(struct soda_inflow *in);

struct soda_service {
	/*
	 * A connection has introduced itself with a valid magic and version.  Fill
	 * *welcome and set *client_p, or return a negative errno and fill *why.  For a
	 * control HELLO with a higher epoch: return when the older connections of the
	 * client are gone (soda_peer_close, then gone).
	 */
	int (*hello)(void *svc, struct soda_peer *peer, const struct soda_wire_hello *hello,
		     const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		     void **client_p, struct soda_why *why);
	/*
	 * A control request other than HELLO.  shares: this transport can pass
	 * descriptors, or keys: fill reply->share in OPEN, in an ADVISE of STATIC_CACHE, and in
	 * STORE, which transports with keys do not serve.
	 * What an ADVISE has shared stays until another ADVISE of its range, the CLOSE, or
	 * gone.  0 or negative errno.
	 */
	int (*call)(void *client, enum soda_msg type, const void *body, size_t bytes, bool shares,
		    struct soda_reply *reply);
	/*
	 * A streamed call (transport.h); NULL: there are none. As `call`; what it leaves untaken is
	 * skipped.  Of a refusal the client hears at the end of its data.
	 */
	int (*stream)(void *client, enum soda_msg type, struct soda_inflow *in,
		      struct soda_reply *reply);
	/*
	 * The memory of a validated-by-layout READ (write = false) or WRITE.  The daemon
	 * checks region, range and access.  0, -EINVAL, -EACCES.  Then release exactly
	 * once, also when the connection fails, and maybe just after the client has the
	 * answer; landed: a WRITE has been stored.
	 *
	 * Of a two-sided daemon release alone is called, for READs, as
	 * soda_request_done says, and with landed = false for what reserve gave.
	 */
	int (*translate)(void *client, bool write, uint16_t region_id, uint64_t page_offset,
			 uint32_t size, struct soda_span *span);
	void (*release)(void *client, bool write, const struct soda_span *span, bool landed);
	/* The connection has ended, all of its requests are done; no callback for it follows. */
	void (*gone)(void *client, struct soda_peer *peer);
	/* Something bad came in: bad HELLO, bad frame, bad request. Counted by the daemon. */
	void (*rejected)(void *svc, const char *address, const char *why);
	/* Two-sided, all three; NULL: a one-sided daemon, which has translate. */

	/*
	 * Memory for the data of a WRITE, where the transport has none of its own
	 * (streams).  What it gave is the daemon's again with request; release(write =
	 * true, landed = false) comes instead where the data never arrive.  0; -EAGAIN:
	 * there is none now, the connection is not received from until soda_peer_resume;
	 * -EINVAL, -EACCES... refuse the WRITE, whose data go nowhere.
	 */
	int (*reserve)(void *client, struct soda_peer *peer, uint16_t region_id,
		       uint64_t page_offset, uint32_t size, struct soda_span *span);
	/* A READ or WRITE has come in. */
	void (*request)(void *client, struct soda_request *rq);
	/*
	 * After one or more calls of request, by the same thread: all that was at hand,
	 * on this connection and others of the thread, has been delivered, so that what
	 * waits for company need not wait longer.
	 */
	void (*doorbell)(void *client, struct soda_peer *peer);
};

enum soda_engine { SODA_ENGINE_AUTO = 0, SODA_ENGINE_EPOLL = 1 };

struct soda_listener_options {
	unsigned workers;	  /* data threads; 0: one a processor, at most 4 */
	unsigned max_connections; /* 0: 4096 */
	int hello_timeout_ms;	  /* 0: 5000 */
	/*
	 * On byte streams: a data connection whose WRITE has not come whole, or whose client has
	 * not taken an answer, in some time from this one to 4/3 of it, is closed. 0: 30000
	 */
	int stuck_timeout_ms;
	enum soda_engine engine; /* of the data threads; auto: io_uring where the kernel lets us */
	enum soda_answer_by answer; /* verbs, two-sided: how READs are answered */
	/* Whom to let in: by a proof only.  NULL: everybody who says a HELLO of version 1. */
	const struct soda_guard *guard;
	/* On tcp: control connections may come by TLS. NULL: they may not. */
	struct soda_tls_context *tls;
	bool tls_only; /* they must, and data connections in clear are this machine's only */
};

/*
 * Listen on an address (as in transport.h; tcp port 0 picks one).  Connections
 * are accepted from soda_listener_start on.  -EINVAL, -EADDRINUSE, -EACCES, -EMFILE...;
 * -ENOTSUP: also where this transport cannot ask for proofs, and there is a guard; why says
 * what to do.
 */
int soda_listener_open(const char *address, const struct soda_service *ops, void *svc,
		       const struct soda_listener_options *opt, struct soda_listener **listener_p,
		       struct soda_why *why);
int soda_listener_start(struct soda_listener *listener);
/* The address with the real port, for the readiness line. */
const char *soda_listener_address(const struct soda_listener *listener);
/* Accept no more; existing connections go on (drain). */
void soda_listener_stop_accepting(struct soda_listener *listener);
/* Close every connection, await the threads, free. */
void soda_listener_close(struct soda_listener *listener);

/*
 * End a connection from outside; gone follows from the transport's thread.  What is answered on it
 * from now on does not reach the client, which learns of the end alone. Any thread.
 */
void soda_peer_close(struct soda_peer *peer);
/* There may be memory for a WRITE again, after -EAGAIN of reserve. Any thread, before gone. */
void soda_peer_resume(struct soda_peer *peer);

#endif
