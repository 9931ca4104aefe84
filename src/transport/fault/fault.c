/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A decorator over any other transport, for tests: it makes operations fail, late,
 * unanswered, or ends the connection, by the rules of rules.h.
 *
 * On a data connection every operation has a slot here, in the order of the
 * posts; those without a fault are posted to the connection below, and complete
 * when all slots before them have.  A region's memory that can be read directly
 * (soda_mr_direct) is read without coming by here.
 *
 * The descriptor is that of the connection below, where there are no rules.  Else it is an epoll of
 * two: the one below, whose answers count only while no fault is the oldest, and a timer, for when
 * the oldest is due.  After each flush and poll tell_of_oldest() sets both.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/own_fd.h"
#include "transport/api/rawsys.h"
#include "transport/fault/rules.h"

#define PREFIX "fault+"

/* A READ or WRITE that was posted, and what the rules do to it. */
struct fault_request {
	uint64_t cookie;
	uint64_t due_ns; /* FAULT_DELAY */
	uint32_t bytes;
	enum fault_action action; /* FAULT_NONE and FAULT_DELAY have been posted below */
	int err;
};

struct fault_conn {
	struct soda_conn conn;
	struct soda_conn *below;
	struct fault_rules rules;
	uint32_t mask;	       /* slots - 1 */
	uint32_t done, posted; /* done <= posted */
	int cut;	       /* not 0: at the next flush, with this error */
	bool in_place;
	int tell_fd, timer_fd; /* -1: the descriptor is that below */
	bool held;	       /* the descriptor below does not count */
	uint64_t due_ns;       /* the timer's; 0: not set */
	struct fault_request slots[];
};

static struct fault_conn *fault(const struct soda_conn *conn)
{
	return (struct fault_conn *)(uintptr_t)conn;
}

static void destroy(struct fault_conn *c)
{
	soda_conn_close(c->below);
	soda_fd_close(c->timer_fd);
	soda_fd_close(c->tell_fd);
	free(c);
}

static void fault_close(struct soda_conn *conn)
{
	destroy(fault(conn));
}

static void fault_abort(struct soda_conn *conn)
{
	soda_conn_abort(fault(conn)->below);
}

static int fault_fd(const struct soda_conn *conn)
{
	const struct fault_conn *c = fault(conn);

	return c->tell_fd >= 0 ? c->tell_fd : soda_conn_fd(c->below);
}

static int fault_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	return soda_conn_device(fault(conn)->below, name);
}

static void fault_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	soda_conn_end_poll(fault(conn)->below, p);
}

/* Calls */

/* Before a call. 0: go on with it; else its result. */
static int disturb_call(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	const struct fault_rule *r = soda_fault_decide(&fault(conn)->rules, FAULT_CALL);

	if (!r)
		return 0;
	soda_why_set(why, "%s: a fault was injected", conn->peer);
	switch (r->action) {
	case FAULT_FAIL:
		return r->err;
	case FAULT_DELAY:
		poll(NULL, 0, (int)r->ms);
		return 0;
	case FAULT_DROP:
		poll(NULL, 0, timeout_ms);
		conn->error = -ETIMEDOUT;
		return conn->error;
	default:
		soda_conn_abort(fault(conn)->below);
		/* of a call an answer that makes no sense is -ECONNABORTED (base/failure.h) */
		conn->error = r->action == FAULT_GARBLE ? -ECONNABORTED : -ECONNRESET;
		return conn->error;
	}
}

static int fault_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t capacity, size_t *reply_bytes_p,
		      int timeout_ms, struct soda_why *why)
{
	int ret = disturb_call(conn, timeout_ms, why);

	if (ret < 0)
		return ret;
	ret = soda_conn_call(fault(conn)->below, type, body, body_n, reply, capacity, reply_bytes_p,
			     timeout_ms, why);
	conn->error = fault(conn)->below->error;
	return ret;
}

static int fault_call_fd(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			 int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
			 int timeout_ms, struct soda_why *why)
{
	int ret = disturb_call(conn, timeout_ms, why);

	if (ret < 0)
		return ret;
	ret = soda_conn_call_fd(fault(conn)->below, type, body, body_n, reply, capacity,
				reply_bytes_p, fd_p, timeout_ms, why);
	conn->error = fault(conn)->below->error;
	return ret;
}

/* A call that fails before it is made has no answer to collect. */
static int disturb_submit(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	int ret = disturb_call(conn, timeout_ms, why);

	if (ret < 0 && !conn->error)
		conn->error = ret = -ECONNRESET;
	return ret;
}

static int fault_submit(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			int body_n, struct soda_outflow *out, int timeout_ms, struct soda_why *why)
{
	int ret = disturb_submit(conn, timeout_ms, why);

	if (ret < 0)
		return ret;
	ret = soda_conn_submit(fault(conn)->below, type, body, body_n, out, timeout_ms, why);
	conn->error = fault(conn)->below->error;
	return ret;
}

static int fault_submit_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			     int body_n, int timeout_ms, struct soda_why *why)
{
	int ret = disturb_submit(conn, timeout_ms, why);

	if (ret < 0)
		return ret;
	ret = soda_conn_submit_call(fault(conn)->below, type, body, body_n, timeout_ms, why);
	conn->error = fault(conn)->below->error;
	return ret;
}

static int fault_collect(struct soda_conn *conn, void *reply, size_t capacity,
			 size_t *reply_bytes_p, int timeout_ms, struct soda_why *why)
{
	int ret = soda_conn_collect(fault(conn)->below, reply, capacity, reply_bytes_p, timeout_ms,
				    why);

	conn->error = fault(conn)->below->error;
	return ret;
}

static unsigned fault_streams_most(const struct soda_conn *conn)
{
	return soda_conn_streams_most(fault(conn)->below);
}

static bool fault_streams(const struct soda_conn *conn)
{
	return soda_conn_streams(fault(conn)->below);
}

static int fault_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			     const char *name, struct soda_wire_opened *opened_p,
			     struct soda_mr *mr_p, int timeout_ms, struct soda_why *why)
{
	int ret = disturb_call(conn, timeout_ms, why);

	if (ret < 0)
		return ret;
	ret = soda_conn_open_region(fault(conn)->below, open, name, opened_p, mr_p, timeout_ms,
				    why);
	conn->error = fault(conn)->below->error;
	return ret;
}

static int fault_renew_region(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
			      struct soda_why *why)
{
	int ret = disturb_call(conn, timeout_ms, why);

	if (ret < 0)
		return ret;
	ret = soda_conn_renew_region(fault(conn)->below, mr, timeout_ms, why);
	conn->error = fault(conn)->below->error;
	return ret;
}

static int fault_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	return soda_conn_reach_keyed(fault(conn)->below, timeout_ms, why);
}

/* The descriptor */

static int add_to_told(const struct fault_conn *c, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(c->tell_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* For a data connection with rules. 0, or negative errno: the caller destroys. */
static int make_descriptor(struct fault_conn *c, struct soda_why *why)
{
	int below = soda_conn_fd(c->below), ret = 0;

	if (below < 0)
		return 0;
	c->tell_fd = soda_fd_own(epoll_create1(EPOLL_CLOEXEC));
	c->timer_fd = soda_fd_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (c->tell_fd < 0 || c->timer_fd < 0)
		ret = -errno;
	if (ret == 0)
		ret = add_to_told(c, below);
	if (ret == 0)
		ret = add_to_told(c, c->timer_fd);
	if (ret < 0)
		soda_why_set(why, "no descriptor for the delays of faults: %s", strerror(-ret));
	return ret;
}

/* Make the descriptor readable when there is something to poll for. AS. */
static void tell_of_oldest(struct fault_conn *c)
{
	const struct fault_request *s = &c->slots[c->done & c->mask];
	bool held = c->done != c->posted && s->action != FAULT_NONE;
	uint64_t due_ns = 0;

	if (c->tell_fd < 0)
		return;
	if (held && s->action == FAULT_FAIL)
		due_ns = 1; /* long ago */
	else if (held && s->action == FAULT_DELAY)
		due_ns = s->due_ns;
	if (held != c->held) {
		/* its peer's end is told of in any case */
		struct epoll_event event = { .events = held ? 0 : EPOLLIN };

		epoll_ctl(c->tell_fd, EPOLL_CTL_MOD, soda_conn_fd(c->below), &event);
		c->held = held;
	}
	if (due_ns != c->due_ns) {
		struct itimerspec at = { .it_value = { .tv_sec = (time_t)(due_ns / 1000000000),
						       .tv_nsec = (long)(due_ns % 1000000000) } };

		timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
		c->due_ns = due_ns;
	}
}

/* READs and WRITEs */

static int post_below(struct fault_conn *c, const struct soda_post *p)
{
	if (p->code)
		return soda_conn_post_coded(c->below, p->mr, p->offset, p->bytes, p->code,
					    p->code_bytes, 0);
	if (p->origin)
		return soda_conn_post_again(c->below, p->mr, p->offset, p->bytes, p->origin, 0);
	if (p->keep)
		return soda_conn_post_kept(c->below, p->mr, p->offset, p->bytes, p->data, 0);
	if (p->write)
		return soda_conn_post_write(c->below, p->mr, p->offset, p->bytes, p->data, 0);
	if (p->residency)
		soda_conn_tell(c->below, p->residency);
	if (p->stored)
		return soda_conn_post_stored(c->below, p->mr, p->offset, p->bytes, p->data, 0);
	return soda_conn_post_install(c->below, p->mr, p->offset, p->bytes, p->data, p->place,
				      p->protect, 0);
}

static int fault_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct fault_conn *c = fault(conn);
	struct fault_request *s = &c->slots[c->posted & c->mask];
	const struct fault_rule *r =
		soda_fault_decide(&c->rules, p->write ? FAULT_WRITE : FAULT_READ);
	int ret = 0;

	*s = (struct fault_request){ .cookie = p->cookie,
				     .bytes = p->bytes,
				     .action = r ? r->action : FAULT_NONE };
	if (s->action == FAULT_FAIL)
		s->err = r->err;
	else if (s->action == FAULT_DELAY)
		s->due_ns = soda_now_ns() + r->ms * 1000000ull;
	else if (s->action == FAULT_CUT)
		c->cut = -ECONNRESET;
	else if (s->action == FAULT_GARBLE)
		c->cut = -EPROTO;
	if (s->action == FAULT_NONE || s->action == FAULT_DELAY)
		ret = post_below(c, p);
	if (ret == 0)
		c->posted++;
	return ret;
}

static int fault_flush(struct soda_conn *conn, bool polling)
{
	struct fault_conn *c = fault(conn);
	int ret = soda_conn_flush(c->below, polling);

	tell_of_oldest(c);
	if (ret < 0 || !c->cut)
		return ret;
	soda_conn_abort(c->below);
	return c->cut;
}

/* Sleep for at most wait_ns (< 0: no limit). 0, or -ECONNRESET: the peer has gone. */
static int idle(struct fault_conn *c, int64_t wait_ns)
{
	struct pollfd p;

	soda_conn_end_poll(c->below, &p);
	return raw_poll(&p, 1, wait_ns) > 0 && p.revents ? -ECONNRESET : 0;
}

/* Posts from the oldest on that wait for nothing but the connection below. */
static int plain_run(const struct fault_conn *c, int max)
{
	int n = 0;

	while (n < max && c->done + (uint32_t)n != c->posted &&
	       c->slots[(c->done + (uint32_t)n) & c->mask].action == FAULT_NONE)
		n++;
	return n;
}

static int poll_below(struct fault_conn *c, struct soda_done *done, int max, int64_t timeout_ns,
		      int64_t spin_ns)
{
	int n = soda_conn_poll(c->below, done, plain_run(c, max), timeout_ns, spin_ns);

	for (int i = 0; i < n; i++)
		done[i].cookie = c->slots[c->done++ & c->mask].cookie;
	return n;
}

/*
 * The oldest has a fault.  1: completed into *done; 0: the state has changed or
 * wait_ns are over; negative errno.
 */
static int poll_faulty(struct fault_conn *c, struct soda_done *done, int64_t wait_ns)
{
	struct fault_request *s = &c->slots[c->done & c->mask];
	int64_t held = INT64_MAX;

	if (s->action == FAULT_FAIL) {
		*done = (struct soda_done){ .cookie = s->cookie,
					    .bytes = s->bytes,
					    .status = s->err };
		c->done++;
		return 1;
	}
	if (s->action == FAULT_DELAY) {
		held = (int64_t)(s->due_ns - soda_now_ns());
		if (held <= 0) {
			s->action = FAULT_NONE;
			return 0;
		}
	}
	if (wait_ns < 0 && held == INT64_MAX)
		return idle(c, -1);
	return idle(c, wait_ns >= 0 && wait_ns < held ? wait_ns : held);
}

static int poll_all(struct fault_conn *c, struct soda_done *done, int max, int64_t timeout_ns,
		    int64_t spin_ns)
{
	uint64_t deadline_ns = soda_now_ns() + (uint64_t)timeout_ns;
	int n = 0, ret;

	if (c->done == c->posted)
		return soda_conn_poll(c->below, done, max, 0, 0);
	while (n < max && c->done != c->posted) {
		int64_t left = n ? 0 : soda_time_left(deadline_ns, timeout_ns);

		if (plain_run(c, 1)) {
			ret = poll_below(c, done + n, max - n, left, spin_ns);
			if (ret <= 0)
				return n ? n : ret;
			if (c->in_place) /* the next poll below would take the data away */
				return n + ret;
		} else {
			ret = poll_faulty(c, done + n, left);
			if (ret < 0)
				return n ? n : ret;
			if (ret == 0 && left == 0 && !plain_run(c, 1))
				return n;
		}
		n += ret;
	}
	return n;
}

static int fault_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		      int64_t spin_ns)
{
	struct fault_conn *c = fault(conn);
	int ret = poll_all(c, done, max, timeout_ns, spin_ns);

	tell_of_oldest(c);
	return ret;
}

static bool fault_installs(const struct soda_conn *conn)
{
	return soda_conn_installs(fault(conn)->below);
}

static bool fault_keeps(const struct soda_conn *conn)
{
	return soda_conn_keeps(fault(conn)->below);
}

static int fault_revoke(struct soda_conn *conn)
{
	return soda_conn_revoke(fault(conn)->below);
}

static const struct soda_conn_ops fault_ops = {
	.close = fault_close,
	.abort = fault_abort,
	.fd = fault_fd,
	.call = fault_call,
	.call_fd = fault_call_fd,
	.submit = fault_submit,
	.submit_call = fault_submit_call,
	.collect = fault_collect,
	.streams_most = fault_streams_most,
	.streams = fault_streams,
	.open_region = fault_open_region,
	.renew_region = fault_renew_region,
	.reach_keyed = fault_reach_keyed,
	.device = fault_device,
	.end_poll = fault_end_poll,
	.post = fault_post,
	.flush = fault_flush,
	.poll = fault_poll,
	.installs = fault_installs,
	.keeps = fault_keeps,
	.revoke = fault_revoke,
};

/* Connecting */

/* 0: go on; else the result of the attempt. */
static int disturb_connect(const struct fault_rules *rules, int timeout_ms, const char *rest,
			   struct soda_why *why)
{
	/* the state of `connect` rules, for there is no connection yet to keep it */
	static _Atomic uint64_t seen;
	struct fault_rules now = *rules;
	uint64_t before = atomic_fetch_add(&seen, 1);
	const struct fault_rule *r;

	for (unsigned i = 0; i < now.n; i++) {
		now.rule[i].seen = before;
		now.rule[i].random += before * 2;
		now.rule[i].done = before > now.rule[i].after ? before - now.rule[i].after : 0;
	}
	r = soda_fault_decide(&now, FAULT_CONNECT);
	if (!r)
		return 0;
	soda_why_set(why, PREFIX "%.128s: a fault was injected", rest);
	if (r->action == FAULT_FAIL)
		return r->err;
	if (r->action == FAULT_CUT || r->action == FAULT_GARBLE)
		return -ECONNRESET;
	poll(NULL, 0, r->action == FAULT_DELAY ? (int)r->ms : timeout_ms);
	return r->action == FAULT_DELAY ? 0 : -ETIMEDOUT;
}

static int fault_connect(soda_connect_fn *below, const char *rest,
			 const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			 struct soda_why *why)
{
	const char *query = strrchr(rest, '?');
	char address[256];
	struct fault_conn *c;
	static _Atomic uint64_t connections;
	uint32_t slots = soda_ring_entries(opt->depth);
	int ret;

	if ((query ? (size_t)(query - rest) : strlen(rest)) >= sizeof(address))
		return -EINVAL;
	snprintf(address, sizeof(address), "%.*s", query ? (int)(query - rest) : 255, rest);
	c = calloc(1, sizeof(*c) + slots * sizeof(c->slots[0]));
	if (!c)
		return -ENOMEM;
	c->mask = slots - 1;
	c->in_place = opt->in_place;
	c->tell_fd = c->timer_fd = -1;
	ret = soda_fault_parse(query ? query + 1 : "", &c->rules, why);
	if (ret == 0)
		ret = disturb_connect(&c->rules, opt->timeout_ms, rest, why);
	if (ret == 0)
		ret = below(address, hello, opt, &c->below, welcome_p, why);
	if (ret == 0 && opt->kind == SODA_CONN_DATA && c->rules.n)
		ret = make_descriptor(c, why);
	if (ret < 0) {
		destroy(c);
		return ret;
	}
	soda_fault_vary(&c->rules, atomic_fetch_add(&connections, 1));
	soda_conn_init(&c->conn, &fault_ops, opt, PREFIX, address);
	*conn_p = &c->conn;
	return 0;
}

const struct soda_transport soda_tp_fault = {
	.prefix = PREFIX,
	.decorate = fault_connect,
};
