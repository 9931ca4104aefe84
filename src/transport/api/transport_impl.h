/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For transports only: what one must provide.  transport.c owns the contract of
 * transport.h (states, ranges, depth, sticky errors, errno); a transport moves
 * bytes and may rely on it.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_TRANSPORT_IMPL_H
#define SODA_TRANSPORT_IMPL_H

#include <stdatomic.h>

#include "transport/api/service.h"
#include "transport/api/transport.h"

#define SODA_DIRTY_UNIT (64u << 10)
#define SODA_BACKING_UNIT (2ull << 20) /* the dirty map begins behind whole ones of these */
#define SODA_MAX_OBJECT (1ull << 59)   /* page offsets have 48 bits; half, so that sums are safe */

/* A READ or WRITE, already checked against its region. */
struct soda_post {
	const struct soda_mr *mr;
	uint64_t offset;
	uint64_t cookie;
	void *data;  /* READ: destination; WRITE: source, not written to */
	void *place; /* READ: where the peer may install the pages, or NULL */
	const struct soda_wire_residency *residency; /* READ: or NULL; until the end of the call */
	const struct soda_wire_origin
		*origin;     /* WRITE: whose data, which do not travel; likewise */
	const uint8_t *code; /* WRITE: of which data it is parity; until the completion */
	uint32_t code_bytes;
	uint32_t bytes;
	bool write;
	bool protect; /* the peer installs at `place` write-protected */
	bool stored;  /* READ: the answer may be that it is in the node's store */
	bool merge;   /* READ: may become a part of the request before it */
	bool keep;    /* WRITE: the peer keeps the data */
};

/* A two-sided listener's part of soda_request_done and soda_request_free. */
struct soda_request_ops {
	void (*done)(struct soda_request *rq, int status, const struct soda_span *span);
	void (*free)(struct soda_request *rq);
};

/*
 * One connection's functions, with the contract of the public function of the
 * same name.  A control connection has call and open_region, a data connection
 * post, flush and poll; these three and abort are async-signal-safe unless the
 * connection is deep.  A negative result of flush or poll fails the connection.
 * errno may be spoilt: transport.c keeps it.
 */
struct soda_conn_ops {
	void (*close)(struct soda_conn *conn);
	void (*abort)(struct soda_conn *conn);
	int (*fd)(const struct soda_conn *conn);

	/* Sets conn->error where the connection cannot go on. */
	int (*call)(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		    int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		    struct soda_why *why);
	/* The same, and a descriptor that came with the reply, else -1. NULL: none can come. */
	int (*call_fd)(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		       int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
		       int timeout_ms, struct soda_why *why);
	/*
	 * Calls that are collected later: streamed ones, NULL: there are none; and plain ones. They
	 * set conn->error likewise.
	 */
	int (*submit)(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, struct soda_outflow *out, int timeout_ms, struct soda_why *why);
	int (*submit_call)(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			   int body_n, int timeout_ms, struct soda_why *why);
	int (*collect)(struct soda_conn *conn, void *reply, size_t capacity, size_t *reply_bytes_p,
		       int timeout_ms, struct soda_why *why);
	/* How many may be under way; NULL: any number. */
	unsigned (*streams_most)(const struct soda_conn *conn);
	/* NULL: where there is `submit`. */
	bool (*streams)(const struct soda_conn *conn);
	/* NULL: the plain call of SODA_MSG_OPEN, nothing mapped. */
	int (*open_region)(struct soda_conn *conn, const struct soda_wire_open *open,
			   const char *name, struct soda_wire_opened *opened_p,
			   struct soda_mr *mr_p, int timeout_ms, struct soda_why *why);
	/* NULL: nothing to do. */
	int (*renew_region)(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
			    struct soda_why *why);
	/* NULL: nothing to do. */
	int (*reach_keyed)(struct soda_conn *conn, int timeout_ms, struct soda_why *why);
	/* NULL: by the socket fd. */
	int (*device)(const struct soda_conn *conn, char name[SODA_DEVICE_NAME]);
	/* NULL: POLLRDHUP at fd. */
	void (*end_poll)(const struct soda_conn *conn, struct pollfd *p);

	int (*post)(struct soda_conn *conn, const struct soda_post *post);
	int (*flush)(struct soda_conn *conn, bool polling);
	int (*poll)(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		    int64_t spin_ns);

	/* These may be NULL: false, and nothing to do. AS. */
	bool (*installs)(const struct soda_conn *conn);
	bool (*keeps)(const struct soda_conn *conn); /* where the peer is an agent with a pool */
	int (*revoke)(struct soda_conn *conn);
};

/* The beginning of every transport's connection. */
struct soda_conn {
	const struct soda_conn_ops *ops;
	enum soda_conn_kind kind;
	uint32_t depth;
	uint32_t outstanding; /* posted - completed, at most depth */
	uint32_t submitted;   /* calls without an answer yet */
	uint32_t calls;	      /* plain ones of them, at most */
	uint32_t max_data;    /* largest READ or WRITE: ours and the peer's */
	int error;	      /* 0, or what every later call returns */
	bool asks;	      /* soda_conn_asks */
	bool keeps;	      /* soda_conn_keeps */
	bool codes;	      /* soda_conn_codes */
	bool merges;	      /* soda_conn_options.merge, and the peer is no agent */
	bool tells;	      /* `residency` is for the next READ */
	struct soda_wire_residency residency;
	_Atomic bool aborted; /* set by any thread, before the transport's abort */
	char peer[128];
};

typedef int soda_connect_fn(const char *address, const struct soda_wire_hello *hello,
			    const struct soda_conn_options *opt, struct soda_conn **conn_p,
			    struct soda_wire_welcome *welcome_p, struct soda_why *why);

/* A transport; transport/registry.c has the table of all. */
struct soda_transport {
	const char *prefix; /* of the addresses that are its own: "tcp://" */
	bool proves;	    /* both sides carry the proof of an identity */
	/*
	 * The address comes without the prefix.  The HELLO's kind is set; options
	 * are complete (no zeros); *conn_p's base is filled by soda_conn_init.
	 */
	soda_connect_fn *connect;
	/* Instead of connect, for a decorator: what follows the prefix is an address for `below`.
	 */
	int (*decorate)(soda_connect_fn *below, const char *rest,
			const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			struct soda_why *why);
	/* NULL: cannot listen. */
	int (*listen)(const char *rest, const struct soda_service *ops, void *svc,
		      const struct soda_listener_options *opt, struct soda_listener **listener_p,
		      struct soda_why *why);
};

/* The transports, each defined in its folder; registry.c has the table of them. */
extern const struct soda_transport soda_tp_tcp, soda_tp_shm, soda_tp_verbs, soda_tp_fault;

/*
 * soda_conn_connect over the transport that the address is of; rest is the address without the
 * transport's prefix.  connect: soda_conn_connect itself, for decorators.
 */
int soda_transport_connect(const struct soda_transport *transport, soda_connect_fn *connect,
			   const char *rest, const struct soda_wire_hello *hello,
			   const struct soda_conn_options *opt, struct soda_conn **conn_p,
			   struct soda_wire_welcome *welcome_p, struct soda_why *why);

/* Whether the peer has to prove a key before it is told anything. */
bool soda_conn_proves(const struct soda_conn_options *opt);

/* Fill the base of a connection; opt as connect got it. */
void soda_conn_init(struct soda_conn *conn, const struct soda_conn_ops *ops,
		    const struct soda_conn_options *opt, const char *prefix, const char *rest);

/* SODA_MSG_OPEN as its body travels: iov[0] head, iov[1] name. head has
 * SODA_WIRE_OPEN_MARKED_BYTES. */
void soda_open_body(const struct soda_wire_open *open, const char *name, uint8_t *head,
		    struct iovec iov[2]);

/* Decode and check the reply of SODA_MSG_OPEN, and fill *mr_p without a mapping. 0, -EPROTO. */
int soda_open_reply(const struct soda_wire_open *open, bool writable, const void *reply,
		    size_t bytes, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
		    struct soda_why *why);

/* Bytes of a region's dirty map: one for each unit of 64 KiB, in whole pages. */
static inline uint64_t soda_dirty_bytes(uint64_t region_bytes)
{
	uint64_t units = (region_bytes + SODA_DIRTY_UNIT - 1) / SODA_DIRTY_UNIT;

	return (units + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE * SODA_WIRE_PAGE;
}

/* Entries of a ring that holds `depth` requests: a power of two. */
static inline uint32_t soda_ring_entries(uint32_t depth)
{
	uint32_t n = 1;

	while (n < depth)
		n *= 2;
	return n;
}

/* Write the sentence; why may be NULL. */
void soda_why_set(struct soda_why *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
