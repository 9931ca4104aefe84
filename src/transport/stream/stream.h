/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the byte-stream transports (TCP, UNIX sockets) share on the side that
 * connects: exact sends and receives with a deadline, HELLO, and calls.  May
 * block; not for the fault path.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_STREAM_H
#define SODA_STREAM_H

#include <stdbool.h>
#include <sys/socket.h>

#include "transport/api/spin.h"
#include "transport/api/transport_impl.h"
#include "trust/tls.h"

#define SODA_NO_DEADLINE UINT64_MAX

/* A connected socket, and how bytes travel on it.  Neither is its own. */
struct soda_byte_stream {
	int fd;
	struct soda_tls *tls; /* NULL: as they are */
};

static inline struct soda_byte_stream soda_plain(int fd)
{
	return (struct soda_byte_stream){ .fd = fd };
}

/* CLOCK_MONOTONIC nanoseconds at which timeout_ms from now ends; < 0: never. */
uint64_t soda_deadline(int timeout_ms);
/* For poll(2): milliseconds left, rounded up; 0: over; -1: no deadline. */
int soda_deadline_ms(uint64_t deadline_ns);

/*
 * Send or receive all of it; iov is used up.  0; -ETIMEDOUT; -ECONNRESET: the
 * peer has closed; or the socket's error.  passed_fd_p (may be NULL): a
 * descriptor that came along, for the caller to close; else untouched.
 */
int soda_stream_send(struct soda_byte_stream s, struct iovec *iov, int n, uint64_t deadline_ns);
int soda_stream_recv(struct soda_byte_stream s, void *buf, size_t bytes, uint64_t deadline_ns,
		     int *passed_fd_p);

/*
 * Receive at least `bytes` bytes into iov, which is used up to where they end; and what is there
 * already beyond them: how many bytes in all. Errors as above.
 */
ssize_t soda_stream_recv_parts(struct soda_byte_stream s, struct iovec *iov, int n, size_t bytes,
			       uint64_t deadline_ns);

/*
 * One system call that does not wait: how many bytes, 0 at the end of the stream, or
 * negative errno.  pass_fd (-1: none) goes along with the first byte; *passed_fd_p as
 * above; by TLS none goes or comes.
 */
ssize_t soda_stream_send_once(struct soda_byte_stream s, struct iovec *iov, int n, int pass_fd);
ssize_t soda_stream_recv_once(struct soda_byte_stream s, void *buf, size_t bytes, int *passed_fd_p);

/* Connect a non-blocking socket and make it blocking. 0, -ETIMEDOUT, -ECONNREFUSED... */
int soda_stream_connect(int fd, const void *addr, unsigned addr_bytes, uint64_t deadline_ns);

/*
 * Introduce oneself, by a proof where the options have an identity. Errors as soda_conn_connect;
 * peer is for why.  pass_fd (-1: none) goes along; passed_fd_p as in soda_stream_call.
 */
int soda_stream_hello(struct soda_byte_stream s, const char *peer,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      int pass_fd, uint64_t deadline_ns, struct soda_wire_welcome *welcome_p,
		      int *passed_fd_p, struct soda_why *why);

/*
 * Begin TLS with the server of this identity: *tls_p is the caller's.  data: the kernel has it from
 * then on, and the socket is as any other.  As soda_conn_connect; peer is for why.
 */
int soda_stream_encrypt(int fd, const char *peer, const struct soda_identity *as, bool data,
			uint64_t deadline_ns, struct soda_tls **tls_p, struct soda_why *why);

/* Of soda_stream_hello, where there is an identity (prove.c). */
int soda_stream_prove(struct soda_byte_stream s, const char *peer,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      int pass_fd, uint64_t deadline_ns, struct soda_wire_welcome *welcome_p,
		      int *passed_fd_p, struct soda_why *why);

/* Exchanges on a stream that carries no calls yet. */
struct soda_stream_exchange {
	struct soda_byte_stream s;
	const char *peer; /* for why */
	uint64_t deadline_ns;
	struct soda_why *why;
};
/*
 * Send these bytes, await a message of this type with exactly so many bytes of body.  0; -EPROTO,
 * without a why: another answer; the status of a refusal as -errno, with its reason; or the
 * stream's error.  passed_fd_p (may be NULL) as above.
 */
int soda_stream_exchange(const struct soda_stream_exchange *x, const void *said, size_t said_bytes,
			 int pass_fd, enum soda_msg expected, void *reply, size_t reply_bytes,
			 int *passed_fd_p);

/* soda_conn_call over a stream; passed_fd_p as above, -1 when none came. */
int soda_stream_call(struct soda_conn *conn, struct soda_byte_stream s, enum soda_msg type,
		     const struct iovec *body, int body_n, void *reply, size_t capacity,
		     size_t *reply_bytes_p, int *passed_fd_p, int timeout_ms, struct soda_why *why);

/*
 * HOST:PORT or [V6]:PORT, split; host may be empty where one listens.  prefix ("tcp://") is for
 * why.  0, -EINVAL.
 */
int soda_inet_split(const char *prefix, const char *rest, char host[256], char port[8],
		    struct soda_why *why);
/* "tcp://10.0.0.1:7000" of an IPv4 or IPv6 address. port: host's byte order. */
void soda_inet_format(const char *prefix, const struct sockaddr *at, unsigned port, char *out,
		      size_t bytes);
/* The port of an IPv4 or IPv6 address, in the host's byte order. */
unsigned soda_inet_port(const struct sockaddr *at);
/* No Nagle, no pacing congestion control, and a dead peer is noticed. Failures are ignored. */
void soda_inet_tune(int fd);
/* Whether both ends of a connected TCP socket have the same address: they are one machine's. */
bool soda_inet_same_host(int fd);
/*
 * Whether nobody but this machine and the peer can read or change what a data connection carries:
 * it does not leave the machine, or all that it carries is sealed.
 */
bool soda_inet_protected(int fd, bool sealed);

/* A control connection on a stream that has said HELLO. */
struct soda_stream_control {
	struct soda_conn conn;
	struct soda_byte_stream s;
	bool alone; /* a streamed call was submitted, and nothing before or after it */
	struct soda_spin spin;
};

static inline struct soda_stream_control *soda_stream_control(const struct soda_conn *conn)
{
	return (struct soda_stream_control *)(uintptr_t)conn;
}

/* Of any stream; nothing is mapped. */
extern const struct soda_conn_ops soda_stream_control_ops;

/* Owns s, also on failure. -ENOMEM. */
int soda_stream_control_create(struct soda_byte_stream s, const struct soda_conn_ops *ops,
			       const char *prefix, const char *rest,
			       const struct soda_conn_options *opt, struct soda_conn **conn_p);
void soda_stream_control_close(struct soda_conn *conn);
void soda_stream_control_abort(struct soda_conn *conn);
int soda_stream_control_fd(const struct soda_conn *conn);
int soda_stream_control_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			     int body_n, void *reply, size_t capacity, size_t *reply_bytes_p,
			     int timeout_ms, struct soda_why *why);
/* On a UNIX socket: *fd_p is a descriptor that came with the reply, or -1. */
int soda_stream_control_call_fd(struct soda_conn *conn, enum soda_msg type,
				const struct iovec *body, int body_n, void *reply, size_t capacity,
				size_t *reply_bytes_p, int *fd_p, int timeout_ms,
				struct soda_why *why);
int soda_stream_control_submit(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			       int body_n, struct soda_outflow *out, int timeout_ms,
			       struct soda_why *why);
int soda_stream_control_submit_call(struct soda_conn *conn, enum soda_msg type,
				    const struct iovec *body, int body_n, int timeout_ms,
				    struct soda_why *why);
int soda_stream_control_collect(struct soda_conn *conn, void *reply, size_t capacity,
				size_t *reply_bytes_p, int timeout_ms, struct soda_why *why);

#endif
