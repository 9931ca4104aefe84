/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The courier makes all calls of a mover's connection, one at a time: errands, on which a program's
 * thread waits; cancellations; tickets, in their order; and, while somebody wants to know how a
 * ticket has ended, the question.  A thread that waits for the only ticket sends it in the
 * courier's place, which then stands aside (soda_courier_help_locked).
 *
 * On the way STREAM the kernel reads the program's memory, because it says EFAULT where memory is
 * not there, and a load would be SIGSEGV.  Where the connection carries streamed calls it reads
 * while it sends, and some tickets are under way at a time; else the courier writes to a memfd
 * first, and makes a call for each part.  What lies in SODA's objects it has held for the time that
 * it, or the agent, reads it (fabric.h), and always sends in calls.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/iov.h"
#include "base/log.h"
#include "movement/mover.h"
#include "wire/field.h"

enum {
	SPANS = 256, /* of one system call that reads memory */
	NOTICES_BYTES = SODA_MOVE_CREDITS * SODA_WIRE_NOTICE_BYTES,
	FAULTS = 16, /* of one part, until it is not to be had */
};

int soda_courier_prepare(struct soda_mover *m)
{
	void *memory;

	m->bounce_fd = memfd_create("soda-move-bounce", MFD_CLOEXEC);
	if (m->bounce_fd < 0 || ftruncate(m->bounce_fd, SODA_MOVE_PUT_MAX) < 0)
		return -ENOMEM;
	memory = mmap(NULL, SODA_MOVE_PUT_MAX, PROT_READ, MAP_SHARED, m->bounce_fd, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	m->bounce = memory;
	return 0;
}

/*
 * The connection is lost.  The token goes first: what a program does to its memory once it has been
 * told must not be published, however long the agent goes on reading.
 */
static void lose(struct soda_mover *m, int err, const struct soda_why *why)
{
	soda_mover_take_back(m);
	pthread_mutex_lock(&m->lock);
	m->error = -ENOTCONN;
	snprintf(m->why.text, sizeof(m->why.text), "%s",
		 *why->text ? why->text : soda_strerror(err));
	m->queue = NULL;
	m->queue_end = &m->queue;
	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX; i++)
		if (m->tickets[i] && m->tickets[i]->state != SODA_TICKET_ENDED)
			soda_ticket_end_locked(m->tickets[i], -ENOTCONN, 0, m->why.text);
	pthread_mutex_unlock(&m->lock);
}

/* What comes of a call that ended with ret: a lost connection is the mover's end. */
static int settle(struct soda_mover *m, int ret, struct soda_why *why)
{
	if (ret == -EMSGSIZE) {
		snprintf(why->text, sizeof(why->text), "the agent's answer makes no sense");
		ret = -ECONNABORTED;
	}
	if (soda_call_lost(ret))
		lose(m, ret, why);
	return ret;
}

/* The ticket of that number which the agent has, or NULL. */
static struct soda_move_ticket *find_locked(struct soda_mover *m, uint64_t number)
{
	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX; i++) {
		struct soda_move_ticket *t = m->tickets[i];

		if (t && t->number == number &&
		    (t->state == SODA_TICKET_SENDING || t->state == SODA_TICKET_SENT))
			return t;
	}
	return NULL;
}

static const char *explain(int status)
{
	switch (status) {
	case -EFAULT:
		return "a piece lies outside of the memory that could be read";
	case -ENOSPC:
		return "no copy of the buffer was free: all are held, or kept, for readers";
	case -EPIPE:
		return "the buffer was ended";
	case -EINVAL:
		return "the agent refuses the list: a buffer that is not there, or pieces that "
		       "overlap";
	case -EFBIG:
		return "the agent refuses the list: a piece ends behind the buffer";
	case -ENOMEM:
		return "the agent has no memory for the list";
	case -ECANCELED:
		return "it was cancelled";
	case -EIO:
		return "the memory server did not take a part of it";
	default:
		return soda_strerror(status);
	}
}

void soda_ticket_notice_locked(struct soda_mover *m, const struct soda_wire_notice *n)
{
	struct soda_move_ticket *t = find_locked(m, n->ticket);
	int status = -soda_status_to_errno(n->status);

	if (status == 0 && !n->step)
		status = -EIO;
	if (t)
		soda_ticket_end_locked(t, status, n->step, explain(status));
}

/* What an answer has, and what lies in the ring. */
static void take_notices(struct soda_mover *m, const uint8_t *reply, size_t bytes)
{
	struct soda_wire_notice n;

	pthread_mutex_lock(&m->lock);
	for (size_t at = 0; at + SODA_WIRE_NOTICE_BYTES <= bytes; at += SODA_WIRE_NOTICE_BYTES) {
		soda_wire_get_notice(reply + at, &n);
		soda_ticket_notice_locked(m, &n);
	}
	soda_mover_ring_reap_locked(m);
	pthread_mutex_unlock(&m->lock);
}

/* Streamed calls under way */

/* The ticket ends with an error, if the agent has it still. */
static void fail_ticket(struct soda_mover *m, uint64_t number, int err, const struct soda_why *why)
{
	struct soda_move_ticket *t;

	pthread_mutex_lock(&m->lock);
	t = find_locked(m, number);
	if (t)
		soda_ticket_end_locked(t, err, 0, *why->text ? why->text : explain(err));
	pthread_mutex_unlock(&m->lock);
}

/* Await the oldest answer. 0, also where it is a refusal; or the connection is lost. */
static int collect(struct soda_mover *m)
{
	uint64_t number = m->flight[m->flight_at++ % SODA_MOVER_FLIGHT];
	uint8_t reply[NOTICES_BYTES];
	struct soda_why why = { "" };
	size_t bytes = 0;
	int ret = settle(
		m,
		soda_conn_collect(m->conn, reply, sizeof(reply), &bytes, SODA_MOVE_CALL_MS, &why),
		&why);

	if (soda_call_lost(ret))
		return ret;
	if (ret == 0)
		take_notices(m, reply, bytes);
	else /* of data that followed a ticket's end nobody hears: the ticket is not found */
		fail_ticket(m, number, ret, &why);
	return 0;
}

static int collect_all(struct soda_mover *m)
{
	int ret = 0;

	while (ret == 0 && soda_conn_submitted(m->conn))
		ret = collect(m);
	return ret;
}

/* Calls */

/* As soda_conn_call_fd(); a lost connection is the mover's end. */
static int call_fd(struct soda_mover *m, enum soda_move_msg type, const struct iovec *body,
		   int body_n, uint8_t *reply, size_t capacity, size_t *bytes_p, int *fd_p,
		   struct soda_why *why)
{
	int ret = collect_all(m);

	*why = (struct soda_why){ "" };
	*bytes_p = 0;
	if (ret < 0)
		return ret;
	ret = soda_conn_call_fd(m->conn, (enum soda_msg)type, body, body_n, reply, capacity,
				bytes_p, fd_p, SODA_MOVE_CALL_MS, why);
	return settle(m, ret, why);
}

static int call(struct soda_mover *m, enum soda_move_msg type, const struct iovec *body, int body_n,
		uint8_t *reply, size_t capacity, size_t *bytes_p, struct soda_why *why)
{
	return call_fd(m, type, body, body_n, reply, capacity, bytes_p, NULL, why);
}

/* A call whose answer is notices. */
static int call_noticed(struct soda_mover *m, enum soda_move_msg type, const struct iovec *body,
			int body_n, struct soda_why *why)
{
	uint8_t reply[NOTICES_BYTES];
	size_t bytes;
	int ret = call(m, type, body, body_n, reply, sizeof(reply), &bytes, why);

	if (ret == 0)
		take_notices(m, reply, bytes);
	return ret;
}

static int call_number(struct soda_mover *m, enum soda_move_msg type, uint64_t number)
{
	uint8_t body[sizeof(uint64_t)];
	struct iovec iov = { body, sizeof(body) };
	struct soda_why why;

	soda_wire_put_u64(body, number);
	return call_noticed(m, type, &iov, 1, &why);
}

/* Errands */

static void run_errand(struct soda_mover *m, struct soda_errand *e)
{
	uint8_t reply[NOTICES_BYTES];
	size_t bytes = 0;

	e->ret = call_fd(m, e->type, e->body, e->body_n, reply, sizeof(reply), &bytes,
			 e->type == SODA_MSG_MOVE_ALLOC ? &e->fd : NULL, &e->why);
	if (e->ret == 0 && (e->type == SODA_MSG_MOVE_END || e->type == SODA_MSG_MOVE_FREE))
		take_notices(m, reply, bytes);
	e->reply_bytes = bytes < sizeof(e->reply) ? bytes : sizeof(e->reply);
	memcpy(e->reply, reply, e->reply_bytes);
}

/* Data in calls */

/*
 * How many of these the kernel can take at once.  It makes all that goes into one page of the
 * bounce buffer resident, and then copies without a fault, or begins anew: of SODA's objects that
 * is one element at a time, since together they may be in more chunks than the page buffer has.
 */
static int together(const struct soda_mover *m, const struct iovec *iov, int n)
{
	int i = 0;

	while (i < n && !soda_fabric_has(&m->fabric, (uintptr_t)iov[i].iov_base))
		i++;
	return i ? i : 1;
}

/* Memory into the bounce buffer, all of it, or -EFAULT. iov is used up. */
static int read_memory(const struct soda_mover *m, struct iovec *iov, int n, off_t at)
{
	while (n) {
		ssize_t got = pwritev(m->bounce_fd, iov, together(m, iov, n), at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			got = errno == EFAULT ? soda_fabric_write(&m->fabric, m->bounce_fd, iov, at)
					      : -errno;
		if (got <= 0)
			return got < 0 ? (int)got : -EIO;
		at += got;
		soda_iov_advance(&iov, &n, (size_t)got);
	}
	return 0;
}

/* Fill the bounce buffer with what comes next. *bytes_p: how much. */
static int read_next(struct soda_mover *m, struct soda_piece_walk *walk, size_t *bytes_p)
{
	struct iovec iov[SPANS];
	struct soda_piece_span span;
	size_t bytes = 0;
	int n = 0;

	while (n < SPANS && bytes < SODA_MOVE_PUT_MAX &&
	       soda_piece_walk_next(walk, SODA_MOVE_PUT_MAX - bytes, &span)) {
		iov[n++] = (struct iovec){ (void *)(uintptr_t)span.from, span.bytes };
		bytes += span.bytes;
	}
	*bytes_p = bytes;
	return read_memory(m, iov, n, 0);
}

/* The ticket, if the agent still expects its data; it stays until this thread makes the next call.
 */
static const struct soda_move_ticket *expected(struct soda_mover *m, uint64_t number,
					       bool *cancel_p)
{
	const struct soda_move_ticket *t;

	pthread_mutex_lock(&m->lock);
	t = m->stop ? NULL : find_locked(m, number);
	*cancel_p = t && t->cancel;
	pthread_mutex_unlock(&m->lock);
	return t;
}

/*
 * Send the data of a ticket that the agent has accepted, until the agent says that the ticket has
 * ended: at the latest in the answer to its last byte.  The error of a call; -EFAULT; 0.
 */
static int put_data(struct soda_mover *m, uint64_t number)
{
	const struct soda_move_ticket *t;
	struct soda_piece_walk walk = { .pieces = NULL };
	uint8_t head[SODA_WIRE_MOVE_PUT_BYTES];
	struct soda_why why;
	uint64_t at = 0;
	bool cancel;
	int ret = 0;

	while (ret == 0 && (t = expected(m, number, &cancel))) {
		struct soda_wire_move_put put = { number, at };
		struct iovec iov[2] = { { head, sizeof(head) },
					{ (void *)(uintptr_t)m->bounce, 0 } };

		if (cancel)
			return call_number(m, SODA_MSG_MOVE_CANCEL, number);
		walk.pieces = t->pieces;
		walk.n = t->pieces_n;
		ret = read_next(m, &walk, &iov[1].iov_len);
		if (ret == 0 && !iov[1].iov_len)
			ret = -EIO; /* the agent wants more than there is */
		if (ret < 0) {
			call_number(m, SODA_MSG_MOVE_FAIL, number);
			return ret;
		}
		soda_wire_put_move_put(head, &put);
		at += iov[1].iov_len;
		ret = call_noticed(m, SODA_MSG_MOVE_PUT, iov, 2, &why);
	}
	return ret;
}

/* Streamed tickets */

struct flow {
	struct soda_outflow out; /* first */
	struct soda_piece_walk walk;
	uint64_t left; /* of out.bytes */
};

static int next_parts(struct soda_outflow *out, struct iovec *iov, int max)
{
	struct flow *f = (struct flow *)out;
	struct soda_piece_span span;
	int n = 0;

	while (n < max && f->left && soda_piece_walk_next(&f->walk, f->left, &span)) {
		iov[n++] = (struct iovec){ (void *)(uintptr_t)span.from, span.bytes };
		f->left -= span.bytes;
	}
	return n;
}

/* The body of a SEND: the list is in the first one alone. The caller frees it; NULL: no memory. */
static uint8_t *make_send(const struct soda_move_ticket *t, uint64_t at, size_t *bytes_p)
{
	struct soda_wire_move_send send = { t->number, at, t->buffer->number,
					    at ? 0 : t->pieces_n };
	size_t bytes = soda_wire_move_send_bytes(send.pieces);
	uint8_t *body = calloc(1, bytes), *out = body;

	if (!body)
		return NULL;
	soda_wire_put_move_send(out, &send);
	out += SODA_WIRE_MOVE_SEND_BYTES;
	for (uint32_t i = 0; i < send.pieces; i++, out += SODA_WIRE_PIECE_BYTES)
		soda_wire_put_piece(out, &t->pieces[i]);
	*bytes_p = bytes;
	return body;
}

/* One SEND, with the data from `at` on, of which f->walk stands at the first. */
static int submit(struct soda_mover *m, const struct soda_move_ticket *t, struct flow *f,
		  uint64_t at)
{
	uint64_t bytes = t->copied - at;
	struct soda_why why = { "" };
	struct iovec iov;
	int ret;

	iov.iov_base = make_send(t, at, &iov.iov_len);
	if (!iov.iov_base)
		return -ENOMEM;
	f->out.bytes = f->left = bytes < SODA_MOVE_SEND_MAX ? bytes : SODA_MOVE_SEND_MAX;
	m->flight[(m->flight_at + soda_conn_submitted(m->conn)) % SODA_MOVER_FLIGHT] = t->number;
	ret = soda_conn_submit(m->conn, (enum soda_msg)SODA_MSG_MOVE_SEND, &iov, 1, &f->out,
			       SODA_MOVE_CALL_MS, &why);
	free(iov.iov_base);
	return ret == -EFAULT ? ret : settle(m, ret, &why);
}

/*
 * Send a ticket's data, until all are on their way, or the ticket has ended.  The error of a call;
 * -ENOMEM; -ECANCELED: nothing of it was sent; 0: the agent will say how it ended, also where its
 * memory was not there.
 */
static int stream(struct soda_mover *m, uint64_t number)
{
	struct flow f = { .out.next = next_parts };
	const struct soda_move_ticket *t;
	uint64_t at = 0, copied = 1; /* not known yet */
	bool cancel;
	int ret = 0;

	while (ret == 0 && at < copied && (t = expected(m, number, &cancel))) {
		if (cancel && !at)
			return -ECANCELED; /* the agent does not know it, and would say nothing */
		if (cancel)
			return call_number(m, SODA_MSG_MOVE_CANCEL, number);
		if (soda_conn_submitted(m->conn) == m->flight_most) {
			ret = collect(m);
			continue;
		}
		copied = t->copied;
		f.walk.pieces = t->pieces;
		f.walk.n = t->pieces_n;
		ret = submit(m, t, &f, at);
		at += f.out.bytes;
	}
	return ret == -EFAULT ? 0 : ret;
}

/* Parts */

/*
 * Say that so much of the ticket can be read, and wait until it has been, or the ticket has ended,
 * or is not wanted any more.  -EAGAIN: some of it was not there; the error of a call.  The window
 * is given back before a program is told that the ticket has ended.
 */
static int read_part(struct soda_mover *m, uint64_t number, uint64_t to,
		     struct soda_fabric_window *window)
{
	uint8_t body[SODA_WIRE_MOVE_PART_BYTES], reply[sizeof(uint32_t) + NOTICES_BYTES];
	struct iovec iov = { body, sizeof(body) };
	uint32_t state = SODA_PART_UNREAD;
	struct soda_why why;
	bool cancel = false;
	size_t bytes;
	int ret = 0;

	soda_wire_put_move_part(body,
				&(struct soda_wire_move_part){ number, to, SODA_MOVE_AWAIT_MS });
	while (ret == 0 && state == SODA_PART_UNREAD && !cancel && expected(m, number, &cancel)) {
		ret = call(m, SODA_MSG_MOVE_PART, &iov, 1, reply, sizeof(reply), &bytes, &why);
		if (ret == 0 && bytes < sizeof(state))
			ret = -EIO;
		if (ret == 0) {
			state = soda_wire_get_u32(reply);
			if (state == SODA_PART_READ || state == SODA_PART_ENDED)
				soda_fabric_release(&m->fabric, window);
			take_notices(m, reply + sizeof(state), bytes - sizeof(state));
		}
	}
	return ret == 0 && state == SODA_PART_FAULT ? -EAGAIN : ret;
}

/*
 * READS: hold a part of the ticket's pieces after the other, each until the agent has read it.
 * Nobody can hold what the node's store has: where some of it went again at once, a smaller part is
 * tried.
 */
static int pass_parts(struct soda_mover *m, uint64_t number)
{
	struct soda_piece_walk walk = { .pieces = NULL }, before;
	struct soda_fabric_window window = { .n = 0 };
	const struct soda_move_ticket *t;
	uint64_t to = 0, bytes = 0;
	unsigned faults = 0;
	bool cancel, fabric;
	int ret = 0;

	while (ret == 0 && (t = expected(m, number, &cancel))) {
		if (cancel)
			return call_number(m, SODA_MSG_MOVE_CANCEL, number);
		walk.pieces = t->pieces;
		walk.n = t->pieces_n;
		before = walk;
		ret = soda_fabric_hold(&m->fabric, &walk, &window, &bytes);
		if (ret == 0 && !bytes)
			break; /* all has been read: what is left is the notice */
		fabric = window.n;
		if (ret == 0)
			ret = read_part(m, number, to + bytes, &window);
		soda_fabric_release(&m->fabric, &window);
		if (ret == 0) {
			to += bytes;
			faults = 0;
			soda_fabric_widen(&window);
		} else if (ret == -EAGAIN && fabric && ++faults < FAULTS) {
			walk = before;
			soda_fabric_narrow(&window);
			ret = 0;
		}
	}
	return ret == -EFAULT || ret == -EAGAIN ? call_number(m, SODA_MSG_MOVE_FAIL, number) : ret;
}

/* Tickets */

/* POST. The ticket is in SENDING, and this thread's alone. */
static int post(struct soda_mover *m, const struct soda_move_ticket *t, enum soda_move_msg type,
		struct soda_why *why)
{
	struct soda_wire_move_post post = { t->number, t->buffer->number, t->pieces_n };
	size_t bytes = SODA_WIRE_MOVE_POST_BYTES + t->pieces_n * SODA_WIRE_PIECE_BYTES;
	uint8_t *body = malloc(bytes);
	struct iovec iov = { body, bytes };
	int ret = -ENOMEM;

	if (body) {
		soda_wire_put_move_post(body, &post);
		for (uint32_t i = 0; i < t->pieces_n; i++)
			soda_wire_put_piece(body + SODA_WIRE_MOVE_POST_BYTES +
						    i * SODA_WIRE_PIECE_BYTES,
					    &t->pieces[i]);
		ret = call_noticed(m, type, &iov, 1, why);
	}
	free(body);
	return ret;
}

/* Hand a ticket to the agent. From the POST's answer on it may have ended, and be gone. */
static void send_ticket(struct soda_mover *m, struct soda_move_ticket *t)
{
	bool parts = t->fabric && m->way == SODA_WAY_READS, streamed = t->streamed;
	uint64_t number = t->number;
	struct soda_why why = { "" };
	int ret;

	if (t->streamed && !t->fabric && soda_conn_streams(m->conn)) {
		ret = stream(m, number);
	} else {
		ret = post(m, t, parts ? SODA_MSG_MOVE_POST_PARTS : SODA_MSG_MOVE_POST, &why);
		if (ret == 0 && parts)
			ret = pass_parts(m, number);
		else if (ret == 0 && streamed)
			ret = put_data(m, number);
	}
	pthread_mutex_lock(&m->lock);
	m->sending = false;
	t = m->stop ? NULL : find_locked(m, number);
	if (t && ret < 0) {
		soda_ticket_end_locked(t, ret, 0, *why.text ? why.text : explain(ret));
	} else if (t) {
		t->state = SODA_TICKET_SENT;
		m->sent++;
		m->streamed += t->streamed;
		m->cancels = m->cancels || t->cancel;
	}
	pthread_mutex_unlock(&m->lock);
}

/* The loop */

/* Cancel one ticket that the agent has. */
static void send_cancel_unlock(struct soda_mover *m)
{
	uint64_t number = 0;

	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX && !number; i++) {
		struct soda_move_ticket *t = m->tickets[i];

		if (t && t->state == SODA_TICKET_SENT && t->cancel && !t->cancel_sent) {
			t->cancel_sent = true;
			number = t->number;
		}
	}
	m->cancels = number != 0;
	pthread_mutex_unlock(&m->lock);
	if (number)
		call_number(m, SODA_MSG_MOVE_CANCEL, number);
}

static void send_first_unlock(struct soda_mover *m)
{
	struct soda_move_ticket *t = m->queue;

	m->queue = t->next;
	if (!m->queue)
		m->queue_end = &m->queue;
	if (t->cancel) {
		soda_ticket_end_locked(t, -ECANCELED, 0, explain(-ECANCELED));
		pthread_mutex_unlock(&m->lock);
		return;
	}
	t->state = SODA_TICKET_SENDING;
	m->sending = true;
	pthread_mutex_unlock(&m->lock);
	send_ticket(m, t);
}

/* The agent also looks at the ring then. */
static void ask_unlock(struct soda_mover *m, uint32_t ms)
{
	uint8_t body[sizeof(uint32_t)];
	struct iovec iov = { body, sizeof(body) };
	struct soda_why why;

	m->knock = false;
	if (ms)
		m->asked = false;
	pthread_mutex_unlock(&m->lock);
	soda_wire_put_u32(body, ms);
	call_noticed(m, SODA_MSG_MOVE_AWAIT, &iov, 1, &why);
}

/* Make an errand's call; where that can no more be, it fails. The lock is held again then. */
static void run_first_errand(struct soda_mover *m)
{
	struct soda_errand *e = m->errands;

	m->errands = e->next;
	e->ret = -ENOTCONN;
	if (!m->error && !m->stop) {
		pthread_mutex_unlock(&m->lock);
		run_errand(m, e);
		pthread_mutex_lock(&m->lock);
	}
	e->done = true;
	pthread_cond_broadcast(&m->ended);
}

/* An answer that is under way comes without being asked for. */
static void collect_unlock(struct soda_mover *m)
{
	pthread_mutex_unlock(&m->lock);
	collect(m);
}

/* The queue's first is streamed: not before the agent has fetched what it fetches by itself. */
static bool must_wait_locked(const struct soda_mover *m)
{
	return m->queue->streamed && m->sent > m->streamed;
}

static bool has_work_locked(const struct soda_mover *m)
{
	if (m->error)
		return false;
	return m->cancels || m->queue || m->knock || soda_conn_submitted(m->conn) ||
	       (m->sent && (m->waiting || m->asked));
}

/* Streamed calls alone: the rest is the courier's, since it may take longer, or wants its order. */
bool soda_courier_help_locked(struct soda_mover *m)
{
	const struct soda_move_ticket *t = m->queue;

	if (m->lent || m->busy || m->error || m->stop || m->errands || m->cancels || m->knock)
		return false;
	if (t ? !t->streamed || t->fabric || !soda_conn_streams(m->conn) || must_wait_locked(m)
	      : !soda_conn_submitted(m->conn))
		return false;
	m->lent = true;
	if (t)
		send_first_unlock(m);
	else
		collect_unlock(m);
	pthread_mutex_lock(&m->lock);
	m->lent = false;
	return true;
}

void soda_courier_resume_locked(struct soda_mover *m)
{
	/* who has the connection looks for more when it is done */
	if (m->busy || m->lent)
		return;
	if (m->stop || m->errands || has_work_locked(m))
		pthread_cond_signal(&m->work);
}

void *soda_courier_main(void *arg)
{
	struct soda_mover *m = arg;

	pthread_setname_np(pthread_self(), "soda-courier");
	pthread_mutex_lock(&m->lock);
	while (!m->stop || m->lent) {
		if (m->lent || (!m->errands && !has_work_locked(m))) {
			pthread_cond_wait(&m->work, &m->lock);
			continue;
		}
		m->busy = true;
		if (m->errands) {
			run_first_errand(m);
			m->busy = false;
			continue;
		}
		if (m->cancels)
			send_cancel_unlock(m);
		else if (m->queue && !must_wait_locked(m))
			send_first_unlock(m);
		else if (soda_conn_submitted(m->conn))
			collect_unlock(m);
		else
			ask_unlock(m, m->knock ? 0 : SODA_MOVE_AWAIT_MS);
		pthread_mutex_lock(&m->lock);
		m->busy = false;
	}
	while (m->errands)
		run_first_errand(m);
	if (!m->error) { /* the next call finds no answer to another */
		pthread_mutex_unlock(&m->lock);
		collect_all(m);
		pthread_mutex_lock(&m->lock);
	}
	m->stopped = true;
	pthread_cond_broadcast(&m->ended);
	pthread_mutex_unlock(&m->lock);
	return NULL;
}
