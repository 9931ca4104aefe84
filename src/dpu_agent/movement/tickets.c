/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/tickets_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/wait.h"
#include "dpu_agent/movement/memory.h"

enum {
	SPANS = 256,	/* of a copy, received at a time */
	STORED_MS = 50, /* a look whether a session is up, while a copy is awaited */
};

static size_t ticket_bytes(uint32_t pieces_n)
{
	return sizeof(struct soda_ticket) + pieces_n * sizeof(struct soda_wire_piece);
}

void soda_ticket_free(struct soda_movement *m, struct soda_ticket *t)
{
	pthread_mutex_lock(&m->buffers.lock);
	soda_shares_put(&m->lists, t->tenant, ticket_bytes(t->pieces_n));
	pthread_mutex_unlock(&m->buffers.lock);
	free(t);
}

struct soda_ticket *soda_ticket_new(struct soda_movement *m, uint32_t tenant, uint32_t n)
{
	struct soda_holder holder = soda_buffers_holder(&m->buffers, tenant);
	struct soda_ticket *t = malloc(ticket_bytes(n));
	bool taken = false;

	if (!t)
		return NULL;
	*t = (struct soda_ticket){ .tenant = tenant, .pieces_n = n };
	pthread_mutex_lock(&m->buffers.lock);
	if (soda_shares_room(&m->lists, SODA_MOVE_LISTS_BYTES, holder, ticket_bytes(n), 0))
		taken = soda_shares_take(&m->lists, tenant, ticket_bytes(n)) == 0;
	pthread_mutex_unlock(&m->buffers.lock);
	if (taken)
		return t;
	free(t);
	return NULL;
}

void soda_ticket_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The end of a ticket */

/* There is room: each ticket has a credit, and there are as many notices as credits. */
void soda_ticket_notify_locked(struct soda_move_client *c, uint64_t number, int err, uint64_t step)
{
	const struct soda_wire_notice n = { .ticket = number,
					    .step = step,
					    .status = soda_status_from_errno(-err) };

	if (c->ring.map) {
		if (!c->gone) /* else its program hears that the connection is lost */
			soda_ring_tell(&c->ring, &n);
		c->credits--;
	} else {
		c->notices[c->notices_n++] = n;
	}
	pthread_cond_broadcast(&c->ended);
}

void soda_ticket_finish(struct soda_move_client *c, struct soda_ticket *t, struct soda_copy *copy,
			int err)
{
	struct soda_movement *m = c->movement;
	uint64_t number = t->number, step = 0;
	bool store;

	pthread_mutex_lock(&m->lock);
	if (err == 0 && (t->cancelled || c->gone))
		err = -ECANCELED;
	store = err == 0 && t->buffer->range;
	if (err == 0 && !store)
		step = soda_buffer_publish(&m->buffers, t->buffer, copy);
	if (err && copy) {
		pthread_mutex_unlock(&m->lock);
		soda_buffer_abandon(&m->buffers, t->buffer, copy);
		pthread_mutex_lock(&m->lock);
	}
	if (c->receiving == t)
		c->receiving = NULL;
	else
		c->at_work = NULL;
	if (store) {
		soda_storer_take_locked(c, t);
		pthread_mutex_unlock(&m->lock);
		return;
	}
	soda_ticket_count(err ? &m->failed : &m->published, 1);
	soda_ticket_free(m, t);
	soda_ticket_notify_locked(c, number, err, step); /* by a ring its program knows at once */
	pthread_mutex_unlock(&m->lock);
}

/* A ticket that was queued ends. */
static void end_queued_locked(struct soda_move_client *c, struct soda_ticket *t, int err)
{
	soda_ticket_count(&c->movement->failed, 1);
	soda_ticket_notify_locked(c, t->number, err, 0);
}

/* Turns */

void soda_turn_rouse_locked(struct soda_movement *m)
{
	if (!m->looking)
		pthread_cond_signal(&m->work);
}

void soda_turn_append_locked(struct soda_movement *m, struct soda_move_client *c)
{
	c->waits_turn = true;
	c->next_turn = NULL;
	*m->turn_end = c;
	m->turn_end = &c->next_turn;
}

void soda_turn_queue_locked(struct soda_movement *m, struct soda_move_client *c)
{
	if (!c->waits_turn && !c->at_work && c->queue && !c->blocked)
		soda_turn_append_locked(m, c);
}

/* Lists */

static int refuse(struct soda_why *why, int err, const char *text)
{
	snprintf(why->text, sizeof(why->text), "movement: %s", text);
	return err;
}

/* A ticket of a checked list; NULL: *err_p and why say what is wrong. */
static struct soda_ticket *make_ticket(struct soda_move_client *c, struct soda_buffer *b,
				       uint64_t number, const uint8_t *pieces, uint32_t n,
				       bool parts, int *err_p, struct soda_why *why)
{
	struct soda_movement *m = c->movement;
	struct soda_ticket *t;
	const char *what;

	if (n > SODA_MOVE_LIST_MAX) {
		*err_p = refuse(why, -E2BIG, "there are too many pieces");
		return NULL;
	}
	t = soda_ticket_new(m, c->session->info.tenant, n);
	if (!t) {
		*err_p = refuse(why, -ENOMEM, "the agent has no memory for more lists of pieces");
		return NULL;
	}
	t->number = number;
	t->buffer = b;
	t->parts = parts;
	for (uint32_t i = 0; i < n; i++)
		soda_wire_get_piece(pieces + i * SODA_WIRE_PIECE_BYTES, &t->pieces[i]);
	*err_p = soda_wire_pieces_check(t->pieces, n, b->bytes, &t->copied, &what);
	if (*err_p == 0)
		*err_p = soda_areas_resolve(&c->areas, t->pieces, n, &t->areas, &t->shared, &what);
	if (*err_p == 0 && c->way == SODA_WAY_STREAM && t->shared && t->shared < t->copied) {
		what = "a client that sends its data has them all in shared memory, or none";
		*err_p = -EINVAL;
	}
	if (*err_p == 0)
		return t;
	refuse(why, *err_p, what);
	soda_ticket_free(m, t);
	return NULL;
}

/* Whether its client sends the ticket's data. */
static bool is_sent(const struct soda_move_client *c, const struct soda_ticket *t)
{
	return c->way == SODA_WAY_STREAM && t->shared < t->copied;
}

/* Whether the client may have the ticket; it counts then. */
static int admit_locked(struct soda_move_client *c, const struct soda_ticket *t,
			struct soda_why *why)
{
	uint64_t number = t->number;

	if (number <= c->last)
		return refuse(why, -EINVAL, "ticket numbers must grow");
	if (c->credits >= SODA_MOVE_CREDITS)
		return refuse(why, -EBUSY, "too many tickets: ask for those that have ended");
	if (c->receiving)
		return refuse(why, -EBUSY, "another ticket's data are still to come");
	if (is_sent(c, t) && (c->at_work || c->queue))
		return refuse(why, -EBUSY, "another ticket's data are still to be fetched");
	c->last = number;
	c->credits++;
	return 0;
}

/* A getter will see to it; one that sleeps is not roused here. */
static void enqueue_locked(struct soda_move_client *c, struct soda_ticket *t)
{
	struct soda_movement *m = c->movement;

	if (!c->queue)
		c->end = &c->queue;
	*c->end = t;
	c->end = &t->next;
	soda_turn_queue_locked(m, c);
	if (c->ring.map && !c->attended) {
		c->attended = true;
		c->next_attended = m->attended;
		m->attended = c;
		soda_ring_attend(&c->ring, true);
	}
}

/* A list of the client's ring becomes a ticket, or a notice that says why not. */
static void take_list_locked(struct soda_move_client *c, const struct soda_wire_move_post *p,
			     const uint8_t *pieces)
{
	struct soda_buffer *b = p->buffer < SODA_MOVE_BUFFERS ? c->buffers[p->buffer] : NULL;
	struct soda_ticket *t = NULL;
	struct soda_why why;
	int ret = -EINVAL;

	if (b && p->pieces <= SODA_MOVE_RING_PIECES)
		t = make_ticket(c, b, p->ticket, pieces, p->pieces, false, &ret, &why);
	if (t)
		ret = is_sent(c, t) ? -EINVAL : admit_locked(c, t, &why);
	if (ret == 0) {
		enqueue_locked(c, t);
		return;
	}
	if (t)
		soda_ticket_free(c->movement, t);
	soda_ticket_count(&c->movement->failed, 1);
	c->credits++; /* which the notice gives back */
	soda_ticket_notify_locked(c, p->ticket, ret, 0);
}

void soda_lists_take_of_locked(struct soda_move_client *c)
{
	struct soda_wire_move_post p;
	const uint8_t *pieces;

	/* at most so many, then others: a client may post as fast as they are refused */
	for (int i = 0; i < SODA_MOVE_RING_SIZE && !c->gone; i++) {
		if (!soda_ring_take(&c->ring, &p, &pieces))
			break;
		take_list_locked(c, &p, pieces);
	}
}

bool soda_lists_take_locked(struct soda_movement *m)
{
	bool had = m->turn;

	for (struct soda_move_client *c = m->attended; c; c = c->next_attended)
		soda_lists_take_of_locked(c);
	return !had && m->turn;
}

void soda_ticket_park_locked(struct soda_move_client *c, struct soda_ticket *t, bool faulted)
{
	t->parked = true;
	t->faulted = faulted;
	pthread_cond_broadcast(&c->ended);
}

static void unpark_locked(struct soda_move_client *c, struct soda_ticket *t)
{
	if (!t->parked)
		return;
	t->parked = t->faulted = false;
	soda_turn_append_locked(c->movement, c);
	soda_turn_rouse_locked(c->movement);
}

int soda_ticket_given_up_locked(const struct soda_move_client *c, const struct soda_ticket *t)
{
	if (!t->cancelled && !c->gone)
		return 0;
	return t->unreadable ? -EFAULT : -ECANCELED;
}

void soda_ticket_begin(struct soda_ticket *t)
{
	t->begun = true;
	t->walk = (struct soda_piece_walk){ .pieces = t->pieces, .n = t->pieces_n };
	t->placing = t->walk;
	soda_wire_pieces_set(t->pieces, t->pieces_n, t->copy->memory, t->buffer->bytes);
}

uint8_t *soda_ticket_destination(const struct soda_ticket *t)
{
	return t->buffer->stage ? t->buffer->stage : t->copy->memory;
}

uint64_t soda_ticket_place(struct soda_ticket *t, uint64_t max)
{
	struct soda_piece_span span;
	uint64_t bytes = 0;

	while (bytes < max && soda_piece_walk_next(&t->placing, max - bytes, &span)) {
		memcpy(t->copy->memory + span.offset, t->buffer->stage + span.offset, span.bytes);
		bytes += span.bytes;
	}
	t->placed += bytes;
	return bytes;
}

/* Calls */

/* So long from now, but no longer than a call waits. */
static struct timespec in_ms(uint32_t ms)
{
	return soda_wait_until(ms < SODA_MOVE_AWAIT_MS ? ms : SODA_MOVE_AWAIT_MS);
}

/* Whether what is gathered for the range can be written: not where the session is broken. */
static bool can_store(const struct soda_move_client *c, const struct soda_buffer *b)
{
	struct soda_why ignored;

	return c->session->all->regions->check(c->session, b->region, b->at,
					       soda_memory_pages(b->bytes), &ignored) == 0;
}

/*
 * A copy to fill.  Of a range the storer may have them all: then the client's connection waits for
 * it.
 */
static int fill_in_time(struct soda_move_client *c, struct soda_ticket *t)
{
	struct soda_movement *m = c->movement;
	struct timespec until;
	int ret;

	while ((ret = soda_buffer_fill(&m->buffers, t->buffer, &t->copy)) == -ENOSPC &&
	       t->buffer->range && can_store(c, t->buffer)) {
		until = in_ms(STORED_MS);
		pthread_mutex_lock(&m->lock);
		pthread_cond_timedwait(&c->ended, &m->lock, &until);
		pthread_mutex_unlock(&m->lock);
	}
	return ret;
}

/* Its data come with PUTs, or behind the SEND. */
static void expect(struct soda_move_client *c, struct soda_ticket *t)
{
	int ret = fill_in_time(c, t);

	if (ret < 0) {
		soda_ticket_finish(c, t, NULL, ret);
		return;
	}
	soda_ticket_begin(t);
	c->receiving = t;
}

int soda_tickets_post(struct soda_move_client *c, struct soda_buffer *b, uint64_t number,
		      const uint8_t *pieces, uint32_t n, bool parts, struct soda_why *why)
{
	struct soda_movement *m = c->movement;
	struct soda_ticket *t;
	bool sent;
	int ret;

	if (parts && c->way != SODA_WAY_READS)
		return refuse(why, -EINVAL, "a client that sends its data needs no parts");
	t = make_ticket(c, b, number, pieces, n, parts, &ret, why);
	if (!t)
		return ret;
	pthread_mutex_lock(&m->lock);
	sent = is_sent(c, t);
	ret = admit_locked(c, t, why);
	if (ret == 0 && !sent) {
		enqueue_locked(c, t);
		soda_turn_rouse_locked(m);
	}
	pthread_mutex_unlock(&m->lock);
	if (ret < 0)
		soda_ticket_free(m, t);
	else if (sent)
		expect(c, t);
	if (ret == 0)
		*why = (struct soda_why){ "" };
	return ret;
}

static struct soda_ticket *receiving(const struct soda_move_client *c, uint64_t number)
{
	struct soda_ticket *t = c->receiving;

	return t && t->number == number ? t : NULL;
}

int soda_tickets_put(struct soda_move_client *c, uint64_t number, uint64_t at, const uint8_t *data,
		     size_t bytes)
{
	struct soda_ticket *t = receiving(c, number);
	struct soda_piece_span span;

	if (!t || at != t->received || bytes > t->copied - t->received)
		return -EINVAL;
	for (size_t left = bytes; left; left -= span.bytes) {
		if (!soda_piece_walk_next(&t->walk, left, &span))
			return -EINVAL; /* does not happen: it has so many bytes */
		memcpy(soda_ticket_destination(t) + span.offset, data, span.bytes);
		data += span.bytes;
	}
	t->received += bytes;
	soda_ticket_count(&c->movement->streamed_bytes, bytes);
	if (t->received == t->copied) {
		if (t->buffer->stage)
			soda_ticket_place(t, t->copied);
		soda_ticket_finish(c, t, t->copy, 0);
	}
	return 0;
}

/* The next parts of the copy, at most max and of `left` bytes: how many, and their length. */
static int next_parts(struct soda_ticket *t, uint64_t left, struct iovec *iov, int max,
		      uint64_t *bytes_p)
{
	struct soda_piece_span span;
	uint64_t bytes = 0;
	int n = 0;

	while (n < max && bytes < left && soda_piece_walk_next(&t->walk, left - bytes, &span)) {
		uint8_t *to = t->copy->memory + span.offset;

		if (n && (uint8_t *)iov[n - 1].iov_base + iov[n - 1].iov_len == to)
			iov[n - 1].iov_len += span.bytes;
		else
			iov[n++] = (struct iovec){ to, span.bytes };
		bytes += span.bytes;
	}
	*bytes_p = bytes;
	return n;
}

int soda_tickets_receive(struct soda_move_client *c, uint64_t number, uint64_t at,
			 struct soda_inflow *in)
{
	struct soda_ticket *t = receiving(c, number);
	struct iovec iov[SPANS];
	uint64_t bytes;
	int ret = 0, n;

	if (!t || at != t->received || in->left > t->copied - t->received)
		return -EINVAL;
	while (in->left && ret == 0) {
		n = next_parts(t, in->left, iov, SPANS, &bytes);
		ret = soda_inflow_take(in, iov, n);
		t->received += bytes;
		soda_ticket_count(&c->movement->streamed_bytes, bytes);
	}
	if (ret == 0)
		ret = soda_inflow_end(in);
	if (ret == -EFAULT)
		soda_ticket_finish(c, t, t->copy, -EFAULT);
	else if (ret == 0 && t->received == t->copied)
		soda_ticket_finish(c, t, t->copy, 0);
	return ret == -EFAULT ? 0 : ret;
}

/* READS: the client's ticket in parts, whether a getter has taken it yet or not. */
static struct soda_ticket *find_parts_locked(const struct soda_move_client *c, uint64_t number)
{
	struct soda_ticket *t = c->at_work;

	if (!t || t->number != number)
		for (t = c->queue; t && t->number != number;)
			t = t->next;
	return t && t->parts ? t : NULL;
}

/* The ticket is to end without a step, wherever it is. */
static void give_up_locked(struct soda_move_client *c, struct soda_ticket *t, bool unreadable)
{
	t->cancelled = true;
	t->unreadable = unreadable;
	unpark_locked(c, t);
}

int soda_tickets_fail(struct soda_move_client *c, uint64_t number)
{
	struct soda_ticket *t = receiving(c, number);

	if (t) {
		soda_ticket_finish(c, t, t->copy, -EFAULT);
		return 0;
	}
	pthread_mutex_lock(&c->movement->lock);
	t = find_parts_locked(c, number);
	if (t)
		give_up_locked(c, t, true);
	pthread_mutex_unlock(&c->movement->lock);
	return t ? 0 : -EINVAL;
}

/* Until the ticket is parked, or has ended. */
static enum soda_part_state await_part_locked(struct soda_move_client *c, uint64_t number,
					      uint32_t ms)
{
	struct timespec until = in_ms(ms);
	const struct soda_ticket *t;
	int over = 0;

	while ((t = find_parts_locked(c, number)) && !t->parked && !over)
		over = pthread_cond_timedwait(&c->ended, &c->movement->lock, &until);
	if (!t)
		return SODA_PART_ENDED;
	if (!t->parked)
		return SODA_PART_UNREAD;
	return t->faulted ? SODA_PART_FAULT : SODA_PART_READ;
}

int soda_tickets_part(struct soda_move_client *c, uint64_t number, uint64_t to, uint32_t ms,
		      enum soda_part_state *state_p)
{
	struct soda_movement *m = c->movement;
	struct soda_ticket *t;
	int ret = 0;

	pthread_mutex_lock(&m->lock);
	t = find_parts_locked(c, number);
	if (t && (to > t->copied || (to < t->allowed && !t->faulted))) {
		ret = -EINVAL;
	} else if (t) {
		t->allowed = to; /* after a fault perhaps less, of which all has been read */
		t->faulted = false;
		/* one that is parked is no getter's, so `received` stands */
		if (t->parked && t->received < to)
			unpark_locked(c, t);
	}
	if (ret == 0)
		*state_p = await_part_locked(c, number, ms);
	pthread_mutex_unlock(&m->lock);
	return ret;
}

/* Take the tickets of a number, or of a buffer, out of the queue, to end with -ECANCELED. */
static struct soda_ticket *take_out_locked(struct soda_move_client *c, uint64_t number,
					   const struct soda_buffer *b)
{
	struct soda_ticket *out = NULL, **at = &c->queue, *t;

	while ((t = *at)) {
		if (t->number != number && t->buffer != b) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		end_queued_locked(c, t, -ECANCELED);
		t->next = out;
		out = t;
	}
	c->end = at;
	return out;
}

static void free_all(struct soda_movement *m, struct soda_ticket *list)
{
	while (list) {
		struct soda_ticket *next = list->next;

		soda_ticket_free(m, list);
		list = next;
	}
}

/* Areas */

int soda_tickets_add_area(struct soda_move_client *c, const struct soda_area *area, unsigned *i_p)
{
	unsigned i = 0;

	while (i < SODA_MOVE_AREAS && c->areas.at[i].memory)
		i++;
	if (i == SODA_MOVE_AREAS)
		return -EBUSY;
	pthread_mutex_lock(&c->movement->lock);
	c->areas.at[i] = *area;
	pthread_mutex_unlock(&c->movement->lock);
	*i_p = i;
	return 0;
}

static bool names_area_locked(const struct soda_move_client *c, uint32_t i)
{
	uint64_t named = c->at_work ? c->at_work->areas : 0;

	for (const struct soda_ticket *t = c->queue; t; t = t->next)
		named |= t->areas;
	return named >> i & 1;
}

int soda_tickets_remove_area(struct soda_move_client *c, uint32_t i, struct soda_area *area_p)
{
	int ret = -EINVAL;

	if (i >= SODA_MOVE_AREAS)
		return ret;
	pthread_mutex_lock(&c->movement->lock);
	if (c->areas.at[i].memory)
		ret = names_area_locked(c, i) ? -EBUSY : 0;
	if (ret == 0) {
		*area_p = c->areas.at[i];
		c->areas.at[i].memory = NULL;
	}
	pthread_mutex_unlock(&c->movement->lock);
	return ret;
}

/* Rings */

int soda_tickets_ring(struct soda_move_client *c)
{
	struct soda_movement *m = c->movement;
	int ret = -ENOMEM;

	if (atomic_fetch_add_explicit(&m->rings, 1, memory_order_relaxed) < SODA_MOVE_RINGS)
		ret = soda_ring_make(&c->ring);
	if (ret < 0)
		atomic_fetch_sub_explicit(&m->rings, 1, memory_order_relaxed);
	return ret;
}

void soda_tickets_unring(struct soda_move_client *c)
{
	if (c->ring.map)
		atomic_fetch_sub_explicit(&c->movement->rings, 1, memory_order_relaxed);
	soda_ring_unmake(&c->ring);
}

int soda_tickets_look(struct soda_move_client *c)
{
	struct soda_movement *m = c->movement;
	bool broken;

	if (!c->ring.map)
		return 0;
	pthread_mutex_lock(&m->lock);
	soda_lists_take_of_locked(c);
	if (m->turn)
		soda_turn_rouse_locked(m);
	broken = c->ring.broken;
	pthread_mutex_unlock(&m->lock);
	return broken ? -EPROTO : 0;
}

void soda_tickets_cancel(struct soda_move_client *c, uint64_t number)
{
	struct soda_ticket *out, *t = receiving(c, number);
	struct soda_movement *m = c->movement;

	if (t) {
		soda_ticket_finish(c, t, t->copy, -ECANCELED);
		return;
	}
	pthread_mutex_lock(&m->lock);
	out = take_out_locked(c, number, NULL);
	if (c->at_work && c->at_work->number == number)
		give_up_locked(c, c->at_work, false);
	pthread_mutex_unlock(&m->lock);
	free_all(m, out);
}

void soda_tickets_forget(struct soda_move_client *c, const struct soda_buffer *b)
{
	struct soda_movement *m = c->movement;
	struct soda_ticket *out;
	struct soda_wait wait;

	if (c->receiving && c->receiving->buffer == b)
		soda_ticket_finish(c, c->receiving, c->receiving->copy, -ECANCELED);
	soda_wait_begin(&wait, "a get into a buffer that its producer ends");
	pthread_mutex_lock(&m->lock);
	out = take_out_locked(c, 0, b);
	/* one that is late ends when its get does: the copy that it fills keeps the buffer */
	while (c->at_work && c->at_work->buffer == b && !c->at_work->late) {
		give_up_locked(c, c->at_work, false);
		soda_wait_turn(&wait, &c->ended, &m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	soda_wait_end(&wait);
	free_all(m, out);
}

void soda_tickets_await(struct soda_move_client *c, uint32_t ms)
{
	struct soda_movement *m = c->movement;
	struct timespec until = in_ms(ms);

	pthread_mutex_lock(&m->lock);
	while (!c->notices_n && !soda_ring_untaken(&c->ring) && c->credits)
		if (pthread_cond_timedwait(&c->ended, &m->lock, &until))
			break;
	pthread_mutex_unlock(&m->lock);
}

size_t soda_tickets_tell(struct soda_move_client *c, uint8_t *out)
{
	unsigned n;

	pthread_mutex_lock(&c->movement->lock);
	n = c->notices_n;
	for (unsigned i = 0; i < n; i++)
		soda_wire_put_notice(out + i * SODA_WIRE_NOTICE_BYTES, &c->notices[i]);
	c->notices_n = 0;
	c->credits -= n;
	pthread_mutex_unlock(&c->movement->lock);
	return n * SODA_WIRE_NOTICE_BYTES;
}

/* A client that waits for its turn does no more. */
static void drop_turn_locked(struct soda_movement *m, struct soda_move_client *c)
{
	struct soda_move_client **at = &m->turn;

	if (!c->waits_turn)
		return;
	while (*at != c)
		at = &(*at)->next_turn;
	*at = c->next_turn;
	if (!*at)
		m->turn_end = at;
	c->waits_turn = false;
}

static void drop_attended_locked(struct soda_movement *m, struct soda_move_client *c)
{
	struct soda_move_client **at = &m->attended;

	if (!c->attended)
		return;
	while (*at != c)
		at = &(*at)->next_attended;
	*at = c->next_attended;
	c->attended = false;
}

/* A ticket without a step, of a client that is told nothing any more. */
static void drop(struct soda_movement *m, struct soda_ticket *t)
{
	if (!t)
		return;
	soda_buffer_abandon(&m->buffers, t->buffer, t->copy);
	soda_ticket_free(m, t);
}

void soda_tickets_gone(struct soda_move_client *c)
{
	struct soda_movement *m = c->movement;
	struct soda_ticket *queue, *begun = NULL;

	pthread_mutex_lock(&m->lock);
	c->gone = true;
	if (c->waits_turn || (c->at_work && c->at_work->parked)) { /* no getter has it */
		begun = c->at_work;
		c->at_work = NULL;
	}
	drop_turn_locked(m, c);
	drop_attended_locked(m, c);
	queue = c->queue;
	c->queue = NULL;
	c->end = &c->queue;
	pthread_mutex_unlock(&m->lock);
	free_all(m, queue);
	drop(m, begun);
	drop(m, c->receiving);
	c->receiving = NULL;
}

/* Start, end */

int soda_tickets_start(struct soda_movement *m)
{
	int ret;

	pthread_mutex_init(&m->lock, NULL);
	soda_cond_init(&m->work);
	soda_cond_init(&m->store);
	m->turn_end = &m->turn;
	m->stores_end = &m->stores;
	ret = soda_storer_start(m);
	if (ret == 0)
		ret = soda_getters_start(m);
	if (ret < 0)
		soda_tickets_stop(m);
	return ret;
}

bool soda_tickets_stop(struct soda_movement *m)
{
	bool all;

	pthread_mutex_lock(&m->lock);
	m->stop = true;
	pthread_cond_broadcast(&m->work);
	pthread_cond_broadcast(&m->store);
	pthread_mutex_unlock(&m->lock);
	all = soda_getters_stop(m);
	soda_storer_stop(m);
	if (!all)
		return false;
	pthread_cond_destroy(&m->store);
	pthread_cond_destroy(&m->work);
	pthread_mutex_destroy(&m->lock);
	return true;
}
