/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP data connections: system calls around queue.c.  Async-signal-safe, no
 * allocation after the start.
 *
 * Deep queues (write-back) come by here as well: an io_uring for the client was
 * tried and cost the same, 0.39 CPU-s/GB for both ends with 128 WRITEs of 64 KiB
 * outstanding (own measurement, 2-core virtual machine, Linux 6.18), and only a
 * ring bound to one thread (DEFER_TASKRUN), which this interface does not ask of
 * its callers, saved 3 to 8 %.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/own_fd.h"
#include "transport/api/rawsys.h"
#include "transport/api/spin.h"
#include "transport/tcp/tcp.h"

enum { RECV_TIMEOUT_S = 1 }; /* of a blocking recvmsg: spares a ppoll where the limit is longer */

struct tcp_data {
	struct soda_conn conn;
	int fd;
	bool more; /* the last receive was filled: there may be more */
	struct soda_spin spin;
	struct soda_tcp_queue q;
};

static struct tcp_data *data(const struct soda_conn *conn)
{
	return (struct tcp_data *)(uintptr_t)conn;
}

static int data_post(struct soda_conn *conn, const struct soda_post *p)
{
	soda_tcp_queue_post(&data(conn)->q, p);
	return 0;
}

/*
 * A record of TLS that was changed on its way (EBADMSG), or that is none of data (EIO), is no
 * answer of the server's, but the end of the connection.
 */
static int failure(long err)
{
	return err == -EBADMSG || err == -EIO ? -EPROTO : (int)err;
}

/* One receive. 1: something came; 0: nothing there; negative errno. */
static int receive(struct tcp_data *c, int flags)
{
	struct msghdr msg = { .msg_iov = c->q.rx };
	size_t total;
	long n;
	int ret;

	if (soda_tcp_queue_has_stash(&c->q)) {
		ret = soda_tcp_queue_use_stash(&c->q);
		c->more = true;
		return ret < 0 ? ret : 1;
	}
	msg.msg_iovlen = (size_t)soda_tcp_queue_aim_recv(&c->q, &total);
	n = raw_recvmsg(c->fd, &msg, flags);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return n < 0 ? failure(n) : -ECONNRESET;
	c->more = (size_t)n == total;
	ret = soda_tcp_queue_received(&c->q, (size_t)n);
	return ret < 0 ? ret : 1;
}

/* flush and poll */

/* The socket takes no more: take replies in meanwhile, or two full pipes wait for each other. */
static int await_room(struct tcp_data *c)
{
	bool due = c->q.received != c->q.sent;
	struct pollfd p = { .fd = c->fd, .events = (short)(POLLOUT | (due ? POLLIN : 0)) };
	long n = raw_poll(&p, 1, SODA_FLUSH_STALL_MS * SODA_MS_NS);

	if (n == 0)
		return -ETIMEDOUT;
	if (n < 0)
		return n == -EINTR ? 0 : (int)n;
	if (due && (p.revents & POLLIN)) {
		int ret = receive(c, MSG_DONTWAIT);

		return ret < 0 ? ret : 0;
	}
	return 0;
}

static int data_flush(struct soda_conn *conn, bool polling)
{
	struct tcp_data *c = data(conn);
	struct msghdr msg = { .msg_iov = c->q.tx };

	if (c->q.sent != c->q.posted && polling)
		soda_tcp_queue_mark_polling(&c->q);
	while (c->q.sent != c->q.posted) {
		long n;
		int ret;

		msg.msg_iovlen = (size_t)soda_tcp_queue_aim_send(&c->q);
		n = raw_sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0) {
			soda_tcp_queue_sent(&c->q, (size_t)n);
		} else if (n == -EAGAIN) {
			ret = await_room(c);
			if (ret < 0)
				return ret;
		} else if (n != -EINTR) {
			return n == -EPIPE ? -ECONNRESET : failure(n);
		}
	}
	return 0;
}

/* Nothing is due: tell whether the peer is there. 0 or negative errno. */
static int check_idle(struct tcp_data *c)
{
	uint8_t byte;
	long n;

	if (soda_tcp_queue_has_stash(&c->q))
		return -EPROTO;
	n = raw_recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n < 0)
		return failure(n);
	return n == 0 ? -ECONNRESET : -EPROTO;
}

/* Look without sleeping until a reply is complete. 0: or spin_ns are over. */
static int spin(struct tcp_data *c, int64_t spin_ns)
{
	int ret;

	if (!soda_spin_begin(&c->spin, (uint64_t)spin_ns))
		return 0;
	do {
		ret = receive(c, MSG_DONTWAIT);
		if (ret < 0 || c->q.received != c->q.done) {
			soda_spin_end(&c->spin, ret >= 0);
			return ret < 0 ? ret : 0;
		}
		if (ret > 0)
			soda_spin_progress(&c->spin);
	} while (soda_spin_again(&c->spin));
	return 0;
}

/* Sleep for at most `left`, and receive. As receive. */
static int sleep_receive(struct tcp_data *c, int64_t left)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	if (soda_tcp_queue_has_stash(&c->q)) /* what the stash holds would not wake us */
		return receive(c, 0);
	if (left >= RECV_TIMEOUT_S * 1000000000ll)
		return receive(c, 0);
	raw_poll(&p, 1, left);
	return receive(c, MSG_DONTWAIT);
}

/* Receive until a reply is complete or the time is over. 0 or negative errno. */
static int await_reply(struct tcp_data *c, int64_t timeout_ns, int64_t spin_ns)
{
	uint64_t deadline_ns = timeout_ns > 0 ? soda_now_ns() + (uint64_t)timeout_ns : 0;
	int64_t left = timeout_ns < 0 ? INT64_MAX : timeout_ns;
	int ret;

	ret = spin_ns > 0 && left > 0 ? spin(c, spin_ns < left ? spin_ns : left) : 0;
	while (ret >= 0 && c->q.received == c->q.done) {
		if (timeout_ns > 0)
			left = soda_time_left(deadline_ns, timeout_ns);
		ret = left > 0 ? sleep_receive(c, left) : receive(c, MSG_DONTWAIT);
		if (ret == 0 && left == 0)
			return 0;
	}
	return ret < 0 ? ret : 0;
}

static int data_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		     int64_t spin_ns)
{
	struct tcp_data *c = data(conn);
	int n = soda_tcp_queue_report(&c->q, done, max);
	int ret = 0;

	if (n == max)
		return n;
	if (n == 0) {
		if (c->q.received == c->q.sent)
			return check_idle(c);
		ret = await_reply(c, timeout_ns, spin_ns);
		if (ret < 0)
			return ret;
		n = soda_tcp_queue_report(&c->q, done, max);
	}
	/*
	 * Only a receive that was filled has left anything behind; and one with a refusal has put
	 * what came behind that into the stash, of which the descriptor would tell nobody.
	 */
	while (n && n < max && (c->more || soda_tcp_queue_has_stash(&c->q)) &&
	       c->q.received != c->q.sent && ret >= 0) {
		c->more = false;
		ret = receive(c, MSG_DONTWAIT);
		n += soda_tcp_queue_report(&c->q, done + n, max - n);
	}
	if (ret < 0)
		conn->error = ret; /* for the next call: what has completed is reported first */
	return n;
}

static int data_fd(const struct soda_conn *conn)
{
	return data(conn)->fd;
}

static void data_abort(struct soda_conn *conn)
{
	syscall(SYS_shutdown, data(conn)->fd, SHUT_RDWR);
}

static void data_close(struct soda_conn *conn)
{
	struct tcp_data *c = data(conn);

	soda_fd_close(c->fd);
	soda_tcp_queue_destroy(&c->q);
	free(c);
}

static bool data_keeps(const struct soda_conn *conn)
{
	return true;
}

static const struct soda_conn_ops data_ops = {
	.close = data_close,
	.abort = data_abort,
	.fd = data_fd,
	.post = data_post,
	.flush = data_flush,
	.poll = data_poll,
	.keeps = data_keeps,
};

int soda_tcp_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p)
{
	struct timeval tv = { .tv_sec = RECV_TIMEOUT_S };
	struct tcp_data *c = calloc(1, sizeof(*c));

	if (!c) {
		soda_fd_close(fd);
		return -ENOMEM;
	}
	soda_conn_init(&c->conn, &data_ops, opt, SODA_TCP_PREFIX, rest);
	soda_spin_init(&c->spin, NULL);
	c->fd = fd;
	if (soda_tcp_queue_create(&c->q, opt->depth) < 0) {
		data_close(&c->conn);
		return -ENOMEM;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	*conn_p = &c->conn;
	return 0;
}
