/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/tickets.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/movement/memory.h"
#include "transport/api/spin.h"

enum {
	LOOK_NS = 100000, /* a getter without work looks at rings so long */
	PART = 4 << 20,	  /* bytes between two looks: is a get wanted, does another client wait */
	SPANS = 256,	  /* of a copy, received at a time */
	STORED_MS = 50,	  /* a look whether a session is up, while a copy is awaited */
};

static size_t ticket_bytes(uint32_t pieces_n)
{
	return sizeof(struct soda_ticket) + pieces_n * sizeof(struct soda_wire_piece);
}

static void free_ticket(struct soda_movement *m, struct soda_ticket *t)
{
	atomic_fetch_sub_explicit(&m->list_bytes, ticket_bytes(t->pieces_n), memory_order_relaxed);
	free(t);
}

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* The end of a ticket */

/* There is room: each ticket has a credit, and there are as many notices as credits. */
static void notify_locked(struct soda_move_client *c, uint64_t number, int err, uint64_t step)
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

/* All of a range's list has come, and stands: it is the storer's. */
static void store_locked(struct soda_move_client *c, struct soda_ticket *t)
{
	struct soda_movement *m = c->movement;

	soda_session_ref(c->session);
	c->storing++;
	t->client = c;
	t->next = NULL;
	*m->stores_end = t;
	m->stores_end = &t->next;
	pthread_cond_signal(&m->store);
}

/*
 * The client's ticket at work ends: without a copy, or with one that is published here and nowhere
 * else, in one step with the look whether it was cancelled or the client has gone.  A copy is given
 * back before the client is told, so that the next ticket finds it; without the lock, because it
 * may be the last use of a large buffer, whose memory goes then.
 */
static void finish(struct soda_move_client *c, struct soda_ticket *t, struct soda_copy *copy,
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
		store_locked(c, t);
		pthread_mutex_unlock(&m->lock);
		return;
	}
	count(err ? &m->failed : &m->published, 1);
	free_ticket(m, t);
	notify_locked(c, number, err, step); /* by a ring its program knows at once */
	pthread_mutex_unlock(&m->lock);
}

/* A ticket that was queued ends. */
static void end_queued_locked(struct soda_move_client *c, struct soda_ticket *t, int err)
{
	count(&c->movement->failed, 1);
	notify_locked(c, t->number, err, 0);
}

/* Gets */

/* There is a turn, for a getter that sleeps if none looks for it. */
static void rouse_locked(struct soda_movement *m)
{
	if (!m->looking)
		pthread_cond_signal(&m->work);
}

static void append_turn_locked(struct soda_movement *m, struct soda_move_client *c)
{
	c->waits_turn = true;
	c->next_turn = NULL;
	*m->turn_end = c;
	m->turn_end = &c->next_turn;
}

static void queue_turn_locked(struct soda_movement *m, struct soda_move_client *c)
{
	if (!c->waits_turn && !c->at_work && c->queue && !c->blocked)
		append_turn_locked(m, c);
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
	t = atomic_fetch_add_explicit(&m->list_bytes, ticket_bytes(n), memory_order_relaxed) >
			    SODA_MOVE_LISTS_BYTES
		    ? NULL
		    : malloc(ticket_bytes(n));
	if (!t) {
		atomic_fetch_sub_explicit(&m->list_bytes, ticket_bytes(n), memory_order_relaxed);
		*err_p = refuse(why, -ENOMEM, "the agent has no memory for more lists of pieces");
		return NULL;
	}
	*t = (struct soda_ticket){ .number = number, .buffer = b, .pieces_n = n, .parts = parts };
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
	free_ticket(m, t);
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
	queue_turn_locked(m, c);
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
		free_ticket(c->movement, t);
	count(&c->movement->failed, 1);
	c->credits++; /* which the notice gives back */
	notify_locked(c, p->ticket, ret, 0);
}

static void take_client_lists_locked(struct soda_move_client *c)
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

/* Of all clients that are attended to. Whether somebody's turn has come who had none. */
static bool take_lists_locked(struct soda_movement *m)
{
	bool had = m->turn;

	for (struct soda_move_client *c = m->attended; c; c = c->next_attended)
		take_client_lists_locked(c);
	return !had && m->turn;
}

enum { GET_GOES_ON = 0, GET_PAUSES = 1 };

/* No getter has the ticket until its client says that more may be read, or that no more is to be.
 */
static void park_locked(struct soda_move_client *c, struct soda_ticket *t, bool faulted)
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
	append_turn_locked(c->movement, c);
	rouse_locked(c->movement);
}

static int given_up_locked(const struct soda_move_client *c, const struct soda_ticket *t)
{
	if (!t->cancelled && !c->gone)
		return 0;
	return t->unreadable ? -EFAULT : -ECANCELED;
}

/*
 * Between two parts: GET_GOES_ON, with *most_p bytes; -ECANCELED, -EFAULT: the client has given up;
 * GET_PAUSES: others wait for a getter, and the get for its client's next turn, or it waits for the
 * client: from here on the ticket is not the caller's.
 */
static int look(struct soda_move_client *c, struct soda_ticket *t, bool may_pause, uint64_t *most_p)
{
	struct soda_movement *m = c->movement;
	uint64_t most = PART;
	int ret;

	pthread_mutex_lock(&m->lock);
	if (take_lists_locked(m))
		rouse_locked(m);
	if (t->parts && t->received < t->copied && t->allowed - t->received < most)
		most = t->allowed - t->received;
	ret = given_up_locked(c, t);
	if (ret == 0 && !most) {
		park_locked(c, t, false);
		ret = GET_PAUSES;
	} else if (ret == 0 && may_pause && m->turn) {
		append_turn_locked(m, c);
		ret = GET_PAUSES;
	}
	pthread_mutex_unlock(&m->lock);
	*most_p = most;
	return ret;
}

/* A part of what the client said may be read was not there: it may say so again. As look(). */
static int ask_again(struct soda_move_client *c, struct soda_ticket *t)
{
	int ret;

	pthread_mutex_lock(&c->movement->lock);
	ret = given_up_locked(c, t);
	if (ret == 0) {
		park_locked(c, t, true);
		ret = GET_PAUSES;
	}
	pthread_mutex_unlock(&c->movement->lock);
	return ret;
}

/* Before the first part of a ticket. */
static void begin(struct soda_ticket *t)
{
	t->begun = true;
	t->walk = (struct soda_piece_walk){ .pieces = t->pieces, .n = t->pieces_n };
	t->placing = t->walk;
	soda_wire_pieces_set(t->pieces, t->pieces_n, t->copy->memory, t->buffer->bytes);
}

/* What is fetched lies there as it is to lie in the copy, which mostly is that. */
static uint8_t *destination(const struct soda_ticket *t)
{
	return t->buffer->stage ? t->buffer->stage : t->copy->memory;
}

/* STAGE, when all has come: put so many bytes more to their place. How many. */
static uint64_t place(struct soda_ticket *t, uint64_t max)
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

/*
 * Fetch a ticket's pieces into its copy: all that are left, or a part, where others wait
 * (GET_PAUSES).
 */
static int get(struct soda_move_client *c, struct soda_ticket *t)
{
	bool shared = t->shared == t->copied, last;
	int ret = shared ? 0 : soda_source_alive(&c->source);
	struct soda_source_got got = { 0 };
	uint64_t most;

	if (ret == 0 && !t->begun)
		begin(t);
	while (ret == 0 && t->received < t->copied) {
		struct soda_piece_walk before = t->walk;

		ret = look(c, t, got.bytes > 0, &most); /* a part for each turn */
		if (ret)
			return ret;
		last = t->copied - t->received <= most;
		ret = soda_source_read(&c->source, &t->walk, destination(t), most, last, &got);
		if (ret == 0) {
			assert(got.bytes);
			t->received += got.bytes;
			count(&c->movement->read_bytes, got.bytes - got.shared);
			count(&c->movement->shared_bytes, got.shared);
		} else if (ret == -EFAULT && t->parts) {
			t->walk = before;
			return ask_again(c, t);
		}
	}
	while (ret == 0 && t->buffer->stage && t->placed < t->copied) {
		ret = look(c, t, got.bytes > 0, &most);
		if (ret)
			return ret;
		got.bytes = place(t, most);
	}
	if (ret == 0 && shared)
		return soda_areas_stand(&c->areas, t->areas) ? 0 : -ESRCH;
	return ret ? ret : soda_source_check(&c->source, got.proof);
}

/*
 * What the next client's turn is for becomes the caller's: its ticket that was begun, or its first
 * one, with a copy of its buffer to fill (or the reason why not, in *err_p): the buffer stays for
 * the copy's sake, also if its producer goes now.  NULL: the client has no ticket any more.
 */
static struct soda_ticket *take_locked(struct soda_movement *m, struct soda_move_client **c_p,
				       int *err_p)
{
	struct soda_move_client *c = m->turn;
	struct soda_ticket *t = c->at_work;

	m->turn = c->next_turn;
	if (!m->turn)
		m->turn_end = &m->turn;
	c->waits_turn = false;
	*c_p = c;
	*err_p = 0;
	if (!t && c->queue) {
		t = c->queue;
		*err_p = soda_buffer_fill(&m->buffers, t->buffer, &t->copy);
		if (*err_p == -ENOSPC && t->buffer->range) {
			c->blocked = true; /* the storer has them all: this client's go on then */
			return NULL;
		}
		c->queue = t->next;
		if (!c->queue)
			c->end = &c->queue;
		c->at_work = t;
	}
	if (t)
		soda_session_ref(c->session);
	return t;
}

/* A getter has the ticket alone, until it ends or pauses. */
static void serve(struct soda_move_client *c, struct soda_ticket *t, int err)
{
	if (err == 0)
		err = get(c, t);
	if (err != GET_PAUSES)
		finish(c, t, t->copy, err);
}

/* Nobody looks at a ring any more that is empty, and whose client has no ticket under way. */
static void disregard_locked(struct soda_movement *m)
{
	struct soda_move_client **at = &m->attended, *c;

	while ((c = *at)) {
		if (c->at_work || c->queue) {
			at = &c->next_attended;
			continue;
		}
		*at = c->next_attended;
		c->attended = false;
		soda_ring_attend(&c->ring, false);
		take_client_lists_locked(c); /* attends to it again, behind the list's beginning */
		if (c->attended && at == &m->attended)
			at = &c->next_attended;
	}
}

static bool look_once(void *arg)
{
	struct soda_movement *m = arg;
	bool found;

	pthread_mutex_lock(&m->lock);
	take_lists_locked(m);
	found = m->turn || m->stop;
	pthread_mutex_unlock(&m->lock);
	return found;
}

/* Wait for a turn, or the end. */
static void await_turn_locked(struct soda_movement *m, struct soda_spin *spin)
{
	while (!m->turn && !m->stop) {
		if (m->attended && !m->looking) {
			m->looking = true;
			pthread_mutex_unlock(&m->lock);
			soda_spin_until(spin, LOOK_NS, look_once, m);
			pthread_mutex_lock(&m->lock);
			m->looking = false;
			if (!m->turn)
				disregard_locked(m);
		}
		if (!m->turn && !m->stop)
			pthread_cond_wait(&m->work, &m->lock);
	}
}

static void *getter_main(void *arg)
{
	struct soda_movement *m = arg;
	struct soda_move_client *c;
	struct soda_ring_place place = { 0 };
	struct soda_spin spin;
	struct soda_ticket *t;
	bool had;
	int err = soda_source_renounce(&had);

	pthread_setname_np(pthread_self(), "soda-getter");
	if (err < 0) /* no client has the way READS then: its first read was refused likewise */
		soda_log_error("movement: cannot give CAP_SYS_PTRACE up: %s", soda_strerror(err));
	soda_spin_init(&spin, NULL);
	pthread_mutex_lock(&m->lock);
	for (;;) {
		await_turn_locked(m, &spin);
		if (!m->turn)
			break;
		t = take_locked(m, &c, &err);
		if (m->turn)
			rouse_locked(m);
		if (!t)
			continue;
		pthread_mutex_unlock(&m->lock);
		soda_ring_give_way(&c->ring, &place);
		serve(c, t, err);
		pthread_mutex_lock(&m->lock);
		/* the first of these turns is this thread's: nobody is roused for it */
		take_lists_locked(m);
		queue_turn_locked(m, c);
		pthread_mutex_unlock(&m->lock);
		soda_session_put(c->session); /* perhaps the last reference: without the lock */
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* Storing */

static int write_copy(struct soda_move_client *c, const struct soda_ticket *t)
{
	const struct soda_buffer *b = t->buffer;
	uint64_t bytes = soda_memory_pages(b->bytes);
	int ret = c->session->all->regions->write(c->session, b->region, b->at, t->copy->memory,
						  bytes);

	if (ret == 0)
		count(&c->movement->stored_bytes, bytes);
	else if (!soda_call_lost(ret)) /* else paging says what has happened */
		soda_log_warning("%s: movement: %llu bytes for region %u could not be written to"
				 " the memory server: %s; the program is told, and its object is"
				 " not published",
				 c->session->info.address, (unsigned long long)bytes, b->region,
				 soda_strerror(ret));
	return ret;
}

/* The copy is free before the client is told, and before those go on that wait for it. */
static void end_store(struct soda_ticket *t, int err)
{
	struct soda_move_client *c = t->client;
	struct soda_movement *m = c->movement;
	uint64_t step = 0;

	if (err == 0)
		step = soda_buffer_stored(&m->buffers, t->buffer, t->copy);
	else
		soda_buffer_abandon(&m->buffers, t->buffer, t->copy);
	count(err ? &m->failed : &m->published, 1);
	pthread_mutex_lock(&m->lock);
	c->storing--;
	notify_locked(c, t->number, err ? -EIO : 0, step);
	free_ticket(m, t);
	if (c->blocked) {
		c->blocked = false;
		queue_turn_locked(m, c);
		rouse_locked(m);
	}
	pthread_mutex_unlock(&m->lock);
	soda_session_put(c->session); /* perhaps the last reference */
}

static void *storer_main(void *arg)
{
	struct soda_movement *m = arg;
	struct soda_ticket *t;

	pthread_setname_np(pthread_self(), "soda-storer");
	pthread_mutex_lock(&m->lock);
	for (;;) {
		while (!m->stores && !m->stop)
			pthread_cond_wait(&m->store, &m->lock);
		t = m->stores;
		if (!t)
			break;
		m->stores = t->next;
		if (!m->stores)
			m->stores_end = &m->stores;
		pthread_mutex_unlock(&m->lock);
		end_store(t, write_copy(t->client, t));
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

int soda_tickets_start(struct soda_movement *m)
{
	int ret;

	pthread_mutex_init(&m->lock, NULL);
	soda_cond_init(&m->work);
	soda_cond_init(&m->store);
	m->turn_end = &m->turn;
	m->stores_end = &m->stores;
	ret = pthread_create(&m->storer, NULL, storer_main, m);
	m->storer_runs = !ret;
	while (!ret && m->getters_n < SODA_MOVE_GETTERS) {
		ret = pthread_create(&m->getters[m->getters_n], NULL, getter_main, m);
		m->getters_n += !ret;
	}
	if (ret)
		soda_tickets_stop(m);
	return -ret;
}

void soda_tickets_stop(struct soda_movement *m)
{
	pthread_mutex_lock(&m->lock);
	m->stop = true;
	pthread_cond_broadcast(&m->work);
	pthread_cond_broadcast(&m->store);
	pthread_mutex_unlock(&m->lock);
	while (m->getters_n)
		soda_wait_join(m->getters[--m->getters_n], "a getter to end");
	if (m->storer_runs)
		soda_wait_join(m->storer, "the storer to end");
	pthread_cond_destroy(&m->store);
	pthread_cond_destroy(&m->work);
	pthread_mutex_destroy(&m->lock);
}

/* Calls */

static struct timespec in_ms(uint32_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(ms < SODA_MOVE_AWAIT_MS ? ms : SODA_MOVE_AWAIT_MS) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	return until;
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
		finish(c, t, NULL, ret);
		return;
	}
	begin(t);
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
		rouse_locked(m);
	}
	pthread_mutex_unlock(&m->lock);
	if (ret < 0)
		free_ticket(m, t);
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
		memcpy(destination(t) + span.offset, data, span.bytes);
		data += span.bytes;
	}
	t->received += bytes;
	count(&c->movement->streamed_bytes, bytes);
	if (t->received == t->copied) {
		if (t->buffer->stage)
			place(t, t->copied);
		finish(c, t, t->copy, 0);
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
		count(&c->movement->streamed_bytes, bytes);
	}
	if (ret == 0)
		ret = soda_inflow_end(in);
	if (ret == -EFAULT)
		finish(c, t, t->copy, -EFAULT);
	else if (ret == 0 && t->received == t->copied)
		finish(c, t, t->copy, 0);
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
		finish(c, t, t->copy, -EFAULT);
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
	if (t && (to < t->allowed || to > t->copied))
		ret = -EINVAL;
	else if (t) {
		t->allowed = to;
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

		free_ticket(m, list);
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
	take_client_lists_locked(c);
	if (m->turn)
		rouse_locked(m);
	broken = c->ring.broken;
	pthread_mutex_unlock(&m->lock);
	return broken ? -EPROTO : 0;
}

void soda_tickets_cancel(struct soda_move_client *c, uint64_t number)
{
	struct soda_ticket *out, *t = receiving(c, number);
	struct soda_movement *m = c->movement;

	if (t) {
		finish(c, t, t->copy, -ECANCELED);
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
		finish(c, c->receiving, c->receiving->copy, -ECANCELED);
	soda_wait_begin(&wait, "a get into a buffer that its producer ends");
	pthread_mutex_lock(&m->lock);
	out = take_out_locked(c, 0, b);
	while (c->at_work && c->at_work->buffer == b) {
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
	free_ticket(m, t);
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
