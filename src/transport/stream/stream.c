/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocking use of a byte stream: deadlines, HELLO, calls.  Sockets are used with
 * MSG_DONTWAIT and poll(2), so that a deadline holds whatever the peer does. */
#include "transport/stream/stream.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/iov.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "trust/identity.h"

enum { MAX_BODY_IOV = 4 };

/* How long a thread looks for the answer to a streamed call before it sleeps. */
#define LOOK_NS 60000

uint64_t soda_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? SODA_NO_DEADLINE : soda_now_ns() + (uint64_t)timeout_ms * 1000000;
}

int soda_deadline_ms(uint64_t deadline_ns)
{
	uint64_t now;

	if (deadline_ns == SODA_NO_DEADLINE)
		return -1;
	now = soda_now_ns();
	return now >= deadline_ns ? 0 : (int)((deadline_ns - now + 999999) / 1000000);
}

static int await(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do {
		n = poll(&p, 1, soda_deadline_ms(deadline_ns));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

ssize_t soda_stream_send_once(struct soda_byte_stream s, struct iovec *iov, int n, int pass_fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t sent;

	if (s.tls)
		return soda_tls_send(s.tls, iov, n);
	if (pass_fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS,
						  .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(&control.align), &pass_fd, sizeof(pass_fd));
	}
	sent = sendmsg(s.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? -errno : sent;
}

/* *left_p counts down what has gone, also where it fails. */
static int send_counted(struct soda_byte_stream s, struct iovec *iov, int n, int pass_fd,
			uint64_t deadline_ns, uint64_t *left_p)
{
	int ret;

	soda_iov_advance(&iov, &n, 0);
	while (n) {
		ssize_t sent = soda_stream_send_once(s, iov, n, pass_fd);

		if (sent >= 0) {
			soda_iov_advance(&iov, &n, (size_t)sent);
			*left_p -= (uint64_t)sent;
			pass_fd = -1;
		} else if (sent == -EAGAIN) {
			ret = await(s.fd, POLLOUT, deadline_ns);
			if (ret < 0)
				return ret;
		} else if (sent != -EINTR) {
			return sent == -EPIPE ? -ECONNRESET : (int)sent;
		}
	}
	return 0;
}

static int send_with(struct soda_byte_stream s, struct iovec *iov, int n, int pass_fd,
		     uint64_t deadline_ns)
{
	uint64_t left = 0; /* nobody looks */

	return send_counted(s, iov, n, pass_fd, deadline_ns, &left);
}

int soda_stream_send(struct soda_byte_stream s, struct iovec *iov, int n, uint64_t deadline_ns)
{
	return send_with(s, iov, n, -1, deadline_ns);
}

/* Take the first descriptor that came along, close all others. */
static void take_fds(struct msghdr *msg, int *passed_fd_p)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fds[8];

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = n < 8 ? n : 8;
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
		for (size_t i = 0; i < n; i++) {
			if (*passed_fd_p < 0)
				*passed_fd_p = soda_fd_own(fds[i]);
			else
				close(fds[i]);
		}
	}
}

ssize_t soda_stream_recv_once(struct soda_byte_stream s, void *buf, size_t bytes, int *passed_fd_p)
{
	union {
		char bytes[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (s.tls)
		return soda_tls_recv(s.tls, buf, bytes);
	if (passed_fd_p) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
	}
	n = recvmsg(s.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	if (passed_fd_p)
		take_fds(&msg, passed_fd_p);
	return n;
}

int soda_stream_recv(struct soda_byte_stream s, void *buf, size_t bytes, uint64_t deadline_ns,
		     int *passed_fd_p)
{
	char *at = buf;
	int ret;

	while (bytes) {
		ssize_t n = soda_stream_recv_once(s, at, bytes, passed_fd_p);

		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (n == 0) {
			return -ECONNRESET;
		} else if (n == -EAGAIN) {
			ret = await(s.fd, POLLIN, deadline_ns);
			if (ret < 0)
				return ret;
		} else if (n != -EINTR) {
			return (int)n;
		}
	}
	return 0;
}

/* Some bytes, without waiting: as recvmsg, but -errno. */
static ssize_t recv_some(struct soda_byte_stream s, struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t some;

	if (s.tls) { /* a record at most, and so into one part */
		while (n > 1 && !iov->iov_len) {
			iov++;
			n--;
		}
		return soda_tls_recv(s.tls, iov->iov_base, iov->iov_len);
	}
	some = recvmsg(s.fd, &msg, MSG_DONTWAIT);
	return some < 0 ? -errno : some;
}

ssize_t soda_stream_recv_parts(struct soda_byte_stream s, struct iovec *iov, int n, size_t bytes,
			       uint64_t deadline_ns)
{
	size_t got = 0;
	int ret;

	while (got < bytes) {
		ssize_t some = recv_some(s, iov, n);

		if (some > 0) {
			got += (size_t)some;
			soda_iov_advance(&iov, &n, (size_t)some);
		} else if (some == 0) {
			return -ECONNRESET;
		} else if (some == -EAGAIN) {
			ret = await(s.fd, POLLIN, deadline_ns);
			if (ret < 0)
				return ret;
		} else if (some != -EINTR) {
			return some;
		}
	}
	return (ssize_t)got;
}

int soda_stream_connect(int fd, const void *addr, unsigned addr_bytes, uint64_t deadline_ns)
{
	int err = 0, ret;
	socklen_t err_bytes = sizeof(err);

	/* EAGAIN: the backlog of a UNIX socket is full */
	while (connect(fd, addr, addr_bytes) < 0) {
		if (errno == EISCONN)
			break;
		if (errno == EAGAIN) {
			if (soda_deadline_ms(deadline_ns) == 0)
				return -ETIMEDOUT;
			poll(NULL, 0, 10);
			continue;
		}
		if (errno != EINPROGRESS && errno != EINTR)
			return -errno;
		ret = await(fd, POLLOUT, deadline_ns);
		if (ret < 0)
			return ret;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_bytes) < 0)
			return -errno;
		if (err)
			return -err;
		break;
	}
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0 ? -errno : 0;
}

static int send_request(struct soda_byte_stream s, enum soda_msg type, const struct iovec *body,
			int body_n, int pass_fd, uint64_t deadline_ns)
{
	uint8_t head[SODA_WIRE_FRAME_BYTES];
	struct soda_wire_frame frame = { .type = (uint8_t)type };
	struct iovec iov[1 + MAX_BODY_IOV];

	assert(body_n <= MAX_BODY_IOV);
	for (int i = 0; i < body_n; i++) {
		iov[1 + i] = body[i];
		frame.length += (uint32_t)body[i].iov_len;
	}
	soda_wire_put_frame(head, &frame);
	iov[0] = (struct iovec){ .iov_base = head, .iov_len = sizeof(head) };
	return send_with(s, iov, 1 + body_n, pass_fd, deadline_ns);
}

/* Receive and forget. */
static int skip(struct soda_byte_stream s, size_t bytes, uint64_t deadline_ns)
{
	char scratch[512];
	int ret = 0;

	while (bytes && !ret) {
		size_t n = bytes < sizeof(scratch) ? bytes : sizeof(scratch);

		ret = soda_stream_recv(s, scratch, n, deadline_ns, NULL);
		bytes -= n;
	}
	return ret;
}

/* The reason of a refusal comes from the peer and ends in our log: printable characters only. */
static int recv_reason(struct soda_byte_stream s, const char *peer, size_t bytes,
		       uint64_t deadline_ns, struct soda_why *why)
{
	char text[128];
	size_t n = bytes < sizeof(text) - 1 ? bytes : sizeof(text) - 1;
	int ret = soda_stream_recv(s, text, n, deadline_ns, NULL);

	if (ret < 0)
		return ret;
	text[n] = 0;
	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)text[i]))
			text[i] = '?';
	soda_why_set(why, "%s refused: %s", peer, text);
	return skip(s, bytes - n, deadline_ns);
}

/* One request and its reply. */
struct exchange {
	struct soda_byte_stream s;
	const char *peer;
	enum soda_msg type;
	const struct iovec *body;
	int body_n;
	void *reply;
	size_t capacity;
	int pass_fd; /* with the request, or -1 */
	uint64_t deadline_ns;
	struct soda_why *why;
	/* results */
	size_t *reply_bytes_p; /* may be NULL */
	int *passed_fd_p;      /* may be NULL */
	int answer;	       /* 0, -EMSGSIZE, or the refusal's status as -errno */
};

static int take_refusal(struct exchange *x, const struct soda_wire_frame *frame)
{
	if (frame->status == SODA_ST_OK)
		return -EPROTO;
	x->answer = -soda_status_to_errno(frame->status);
	return recv_reason(x->s, x->peer, frame->length, x->deadline_ns, x->why);
}

static int take_reply(struct exchange *x, const struct soda_wire_frame *frame)
{
	if (x->reply_bytes_p)
		*x->reply_bytes_p = frame->length;
	if (frame->length <= x->capacity)
		return soda_stream_recv(x->s, x->reply, frame->length, x->deadline_ns, NULL);
	x->answer = -EMSGSIZE;
	soda_why_set(x->why, "the answer of %s is longer than expected", x->peer);
	return skip(x->s, frame->length, x->deadline_ns);
}

/* The result is the stream's: 0, or why it cannot go on. */
static int take_answer(struct exchange *x)
{
	uint8_t head[SODA_WIRE_FRAME_BYTES];
	struct soda_wire_frame frame;
	int ret = soda_stream_recv(x->s, head, sizeof(head), x->deadline_ns, x->passed_fd_p);
	if (ret < 0)
		return ret;
	soda_wire_get_frame(head, &frame);
	if (frame.length > SODA_WIRE_MAX_CONTROL)
		return -EPROTO;
	if (frame.type == SODA_MSG_REFUSED)
		return take_refusal(x, &frame);
	return frame.type == SODA_MSG_OK ? take_reply(x, &frame) : -EPROTO;
}

static int exchange(struct exchange *x)
{
	int ret = send_request(x->s, x->type, x->body, x->body_n, x->pass_fd, x->deadline_ns);

	/* A refused stranger is closed at once; the reason may still be there to read. */
	return ret < 0 && ret != -ECONNRESET ? ret : take_answer(x);
}

/* The answer, of which this is the frame: 0, or as soda_stream_exchange. */
static int take_expected(const struct soda_stream_exchange *x, const struct soda_wire_frame *frame,
			 enum soda_msg expected, void *reply, size_t reply_bytes)
{
	int ret;

	if (frame->type == expected && frame->length == reply_bytes)
		return soda_stream_recv(x->s, reply, reply_bytes, x->deadline_ns, NULL);
	if (frame->type != SODA_MSG_REFUSED || frame->status == SODA_ST_OK ||
	    frame->length > SODA_WIRE_MAX_CONTROL)
		return -EPROTO;
	ret = recv_reason(x->s, x->peer, frame->length, x->deadline_ns, x->why);
	return ret < 0 ? ret : -soda_status_to_errno(frame->status);
}

int soda_stream_exchange(const struct soda_stream_exchange *x, const void *said, size_t said_bytes,
			 int pass_fd, enum soda_msg expected, void *reply, size_t reply_bytes,
			 int *passed_fd_p)
{
	struct iovec iov = { (void *)(uintptr_t)said, said_bytes };
	uint8_t head[SODA_WIRE_FRAME_BYTES];
	struct soda_wire_frame frame;
	int ret = send_with(x->s, &iov, 1, pass_fd, x->deadline_ns);

	/* who is refused is told before the connection is closed: that may be there to read */
	if (ret == 0 || ret == -ECONNRESET)
		ret = soda_stream_recv(x->s, head, sizeof(head), x->deadline_ns, passed_fd_p);
	if (ret < 0) {
		soda_why_set(x->why, "%s does not answer the HELLO: %s", x->peer,
			     soda_strerror(ret));
		return ret;
	}
	soda_wire_get_frame(head, &frame);
	ret = take_expected(x, &frame, expected, reply, reply_bytes);
	if (ret < 0 && ret != -EPROTO && frame.type == expected)
		soda_why_set(x->why, "%s does not answer the HELLO: %s", x->peer,
			     soda_strerror(ret));
	return ret;
}

int soda_stream_hello(struct soda_byte_stream s, const char *peer,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      int pass_fd, uint64_t deadline_ns, struct soda_wire_welcome *welcome_p,
		      int *passed_fd_p, struct soda_why *why)
{
	uint8_t body[SODA_WIRE_HELLO_BYTES], reply[SODA_WIRE_WELCOME_BYTES];
	struct iovec iov = { .iov_base = body, .iov_len = sizeof(body) };
	size_t bytes = 0;
	struct exchange x = { .s = s,
			      .peer = peer,
			      .type = SODA_MSG_HELLO,
			      .body = &iov,
			      .body_n = 1,
			      .reply = reply,
			      .capacity = sizeof(reply),
			      .reply_bytes_p = &bytes,
			      .pass_fd = pass_fd,
			      .passed_fd_p = passed_fd_p,
			      .deadline_ns = deadline_ns,
			      .why = why };
	int ret;

	if (passed_fd_p)
		*passed_fd_p = -1;
	if (opt->identity && opt->identity->proves)
		return soda_stream_prove(s, peer, hello, opt, pass_fd, deadline_ns, welcome_p,
					 passed_fd_p, why);
	soda_wire_put_hello(body, hello);
	ret = exchange(&x);
	if (ret == 0 && x.answer == 0)
		ret = soda_wire_get_welcome(reply, bytes, welcome_p);
	if (ret == -EPROTO || (ret == 0 && x.answer == -EMSGSIZE)) {
		soda_why_set(why, "%s answers, but does not speak SODA", peer);
		return -EPROTO;
	}
	if (ret < 0) {
		soda_why_set(why, "%s does not answer the HELLO: %s", peer, soda_strerror(ret));
		return ret;
	}
	if (x.answer < 0)
		return x.answer;
	if (welcome_p->version != SODA_WIRE_VERSION) {
		soda_why_set(why, "%s speaks protocol version %u, this is version %u", peer,
			     welcome_p->version, SODA_WIRE_VERSION);
		return -EPROTONOSUPPORT;
	}
	return 0;
}

int soda_stream_encrypt(int fd, const char *peer, const struct soda_identity *as, bool data,
			uint64_t deadline_ns, struct soda_tls **tls_p, struct soda_why *why)
{
	char reason[SODA_TLS_WHY] = "";
	struct soda_tls *tls = NULL;
	int ret = soda_tls_connect(as, fd, data, &tls);

	while (ret == 0) {
		ret = soda_tls_handshake(tls, reason);
		if (ret == 0) {
			*tls_p = tls;
			return 0;
		}
		if (ret == -EAGAIN)
			ret = await(fd, POLLIN, deadline_ns);
	}
	if (*reason)
		soda_why_set(why, "%.100s: %.190s", peer, reason);
	else
		soda_why_set(why, "%.100s does not answer the TLS handshake: %s", peer,
			     soda_strerror(ret));
	soda_tls_close(tls);
	return ret;
}

/* The connection cannot go on. */
static int fail(struct soda_conn *conn, int err, struct soda_why *why)
{
	soda_why_set(why, "the call to %s failed: %s", conn->peer,
		     err == -EPROTO ? "its answer makes no sense" : soda_strerror(err));
	conn->error = err == -EPROTO ? -ECONNABORTED : err;
	return conn->error;
}

int soda_stream_call(struct soda_conn *conn, struct soda_byte_stream s, enum soda_msg type,
		     const struct iovec *body, int body_n, void *reply, size_t capacity,
		     size_t *reply_bytes_p, int *passed_fd_p, int timeout_ms, struct soda_why *why)
{
	struct exchange x = { .s = s,
			      .peer = conn->peer,
			      .type = type,
			      .body = body,
			      .body_n = body_n,
			      .reply = reply,
			      .capacity = capacity,
			      .reply_bytes_p = reply_bytes_p,
			      .pass_fd = -1,
			      .passed_fd_p = passed_fd_p,
			      .deadline_ns = soda_deadline(timeout_ms),
			      .why = why };
	int ret;

	if (passed_fd_p)
		*passed_fd_p = -1;
	ret = exchange(&x);
	return ret < 0 ? fail(conn, ret, why) : x.answer;
}

/* Streamed calls */

/* Parts of data and what goes before and behind them, in one system call. */
enum { PARTS = 256, AROUND = 1 + MAX_BODY_IOV + 1 };

/* Zeros instead of data that cannot be read. */
static int send_zeros(struct soda_byte_stream s, uint64_t bytes, uint64_t deadline_ns)
{
	static const uint8_t zeros[16 << 10];
	int ret = 0;

	while (bytes && !ret) {
		struct iovec iov = { (void *)(uintptr_t)zeros,
				     bytes < sizeof(zeros) ? bytes : sizeof(zeros) };

		bytes -= iov.iov_len;
		ret = soda_stream_send(s, &iov, 1, deadline_ns);
	}
	return ret;
}

static uint64_t length(const struct iovec *iov, int n)
{
	uint64_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/*
 * The rest of a frame whose data cannot be read: what is left of its head, which the kernel may
 * have left aside with them, zeros, and a status that says so. -EFAULT, or the stream's error.
 */
static int send_without(struct soda_byte_stream s, struct iovec *head, int n, uint64_t data_bytes,
			uint64_t left, uint64_t deadline_ns)
{
	uint8_t status[SODA_WIRE_FLOW_END_BYTES];
	struct iovec end = { status, sizeof(status) };
	int ret = 0;

	left -= sizeof(status);
	if (left > data_bytes) {
		soda_iov_advance(&head, &n, length(head, n) - (left - data_bytes));
		ret = soda_stream_send(s, head, n, deadline_ns);
		left = data_bytes;
	}
	if (ret == 0)
		ret = send_zeros(s, left, deadline_ns);
	soda_wire_put_flow_end(status, SODA_ST_FAULT);
	if (ret == 0)
		ret = soda_stream_send(s, &end, 1, deadline_ns);
	return ret ? ret : -EFAULT;
}

/*
 * The head, n parts, then the data, then their status. -EFAULT: not all could be read, and the peer
 * was told; or the stream's error.
 */
static int send_flow(struct soda_byte_stream s, struct iovec *head, int n, struct soda_outflow *out,
		     uint64_t deadline_ns)
{
	uint8_t status[SODA_WIRE_FLOW_END_BYTES] = { 0 };
	uint64_t left = length(head, n) + out->bytes + sizeof(status);
	struct iovec iov[PARTS + AROUND];
	int ret = 0, parts = n;

	memcpy(iov, head, (size_t)n * sizeof(*head));
	while (left && !ret) {
		parts += out->next(out, iov + parts, PARTS);
		if (length(iov, parts) == left - sizeof(status))
			iov[parts++] = (struct iovec){ status, sizeof(status) };
		ret = send_counted(s, iov, parts, -1, deadline_ns, &left);
		parts = 0;
	}
	return ret == -EFAULT ? send_without(s, head, n, out->bytes, left, deadline_ns) : ret;
}

int soda_stream_control_submit(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			       int body_n, struct soda_outflow *out, int timeout_ms,
			       struct soda_why *why)
{
	uint8_t head[SODA_WIRE_FRAME_BYTES];
	struct iovec iov[1 + MAX_BODY_IOV];
	struct soda_wire_frame frame = { .type = (uint8_t)type, .flags = SODA_WIRE_STREAMED };
	uint64_t bytes = length(body, body_n) + out->bytes + SODA_WIRE_FLOW_END_BYTES;
	int ret;

	assert(body_n <= MAX_BODY_IOV && bytes <= SODA_WIRE_MAX_STREAM);
	frame.length = (uint32_t)bytes;
	soda_wire_put_frame(head, &frame);
	iov[0] = (struct iovec){ head, sizeof(head) };
	memcpy(iov + 1, body, (size_t)body_n * sizeof(*body));
	soda_stream_control(conn)->alone = !conn->submitted;
	ret = send_flow(soda_stream_control(conn)->s, iov, 1 + body_n, out,
			soda_deadline(timeout_ms));
	return ret < 0 && ret != -EFAULT ? fail(conn, ret, why) : ret;
}

int soda_stream_control_submit_call(struct soda_conn *conn, enum soda_msg type,
				    const struct iovec *body, int body_n, int timeout_ms,
				    struct soda_why *why)
{
	int ret = send_request(soda_stream_control(conn)->s, type, body, body_n, -1,
			       soda_deadline(timeout_ms));

	soda_stream_control(conn)->alone = false;
	return ret < 0 ? fail(conn, ret, why) : 0;
}

static bool has_come(void *arg)
{
	const struct soda_stream_control *c = arg;
	uint8_t any;

	return recv(c->s.fd, &any, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

int soda_stream_control_collect(struct soda_conn *conn, void *reply, size_t capacity,
				size_t *reply_bytes_p, int timeout_ms, struct soda_why *why)
{
	struct exchange x = { .s = soda_stream_control(conn)->s,
			      .peer = conn->peer,
			      .reply = reply,
			      .capacity = capacity,
			      .reply_bytes_p = reply_bytes_p,
			      .deadline_ns = soda_deadline(timeout_ms),
			      .why = why };
	struct soda_stream_control *c = soda_stream_control(conn);
	int ret;

	/* a small one is answered sooner than we are woken; behind others there is other work */
	if (c->alone)
		soda_spin_until(&c->spin, LOOK_NS, has_come, c);
	ret = take_answer(&x);
	return ret < 0 ? fail(conn, ret, why) : x.answer;
}

/* Control connections, on the side that connects */

void soda_stream_control_close(struct soda_conn *conn)
{
	soda_tls_close(soda_stream_control(conn)->s.tls);
	soda_fd_close(soda_stream_control(conn)->s.fd);
	free(soda_stream_control(conn));
}

void soda_stream_control_abort(struct soda_conn *conn)
{
	shutdown(soda_stream_control(conn)->s.fd, SHUT_RDWR);
}

int soda_stream_control_fd(const struct soda_conn *conn)
{
	return soda_stream_control(conn)->s.fd;
}

int soda_stream_control_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			     int body_n, void *reply, size_t capacity, size_t *reply_bytes_p,
			     int timeout_ms, struct soda_why *why)
{
	return soda_stream_call(conn, soda_stream_control(conn)->s, type, body, body_n, reply,
				capacity, reply_bytes_p, NULL, timeout_ms, why);
}

int soda_stream_control_call_fd(struct soda_conn *conn, enum soda_msg type,
				const struct iovec *body, int body_n, void *reply, size_t capacity,
				size_t *reply_bytes_p, int *fd_p, int timeout_ms,
				struct soda_why *why)
{
	return soda_stream_call(conn, soda_stream_control(conn)->s, type, body, body_n, reply,
				capacity, reply_bytes_p, fd_p, timeout_ms, why);
}

/* By TLS there are none: data that cannot be read would end us, where the kernel tells of them. */
static bool control_streams(const struct soda_conn *conn)
{
	return !soda_stream_control(conn)->s.tls;
}

const struct soda_conn_ops soda_stream_control_ops = {
	.close = soda_stream_control_close,
	.abort = soda_stream_control_abort,
	.fd = soda_stream_control_fd,
	.call = soda_stream_control_call,
	.submit = soda_stream_control_submit,
	.submit_call = soda_stream_control_submit_call,
	.collect = soda_stream_control_collect,
	.streams = control_streams,
};

int soda_stream_control_create(struct soda_byte_stream s, const struct soda_conn_ops *ops,
			       const char *prefix, const char *rest,
			       const struct soda_conn_options *opt, struct soda_conn **conn_p)
{
	struct soda_stream_control *c = calloc(1, sizeof(*c));

	if (!c) {
		soda_tls_close(s.tls);
		soda_fd_close(s.fd);
		return -ENOMEM;
	}
	soda_conn_init(&c->conn, ops, opt, prefix, rest);
	c->s = s;
	soda_spin_init(&c->spin, NULL);
	*conn_p = &c->conn;
	return 0;
}
