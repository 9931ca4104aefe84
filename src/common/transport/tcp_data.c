/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP data connections of the fault path: async-signal-safe, no allocation after
 * the start.  Requests wait in a ring of slots:
 *
 *      done <= received <= sent <= posted          (free-running counters)
 *       |       |           |       +- queued by post
 *       |       |           +- handed to the socket by flush
 *       |       +- reply is here
 *       +- reported by poll
 *
 * Replies come in the order of the requests, so one recvmsg can aim at header
 * and destination of the oldest replies expected, and usually gets a whole READ
 * at once.  Where the peer sends less (an error), what lies in the wrong place
 * is moved to the stash, which later receives use first.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/lock.h"
#include "rawsys.h"
#include "spin.h"
#include "tcp.h"

enum {
	REQUEST_STRIDE = SODA_WIRE_FRAME_BYTES + SODA_WIRE_READ_BYTES,
	WRITE_HEAD = SODA_WIRE_FRAME_BYTES + SODA_WIRE_WRITE_BYTES,
	REPLY_HEAD = SODA_WIRE_FRAME_BYTES + SODA_WIRE_TAG_BYTES,
	RX_WINDOW = 16, /* replies that one recvmsg aims at */
	TX_IOV = 64,
	STASH_BYTES = SODA_WIRE_MAX_DATA + RX_WINDOW * REPLY_HEAD,
	RECV_TIMEOUT_S = 1, /* of a blocking recvmsg: spares a ppoll where the limit is longer */
};

#define STALL_NS 30000000000 /* a flush with no progress at all for so long fails */

struct slot {
	uint64_t cookie;
	uint64_t tag;
	uint8_t *data;
	uint32_t bytes;
	bool write;
	int status;
	uint8_t reply[REPLY_HEAD];
};

struct tcp_data {
	struct soda_conn conn;
	int fd;
	uint32_t mask; /* slots - 1 */
	uint32_t done, received, sent, posted;
	size_t tx_offset; /* bytes of request `sent` that have gone */
	size_t rx_offset; /* bytes of reply `received` that have come */
	bool more;	  /* the last receive was filled: there may be more */
	uint64_t next_tag;
	struct slot *slots;
	uint8_t (*requests)[REQUEST_STRIDE];
	uint8_t *stash;
	size_t stash_begin, stash_end;
	struct soda_spin spin;
	struct iovec rx[2 * RX_WINDOW];
	struct iovec tx[TX_IOV];
};

static struct tcp_data *data(const struct soda_conn *conn)
{
	return (struct tcp_data *)(uintptr_t)conn;
}

static struct slot *slot(struct tcp_data *c, uint32_t i)
{
	return &c->slots[i & c->mask];
}

/* Sending */

static int data_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct tcp_data *c = data(conn);
	struct slot *s = slot(c, c->posted);
	uint8_t *out = c->requests[c->posted & c->mask];
	struct soda_wire_frame frame = {
		.type = p->write ? SODA_MSG_WRITE : SODA_MSG_READ,
		.length = p->write ? SODA_WIRE_WRITE_BYTES + p->bytes : SODA_WIRE_READ_BYTES,
	};
	uint64_t page = p->offset / SODA_WIRE_PAGE;

	*s = (struct slot){
		.cookie = p->cookie, .data = p->data, .bytes = p->bytes, .write = p->write
	};
	soda_wire_put_frame(out, &frame);
	out += SODA_WIRE_FRAME_BYTES;
	if (p->write) {
		s->tag = p->mr->region_id | page << 16;
		soda_wire_put_write(out, &(struct soda_wire_write){ .region_id = p->mr->region_id,
								    .page_offset = page,
								    .size = p->bytes });
	} else {
		s->tag = c->next_tag++;
		soda_wire_put_read(out, &(struct soda_wire_read){ .region_id = p->mr->region_id,
								  .page_offset = page,
								  .dest_addr = s->tag,
								  .size = p->bytes });
	}
	c->posted++;
	return 0;
}

static size_t request_bytes(const struct slot *s)
{
	return s->write ? WRITE_HEAD + (size_t)s->bytes : REQUEST_STRIDE;
}

static int push(struct iovec *iov, int n, void *base, size_t bytes, size_t *skip)
{
	if (*skip >= bytes) {
		*skip -= bytes;
		return n;
	}
	base = (uint8_t *)base + *skip;
	bytes -= *skip;
	*skip = 0;
	/* neighbours in the ring of READ requests become one piece */
	if (n && (uint8_t *)iov[n - 1].iov_base + iov[n - 1].iov_len == (uint8_t *)base) {
		iov[n - 1].iov_len += bytes;
		return n;
	}
	iov[n] = (struct iovec){ .iov_base = base, .iov_len = bytes };
	return n + 1;
}

static int aim_send(struct tcp_data *c)
{
	size_t skip = c->tx_offset;
	int n = 0;

	for (uint32_t i = c->sent; i != c->posted && n <= TX_IOV - 2; i++) {
		struct slot *s = slot(c, i);

		n = push(c->tx, n, c->requests[i & c->mask], s->write ? WRITE_HEAD : REQUEST_STRIDE,
			 &skip);
		if (s->write)
			n = push(c->tx, n, s->data, s->bytes, &skip);
	}
	return n;
}

static void account_sent(struct tcp_data *c, size_t bytes)
{
	c->tx_offset += bytes;
	while (c->sent != c->posted && c->tx_offset >= request_bytes(slot(c, c->sent))) {
		c->tx_offset -= request_bytes(slot(c, c->sent));
		c->sent++;
	}
}

/* Receiving */

/* 0: a good reply with its data follows; 1: an error reply, nothing follows; -EPROTO. */
static int check_reply(struct slot *s)
{
	struct soda_wire_frame f;
	uint64_t tag = 0;

	soda_wire_get_frame(s->reply, &f);
	for (unsigned i = 0; i < SODA_WIRE_TAG_BYTES; i++)
		tag |= (uint64_t)s->reply[SODA_WIRE_FRAME_BYTES + i] << (8 * i);
	if (f.type != (s->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY) || tag != s->tag)
		return -EPROTO;
	s->status = -soda_status_to_errno(f.status);
	if (s->status) {
		return f.length == SODA_WIRE_TAG_BYTES ? 1 : -EPROTO;
	}
	return f.length == SODA_WIRE_TAG_BYTES + (s->write ? 0 : s->bytes) ? 0 : -EPROTO;
}

static size_t reply_bytes(const struct slot *s)
{
	return REPLY_HEAD + (s->write ? 0 : (size_t)s->bytes);
}

/* Where the next bytes go: the rest of the oldest reply, then those after it. */
static int aim_recv(struct tcp_data *c, size_t *total_p)
{
	size_t skip = c->rx_offset, total = 0;
	int n = 0;

	for (uint32_t i = c->received; i != c->sent && n <= 2 * RX_WINDOW - 2; i++) {
		struct slot *s = slot(c, i);

		if (n && total + reply_bytes(s) > STASH_BYTES)
			break;
		total += reply_bytes(s) - skip;
		n = push(c->rx, n, s->reply, REPLY_HEAD, &skip);
		if (!s->write)
			n = push(c->rx, n, s->data, s->bytes, &skip);
	}
	*total_p = total;
	return n;
}

static void stash_add(struct tcp_data *c, const void *from, size_t bytes)
{
	assert(bytes <= STASH_BYTES - c->stash_end);
	memcpy(c->stash + c->stash_end, from, bytes);
	c->stash_end += bytes;
}

/*
 * Reply i has no data after all: `here` bytes lie in its destination that belong
 * to later replies, and `beyond` more in the places of the slots after it.
 */
static void stash_surplus(struct tcp_data *c, uint32_t i, size_t here, size_t beyond)
{
	c->stash_begin = c->stash_end = 0;
	stash_add(c, slot(c, i)->data, here);
	for (i++; beyond; i++) {
		struct slot *s = slot(c, i);
		size_t n = beyond < REPLY_HEAD ? beyond : REPLY_HEAD;

		stash_add(c, s->reply, n);
		beyond -= n;
		if (s->write)
			continue;
		n = beyond < s->bytes ? beyond : s->bytes;
		stash_add(c, s->data, n);
		beyond -= n;
	}
}

static void reply_complete(struct tcp_data *c)
{
	c->rx_offset = 0;
	c->received++;
}

/* `bytes` have arrived where aim_recv wanted them. 0 or -EPROTO. */
static int account_received(struct tcp_data *c, size_t bytes)
{
	while (bytes) {
		struct slot *s = slot(c, c->received);
		size_t before = c->rx_offset;
		size_t take = reply_bytes(s) - before < bytes ? reply_bytes(s) - before : bytes;
		int ret;

		c->rx_offset += take;
		bytes -= take;
		if (before < REPLY_HEAD && c->rx_offset >= REPLY_HEAD) {
			ret = check_reply(s);
			if (ret < 0)
				return ret;
			if (ret) {
				stash_surplus(c, c->received, c->rx_offset - REPLY_HEAD, bytes);
				reply_complete(c);
				return 0;
			}
		}
		if (c->rx_offset == reply_bytes(s))
			reply_complete(c);
	}
	return 0;
}

/* Feed the oldest reply from the stash: its header, or a part of its data. 0 or -EPROTO. */
static int account_stash(struct tcp_data *c)
{
	struct slot *s = slot(c, c->received);
	bool head = c->rx_offset < REPLY_HEAD;
	size_t want = (head ? REPLY_HEAD : reply_bytes(s)) - c->rx_offset;
	size_t have = c->stash_end - c->stash_begin;
	size_t n = want < have ? want : have;
	int ret;

	memcpy(head ? s->reply + c->rx_offset : s->data + (c->rx_offset - REPLY_HEAD),
	       c->stash + c->stash_begin, n);
	c->stash_begin += n;
	c->rx_offset += n;
	if (head && c->rx_offset == REPLY_HEAD) {
		ret = check_reply(s);
		if (ret < 0)
			return ret;
		if (ret) {
			reply_complete(c);
			return 0;
		}
	}
	if (c->rx_offset == reply_bytes(s))
		reply_complete(c);
	return 0;
}

/* One receive. 1: something came; 0: nothing there; negative errno. */
static int receive(struct tcp_data *c, int flags)
{
	struct msghdr msg = { .msg_iov = c->rx };
	size_t total;
	long n;
	int ret;

	if (c->stash_begin != c->stash_end) {
		/* bytes beyond all the replies that are due */
		ret = c->received == c->sent ? -EPROTO : account_stash(c);
		c->more = true;
		return ret < 0 ? ret : 1;
	}
	msg.msg_iovlen = (size_t)aim_recv(c, &total);
	n = raw_recvmsg(c->fd, &msg, flags);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return n < 0 ? (int)n : -ECONNRESET;
	c->more = (size_t)n == total;
	ret = account_received(c, (size_t)n);
	return ret < 0 ? ret : 1;
}

/* flush and poll */

/* The socket takes no more: take replies in meanwhile, or two full pipes wait for each other. */
static int await_room(struct tcp_data *c)
{
	bool due = c->received != c->sent;
	struct pollfd p = { .fd = c->fd, .events = (short)(POLLOUT | (due ? POLLIN : 0)) };
	long n = raw_poll(&p, 1, STALL_NS);

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
	struct msghdr msg = { .msg_iov = c->tx };

	if (c->sent != c->posted && polling)
		c->requests[(c->posted - 1) & c->mask][1] |= SODA_WIRE_POLLING;
	while (c->sent != c->posted) {
		long n;
		int ret;

		msg.msg_iovlen = (size_t)aim_send(c);
		n = raw_sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0) {
			account_sent(c, (size_t)n);
		} else if (n == -EAGAIN) {
			ret = await_room(c);
			if (ret < 0)
				return ret;
		} else if (n != -EINTR) {
			return n == -EPIPE ? -ECONNRESET : (int)n;
		}
	}
	return 0;
}

static int report(struct tcp_data *c, struct soda_done *done, int max)
{
	int n = 0;

	for (; n < max && c->done != c->received; n++) {
		struct slot *s = slot(c, c->done++);

		done[n] = (struct soda_done){ .cookie = s->cookie,
					      .bytes = s->bytes,
					      .status = s->status };
	}
	return n;
}

/* Nothing is due: tell whether the peer is there. 0 or negative errno. */
static int check_idle(struct tcp_data *c)
{
	uint8_t byte;
	long n;

	if (c->stash_begin != c->stash_end)
		return -EPROTO;
	n = raw_recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n < 0)
		return (int)n;
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
		if (ret < 0 || c->received != c->done) {
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

	if (c->stash_begin != c->stash_end) /* what the stash holds would not wake us */
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
	while (ret >= 0 && c->received == c->done) {
		if (timeout_ns > 0) {
			uint64_t now = soda_now_ns();

			left = now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
		}
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
	int n = report(c, done, max);
	int ret = 0;

	if (n == max)
		return n;
	if (n == 0) {
		if (c->received == c->sent)
			return check_idle(c);
		ret = await_reply(c, timeout_ns, spin_ns);
		if (ret < 0)
			return ret;
		n = report(c, done, max);
	}
	/* Only a receive that was filled has left anything behind. */
	while (n && n < max && c->more && c->received != c->sent && ret >= 0) {
		c->more = false;
		ret = receive(c, MSG_DONTWAIT);
		n += report(c, done + n, max - n);
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

	close(c->fd);
	if (c->stash && c->stash != MAP_FAILED)
		munmap(c->stash, STASH_BYTES);
	free(c->requests);
	free(c->slots);
	free(c);
}

static const struct soda_conn_ops data_ops = {
	.close = data_close,
	.abort = data_abort,
	.fd = data_fd,
	.post = data_post,
	.flush = data_flush,
	.poll = data_poll,
};

int soda_tcp_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p)
{
	struct timeval tv = { .tv_sec = RECV_TIMEOUT_S };
	struct tcp_data *c = calloc(1, sizeof(*c));
	uint32_t slots = 1;

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	while (slots < opt->depth)
		slots *= 2;
	soda_conn_init(&c->conn, &data_ops, opt, SODA_TCP_PREFIX, rest);
	soda_spin_init(&c->spin, NULL);
	c->fd = fd;
	c->mask = slots - 1;
	c->slots = calloc(slots, sizeof(*c->slots));
	c->requests = calloc(slots, sizeof(*c->requests));
	/* address space only: memory comes with the first error reply that needs it */
	c->stash = mmap(NULL, STASH_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!c->slots || !c->requests || c->stash == MAP_FAILED) {
		data_close(&c->conn);
		return -ENOMEM;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	*conn_p = &c->conn;
	return 0;
}
