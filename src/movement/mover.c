/* SPDX-License-Identifier: BSD-3-Clause */
#include "movement/mover.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "wire/field.h"

enum { CHUNK = 65536 }; /* that clients with regions say; nothing here is done by chunks */

/* Errors */

static _Thread_local char last_error[320];

int soda_move_failed(int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, args);
	va_end(args);
	return err;
}

void soda_move_begun(void)
{
	last_error[0] = 0;
}

SODA_API const char *soda_move_last_error(void)
{
	return last_error;
}

int soda_move_call_failed(int ret, const struct soda_why *why)
{
	if (soda_call_lost(ret))
		return soda_move_failed(-ENOTCONN, "the connection to the agent is lost: %s",
					*why->text ? why->text : soda_strerror(ret));
	return soda_move_failed(ret, "%s", *why->text ? why->text : soda_strerror(ret));
}

/* The mover of a fork's child has no courier. */
int soda_mover_check(const struct soda_mover *m)
{
	soda_move_begun();
	if (m->pid == getpid())
		return 0;
	return soda_move_failed(-ENOTSUP,
				"this connection is that of the process %d, before its"
				" fork: the child needs one of its own",
				(int)m->pid);
}

static int lost_locked(const struct soda_mover *m)
{
	return soda_move_failed(m->error, "the connection to the agent is lost: %s", m->why.text);
}

/* Connecting */

static int find_address(const char *agent, char address[SODA_ADDRESS_MAX + 1])
{
	if (!agent)
		agent = getenv("SODA_DPU");
	if (!agent || !*agent)
		return soda_move_failed(-EINVAL, "no agent is named: give its address, or set"
						 " SODA_DPU");
	if (soda_address_of(agent, address) < 0)
		return soda_move_failed(-EINVAL, "an agent's address has at most %d bytes",
					SODA_ADDRESS_MAX);
	return 0;
}

static int join(const char *address, bool pages, struct soda_conn **conn_p)
{
	const struct soda_wire_hello hello = { .epoch = 1,
					       .chunk_bytes = pages ? CHUNK : 0,
					       .uid = getuid(),
					       .gid = getgid(),
					       .pid = (uint32_t)getpid() };
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL };
	struct soda_wire_welcome welcome;
	struct soda_why why = { "" };
	int ret = soda_conn_connect_as_told(address, &hello, &opt, conn_p, &welcome, &why);

	return ret < 0 ? soda_move_failed(ret, "%s", *why.text ? why.text : soda_strerror(ret)) : 0;
}

int soda_move_join(const char *agent, struct soda_conn **conn_p)
{
	char address[SODA_ADDRESS_MAX + 1];
	int ret = find_address(agent, address);

	return ret < 0 ? ret : join(address, false, conn_p);
}

static int say_start(struct soda_mover *m)
{
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION,
					      .flags = SODA_WIRE_MOVE_RING,
					      .token_at = (uintptr_t)m->token };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES], reply[SODA_WIRE_MOVE_STARTED_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_wire_move_started started;
	struct soda_why why = { "" };
	size_t n = 0;
	int fd = -1, ret;

	for (unsigned i = 0; i < 2; i++) {
		uint64_t half = atomic_load(&m->token[i]);

		memcpy(start.token + i * sizeof(half), &half, sizeof(half));
	}
	soda_wire_put_move_start(body, &start);
	ret = soda_conn_call_fd(m->conn, (enum soda_msg)SODA_MSG_MOVE_START, &iov, 1, reply,
				sizeof(reply), &n, &fd, SODA_MOVE_CALL_MS, &why);
	if (ret == -ENOTSUP || ret == -EPROTO)
		return soda_move_failed(-ENOTSUP,
					"%s does not move data: it needs to be a"
					" soda-dpu-agent of this library's version, with"
					" --move-memory (%s)",
					soda_conn_peer(m->conn), why.text);
	if (ret < 0)
		return soda_move_call_failed(ret, &why);
	ret = soda_wire_get_move_started(reply, n, &started);
	if (ret == 0 && ((started.way != SODA_WAY_READS && started.way != SODA_WAY_STREAM) ||
			 !started.ring_bytes != (fd < 0) ||
			 (fd >= 0 && started.ring_bytes != SODA_MOVE_RING_BYTES)))
		ret = -EPROTO;
	if (ret == 0 && fd >= 0)
		ret = soda_mover_ring_map(m, fd);
	if (fd >= 0)
		close(fd);
	if (ret < 0)
		return ret == -ENOMEM
			       ? soda_move_failed(ret, "no memory for a connection")
			       : soda_move_failed(-ENOTCONN, "the agent's answer makes no sense");
	m->way = (enum soda_wire_way)started.way;
	return 0;
}

/* The courier takes no signal: they are the program's. */
static int start_courier(struct soda_mover *m)
{
	sigset_t all, saved;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	ret = pthread_create(&m->courier, NULL, soda_courier_main, m);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return ret ? soda_move_failed(-ret, "cannot start a thread: %s", soda_strerror(ret)) : 0;
}

static void free_ticket(struct soda_move_ticket *t)
{
	if (t)
		soda_arrow_blocks_free(t->blocks);
	free(t);
}

static void destroy(struct soda_mover *m)
{
	soda_mover_take_back(m);
	if (m->token_held)
		m->fabric.unhold(m->token, sizeof(m->token));
	soda_conn_close(m->conn);
	soda_mover_ring_unmap(m);
	soda_mover_areas_unmap(m);
	if (m->bounce)
		munmap((void *)(uintptr_t)m->bounce, SODA_MOVE_PUT_MAX);
	if (m->bounce_fd >= 0)
		close(m->bounce_fd);
	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX; i++)
		free_ticket(m->tickets[i]);
	while (m->buffers) {
		struct soda_move_buffer *next = m->buffers->next;

		free(m->buffers);
		m->buffers = next;
	}
	soda_mover_objects_free(m);
	pthread_cond_destroy(&m->ended);
	pthread_cond_destroy(&m->work);
	pthread_mutex_destroy(&m->lock);
	pthread_mutex_destroy(&m->pages_lock);
	free(m);
}

static int set_up(struct soda_mover *m)
{
	uint64_t random[2];
	int ret;

	_Static_assert(sizeof(random) == SODA_MOVE_TOKEN_BYTES, "the token is two words");
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return soda_move_failed(-EIO, "the kernel has no random numbers");
	for (unsigned i = 0; i < 2; i++)
		atomic_store(&m->token[i], random[i]);
	soda_fabric_find(&m->fabric);
	m->token_held = soda_fabric_has(&m->fabric, (uintptr_t)m->token) &&
			m->fabric.hold(m->token, sizeof(m->token)) == 0;
	ret = join(m->address, m->has_pages, &m->conn);
	if (ret == 0) {
		unsigned most = soda_conn_streams_most(m->conn);

		m->flight_most = most < SODA_MOVER_FLIGHT ? most : SODA_MOVER_FLIGHT;
		ret = say_start(m);
	}
	if (ret == 0 && m->way == SODA_WAY_STREAM && soda_courier_prepare(m) < 0)
		ret = soda_move_failed(-ENOMEM, "no memory for a connection");
	return ret < 0 ? ret : start_courier(m);
}

/* SODA_SEAL as libsoda takes it; and what that would refuse is on here. */
static bool seals(void)
{
	static const char *const off[] = { "", "0", "no", "off", "false" };
	const char *value = getenv("SODA_SEAL");

	for (size_t i = 0; value && i < sizeof(off) / sizeof(off[0]); i++)
		if (!strcasecmp(value, off[i]))
			return false;
	return value;
}

int soda_mover_connect(const char *address, bool pages, struct soda_mover **mover_p)
{
	struct soda_mover *m = calloc(1, sizeof(*m));
	int ret;

	if (!m)
		return soda_move_failed(-ENOMEM, "no memory for a connection");
	snprintf(m->address, sizeof(m->address), "%s", address);
	m->has_pages = pages;
	m->seals = seals();
	m->pid = getpid();
	m->bounce_fd = -1;
	m->queue_end = &m->queue;
	pthread_mutex_init(&m->pages_lock, NULL);
	pthread_mutex_init(&m->lock, NULL);
	soda_cond_init(&m->work);
	soda_cond_init(&m->ended);
	ret = set_up(m);
	if (ret < 0)
		destroy(m);
	else
		*mover_p = m;
	return ret;
}

SODA_API int soda_move_connect(const char *agent, struct soda_mover **mover_p)
{
	char address[SODA_ADDRESS_MAX + 1];
	int saved = errno, ret;

	soda_move_begun();
	ret = find_address(agent, address);
	if (ret == 0)
		ret = soda_mover_connect(address, false, mover_p);
	errno = saved;
	return ret;
}

void soda_mover_take_back(struct soda_mover *m)
{
	/*
	 * Exchanges are full barriers: the agent, which reads what the program stores after this,
	 * and then the token (source.c, soda_source_check), finds it gone.
	 */
	for (unsigned i = 0; i < 2; i++)
		atomic_exchange(&m->token[i], 0);
	pthread_mutex_lock(&m->lock);
	soda_mover_areas_take_back_locked(m);
	pthread_mutex_unlock(&m->lock);
}

SODA_API void soda_move_disconnect(struct soda_mover *m)
{
	struct timespec until;
	bool stopped;

	if (!m || soda_mover_check(m) < 0)
		return;
	soda_move_disconnect(m->pages);
	soda_mover_take_back(m);
	until = soda_wait_until(SODA_MOVE_GOODBYE_MS);
	pthread_mutex_lock(&m->lock);
	m->stop = true;
	pthread_cond_broadcast(&m->work);
	while (!m->stopped)
		if (pthread_cond_timedwait(&m->ended, &m->lock, &until))
			break;
	stopped = m->stopped;
	pthread_mutex_unlock(&m->lock);
	if (!stopped) /* the agent is silent */
		soda_conn_abort(m->conn);
	pthread_join(m->courier, NULL);
	if (stopped && !m->error) { /* so that the names are free when this returns */
		soda_conn_leave(m->conn, SODA_MOVE_GOODBYE_MS);
		m->conn = NULL;
	}
	destroy(m);
}

SODA_API int soda_move_way(const struct soda_mover *m)
{
	return m->way == SODA_WAY_READS ? SODA_MOVE_READS : SODA_MOVE_STREAM;
}

/* Buffers */

int soda_mover_run(struct soda_mover *m, struct soda_errand *e)
{
	struct soda_errand **at;
	int ret;

	pthread_mutex_lock(&m->lock);
	for (at = &m->errands; *at;)
		at = &(*at)->next;
	*at = e;
	pthread_cond_signal(&m->work);
	/* the courier ends every errand, also where the connection is lost */
	while (!e->done)
		pthread_cond_wait(&m->ended, &m->lock);
	ret = m->error && e->ret < 0 ? lost_locked(m) : e->ret;
	pthread_mutex_unlock(&m->lock);
	return ret < 0 && ret == e->ret ? soda_move_call_failed(ret, &e->why) : ret;
}

int soda_mover_make_buffer(struct soda_mover *m, struct soda_errand *e, uint64_t bytes,
			   struct soda_move_object *o, struct soda_move_buffer *b)
{
	int ret = soda_mover_run(m, e);

	if (ret == 0 && e->reply_bytes != sizeof(uint32_t))
		ret = soda_move_failed(-ENOTCONN, "the agent's answer makes no sense");
	if (ret < 0)
		return ret;
	*b = (struct soda_move_buffer){
		.mover = m, .object = o, .bytes = bytes, .number = soda_wire_get_u32(e->reply)
	};
	pthread_mutex_lock(&m->lock);
	b->next = m->buffers;
	m->buffers = b;
	pthread_mutex_unlock(&m->lock);
	return 0;
}

SODA_API int soda_move_reserve(struct soda_mover *m, const char *name,
			       const struct soda_move_buffer_options *how,
			       struct soda_move_buffer **buffer_p)
{
	struct soda_wire_move_reserve ask = { how->bytes, how->copies, how->mode, how->flags };
	uint8_t body[SODA_WIRE_MOVE_RESERVE_BYTES];
	struct soda_errand e = { .type = SODA_MSG_MOVE_RESERVE,
				 .body = { { body, sizeof(body) },
					   { (void *)(uintptr_t)name, name ? strlen(name) : 0 } },
				 .body_n = 2 };
	struct soda_move_buffer *b;
	int ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	if (!name || !soda_wire_name_ok(name, strlen(name)))
		return soda_move_failed(-EINVAL,
					"a buffer's name has 1 to %u printable characters"
					" of ASCII, and no space",
					SODA_MOVE_NAME_MAX);
	if (how->reserved)
		return soda_move_failed(-EINVAL,
					"struct soda_move_buffer_options: `reserved` is not 0");
	b = malloc(sizeof(*b));
	if (!b)
		return soda_move_failed(-ENOMEM, "no memory for a buffer");
	soda_wire_put_move_reserve(body, &ask);
	ret = soda_mover_make_buffer(m, &e, how->bytes, NULL, b);
	if (ret < 0)
		free(b);
	else
		*buffer_p = b;
	return ret;
}

void soda_mover_await_tickets(struct soda_move_buffer *b)
{
	struct soda_mover *m = b->mover;

	pthread_mutex_lock(&m->lock);
	m->waiting++;
	pthread_cond_signal(&m->work);
	while (b->tickets)
		pthread_cond_wait(&m->ended, &m->lock);
	m->waiting--;
	pthread_mutex_unlock(&m->lock);
}

SODA_API int soda_move_end(struct soda_move_buffer *b)
{
	struct soda_mover *m = b->mover;
	uint8_t body[sizeof(uint32_t)];
	struct soda_errand e = { .type = SODA_MSG_MOVE_END,
				 .body = { { body, sizeof(body) } },
				 .body_n = 1 };
	struct soda_move_buffer **at;
	int ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	soda_mover_await_tickets(b);
	soda_wire_put_u32(body, b->number);
	ret = soda_mover_run(m, &e);
	pthread_mutex_lock(&m->lock);
	for (at = &m->buffers; *at != b;)
		at = &(*at)->next;
	*at = b->next;
	pthread_mutex_unlock(&m->lock);
	free(b);
	return ret;
}

/* Tickets */

void soda_ticket_end_locked(struct soda_move_ticket *t, int status, uint64_t step, const char *why)
{
	struct soda_mover *m = t->mover;

	if (t->state == SODA_TICKET_SENT) {
		m->sent--;
		m->streamed -= t->streamed;
	}
	t->state = SODA_TICKET_ENDED;
	t->status = status;
	t->step = step;
	snprintf(t->why.text, sizeof(t->why.text), "%s", why);
	if (t->buffer->object && status == -EIO)
		t->buffer->object->torn = true;
	t->buffer->tickets--;
	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX && !t->wanted; i++) {
		if (m->tickets[i] == t) {
			m->tickets[i] = NULL;
			free_ticket(t);
			break;
		}
	}
	pthread_cond_broadcast(&m->ended);
}

static void take_piece(const struct soda_move_piece *from, struct soda_wire_piece *p)
{
	*p = (struct soda_wire_piece){ .from = (uintptr_t)from->from,
				       .bytes = from->bytes,
				       .stride = from->stride,
				       .count = from->count ? from->count : 1,
				       .offset = from->offset,
				       .fill = SODA_WIRE_PIECE_COPY };
	if (p->count == 1)
		p->stride = p->bytes;
	if (!from->from) {
		p->stride = 0;
		p->fill = from->fill;
	}
}

/* A ticket of a checked list; NULL: *err_p says why not, remembered. */
static struct soda_move_ticket *make_ticket(struct soda_move_buffer *b,
					    const struct soda_move_piece *pieces, size_t n,
					    int *err_p)
{
	struct soda_move_ticket *t = NULL;
	const char *what;

	if (n > SODA_MOVE_PIECES_MAX)
		*err_p = soda_move_failed(-E2BIG, "%zu pieces: at most %u can be handed over", n,
					  SODA_MOVE_PIECES_MAX);
	else if (!(t = malloc(sizeof(*t) + n * sizeof(t->pieces[0]))))
		*err_p = soda_move_failed(-ENOMEM, "no memory for a list of %zu pieces", n);
	if (!t)
		return NULL;
	*t = (struct soda_move_ticket){ .mover = b->mover, .buffer = b, .pieces_n = (uint32_t)n };
	*err_p = 0;
	for (size_t i = 0; i < n; i++) {
		take_piece(&pieces[i], &t->pieces[i]);
		/* a byte that is none, which the check below would take for "copied" */
		if (pieces[i].reserved || (!pieces[i].from && pieces[i].fill > UINT8_MAX))
			*err_p = soda_move_failed(-EINVAL,
						  "piece %zu: `fill` is no byte, or"
						  " `reserved` not 0",
						  i);
	}
	if (*err_p == 0) {
		*err_p = soda_wire_pieces_check(t->pieces, n, b->bytes, &t->copied, &what);
		if (*err_p < 0)
			soda_move_failed(*err_p, "%s", what);
	}
	if (*err_p == 0)
		return t;
	free(t);
	return NULL;
}

/* Unless the courier is about to: it looks when it is done. */
static void reap_locked(struct soda_mover *m)
{
	if (!m->sending)
		soda_mover_ring_reap_locked(m);
}

/* Give the ticket a credit and a number, and hand it to the agent or the courier. */
static int queue_locked(struct soda_mover *m, struct soda_move_ticket *t)
{
	unsigned i = 0;

	if (m->error)
		return lost_locked(m);
	if (t->buffer->object && t->buffer->object->sealed)
		return soda_move_failed(-EROFS, "the object has been published: it does not change"
						" any more");
	reap_locked(m);
	while (i < SODA_MOVE_TICKETS_MAX && m->tickets[i])
		i++;
	if (i == SODA_MOVE_TICKETS_MAX) {
		m->asked = true;
		pthread_cond_signal(&m->work);
		return soda_move_failed(-EAGAIN, "%u tickets have not ended yet: wait for one",
					SODA_MOVE_TICKETS_MAX);
	}
	m->tickets[i] = t;
	t->number = ++m->last;
	t->buffer->tickets++;
	soda_mover_areas_name_locked(m, t);
	if (soda_mover_ring_post_locked(m, t)) {
		t->state = SODA_TICKET_SENT;
		m->sent++;
	} else {
		*m->queue_end = t;
		m->queue_end = &t->next;
	}
	if (m->queue || m->knock)
		pthread_cond_signal(&m->work);
	return 0;
}

int soda_mover_hand_over(struct soda_move_buffer *b, const struct soda_move_piece *pieces, size_t n,
			 struct soda_arrow_block *blocks, struct soda_move_ticket **ticket_p)
{
	struct soda_mover *m = b->mover;
	struct soda_move_ticket *t;
	int saved = errno, ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	t = make_ticket(b, pieces, n, &ret);
	if (!t) {
		errno = saved;
		return ret;
	}
	t->wanted = ticket_p;
	t->blocks = blocks;
	t->fabric = soda_fabric_any(&m->fabric, t->pieces, t->pieces_n);
	if ((t->fabric && m->seals) || soda_fabric_any_sealed(&m->fabric, t->pieces, t->pieces_n)) {
		free(t);
		errno = saved;
		return soda_move_failed(-ENOTSUP,
					"a piece lies in an object, which is sealed (SODA_SEAL, "
					"SODA_SEALED), and the agent would see it: copy to other "
					"memory what it may see");
	}
	pthread_mutex_lock(&m->lock);
	ret = queue_locked(m, t);
	/* with the lock held: an unwanted one may end, and be freed, at once */
	if (ret == 0 && ticket_p)
		*ticket_p = t;
	pthread_mutex_unlock(&m->lock);
	if (ret < 0)
		free(t);
	errno = saved;
	return ret;
}

SODA_API int soda_move(struct soda_move_buffer *b, const struct soda_move_piece *pieces, size_t n,
		       struct soda_move_ticket **ticket_p)
{
	return soda_mover_hand_over(b, pieces, n, NULL, ticket_p);
}

/* Whether notices of the ring are all that it waits for. */
static bool by_ring_locked(const struct soda_move_ticket *t)
{
	const struct soda_mover *m = t->mover;

	return m->ring && !m->sending && t->state == SODA_TICKET_SENT;
}

/* Of a ticket that has ended: its result. The ticket is gone then. */
static int settle_locked(struct soda_move_ticket *t, uint64_t *step_p)
{
	struct soda_mover *m = t->mover;
	int ret = t->status;

	if (ret < 0)
		soda_move_failed(ret, "%s", t->why.text);
	else if (step_p)
		*step_p = t->step;
	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX; i++)
		if (m->tickets[i] == t)
			m->tickets[i] = NULL;
	free_ticket(t);
	return ret;
}

/* By a ring its end would be known; but not that the connection is lost. */
static void ask_locked(struct soda_mover *m, const struct soda_move_ticket *t)
{
	uint64_t now = soda_now_ms();

	if (by_ring_locked(t) && now - m->asked_ms < SODA_MOVE_RING_MS)
		return;
	m->asked_ms = now;
	m->asked = true;
	pthread_cond_signal(&m->work);
}

SODA_API int soda_move_test(struct soda_move_ticket *t, uint64_t *step_p)
{
	struct soda_mover *m = t->mover;
	int saved = errno, ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&m->lock);
	reap_locked(m);
	if (t->state == SODA_TICKET_ENDED) {
		ret = settle_locked(t, step_p);
	} else {
		ret = -EINPROGRESS;
		ask_locked(m, t);
	}
	pthread_mutex_unlock(&m->lock);
	errno = saved;
	return ret;
}

/* For a while: who waits longer has the courier ask, which learns that a connection is lost. */
static void await_ring_locked(const struct soda_move_ticket *t, uint64_t deadline_ms)
{
	uint64_t now = soda_now_ms(), until = now + SODA_MOVE_RING_MS;

	until = until < deadline_ms ? until : deadline_ms;
	reap_locked(t->mover);
	while (by_ring_locked(t) && now < until) {
		soda_mover_ring_await_locked(t->mover, until - now);
		reap_locked(t->mover);
		now = soda_now_ms();
	}
}

/* No other ticket is under way: of several the courier sends the next while this thread waits. */
static bool is_alone_locked(const struct soda_move_ticket *t)
{
	const struct soda_mover *m = t->mover;

	return t->state == SODA_TICKET_QUEUED ? m->queue == t && !t->next && !m->sent
					      : !m->queue && m->sent == 1;
}

/*
 * Who waits for a ticket of one SEND, and there is no other, sends it and takes the answer: the
 * courier need not be awake for it, nor wake anybody.  Not who would wait less than a call may
 * take.
 */
static void help_courier_locked(const struct soda_move_ticket *t, uint64_t deadline_ms)
{
	struct soda_mover *m = t->mover;

	while (t->state != SODA_TICKET_ENDED && t->copied <= SODA_MOVE_SEND_MAX &&
	       is_alone_locked(t) &&
	       (deadline_ms == UINT64_MAX || deadline_ms > soda_now_ms() + SODA_MOVE_CALL_MS) &&
	       soda_courier_help_locked(m))
		;
}

/* The courier asks while anybody waits so. */
static void await_courier_locked(const struct soda_move_ticket *t, uint64_t deadline_ms)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ms / 1000),
				  .tv_nsec = (long)(deadline_ms % 1000) * 1000000 };
	struct soda_mover *m = t->mover;
	int over = 0;

	help_courier_locked(t, deadline_ms);
	soda_courier_resume_locked(m);
	if (t->state == SODA_TICKET_ENDED)
		return;
	m->waiting++;
	pthread_cond_signal(&m->work);
	while (t->state != SODA_TICKET_ENDED && !over)
		over = deadline_ms == UINT64_MAX
			       ? pthread_cond_wait(&m->ended, &m->lock)
			       : pthread_cond_timedwait(&m->ended, &m->lock, &until);
	m->waiting--;
}

SODA_API int soda_move_wait(struct soda_move_ticket *t, int timeout_ms, uint64_t *step_p)
{
	struct soda_mover *m = t->mover;
	uint64_t deadline_ms = timeout_ms < 0 ? UINT64_MAX : soda_now_ms() + (uint64_t)timeout_ms;
	int saved = errno, ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&m->lock);
	await_ring_locked(t, deadline_ms);
	await_courier_locked(t, deadline_ms);
	ret = t->state == SODA_TICKET_ENDED ? settle_locked(t, step_p) : -EINPROGRESS;
	pthread_mutex_unlock(&m->lock);
	errno = saved;
	return ret;
}

SODA_API int soda_move_cancel(struct soda_move_ticket *t)
{
	struct soda_mover *m = t->mover;
	int ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&m->lock);
	if (t->state == SODA_TICKET_ENDED) {
		ret = -EALREADY;
	} else {
		t->cancel = true;
		m->cancels = true;
		pthread_cond_signal(&m->work);
	}
	pthread_mutex_unlock(&m->lock);
	return ret;
}
