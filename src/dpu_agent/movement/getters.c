/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that fetch: each takes the turn of the client that has waited longest, and gets its
 * ticket, or a part of it.
 *
 * A get can take any time: the kernel waits in it where a page of the client's is served by a
 * userfaultfd whose owner stands still, and nothing but the client's or the agent's end by SIGKILL
 * ends that.  A getter is late where a part takes SODA_MOVE_LATE_MS.  Another one takes its place,
 * up to SODA_MOVE_GETTERS_MOST of both; when its get ends after all, the one that is too many ends.
 * A client has one get under way, so that it cannot hold two getters.
 */
#include "dpu_agent/movement/tickets_impl.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/api/spin.h"

enum {
	LOOK_NS = 100000, /* a getter without work looks at rings so long */
/* bytes between two looks: is a get wanted, does another client wait; in the simulation lists are
 * small */
#ifdef SODA_SIMULATION
	PART = 8 << 10,
#else
	PART = 4 << 20,
#endif
};

enum { GET_GOES_ON = 0, GET_PAUSES = 1 };

/*
 * Between two parts: GET_GOES_ON, with *most_p bytes; -ECANCELED, -EFAULT: the client has given up;
 * GET_PAUSES: others wait for a getter, and the get for its client's next turn, or it waits for the
 * client: from here on the ticket is not the caller's.
 */
static int look(struct soda_getter *g, struct soda_move_client *c, struct soda_ticket *t,
		bool may_pause, uint64_t *most_p)
{
	struct soda_movement *m = c->movement;
	uint64_t most = PART;
	int ret;

	pthread_mutex_lock(&m->lock);
	if (soda_lists_take_locked(m))
		soda_turn_rouse_locked(m);
	if (t->parts && t->received < t->copied && t->allowed - t->received < most)
		most = t->allowed - t->received;
	ret = soda_ticket_given_up_locked(c, t);
	if (ret == 0 && !most) {
		soda_ticket_park_locked(c, t, false);
		ret = GET_PAUSES;
	} else if (ret == 0 && may_pause && m->turn) {
		soda_turn_append_locked(m, c);
		ret = GET_PAUSES;
	}
	g->since_ns = soda_now_ns();
	pthread_mutex_unlock(&m->lock);
	*most_p = most;
	return ret;
}

/* A part of what the client said may be read was not there: it may say so again. As look(). */
static int ask_again(struct soda_move_client *c, struct soda_ticket *t)
{
	int ret;

	pthread_mutex_lock(&c->movement->lock);
	ret = soda_ticket_given_up_locked(c, t);
	if (ret == 0) {
		soda_ticket_park_locked(c, t, true);
		ret = GET_PAUSES;
	}
	pthread_mutex_unlock(&c->movement->lock);
	return ret;
}

/*
 * Fetch a ticket's pieces into its copy: all that are left, or a part, where others wait
 * (GET_PAUSES).
 */
static int get(struct soda_getter *g, struct soda_move_client *c, struct soda_ticket *t)
{
	bool shared = t->shared == t->copied, last;
	int ret = shared ? 0 : soda_source_begin(&c->source);
	struct soda_source_got got = { 0 };
	uint64_t most;

	if (ret == 0 && !t->begun)
		soda_ticket_begin(t);
	while (ret == 0 && t->received < t->copied) {
		struct soda_piece_walk before = t->walk;

		ret = look(g, c, t, got.bytes > 0, &most); /* a part for each turn */
		if (ret)
			return ret;
		last = t->copied - t->received <= most;
		ret = soda_source_read(&c->source, &t->walk, soda_ticket_destination(t), most, last,
				       &got);
		if (ret == 0) {
			assert(got.bytes);
			t->received += got.bytes;
			soda_ticket_count(&c->movement->read_bytes, got.bytes - got.shared);
			soda_ticket_count(&c->movement->shared_bytes, got.shared);
		} else if (ret == -EFAULT && t->parts) {
			t->walk = before;
			return ask_again(c, t);
		}
	}
	while (ret == 0 && t->buffer->stage && t->placed < t->copied) {
		ret = look(g, c, t, got.bytes > 0, &most);
		if (ret)
			return ret;
		got.bytes = soda_ticket_place(t, most);
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
static void serve(struct soda_getter *g, struct soda_move_client *c, struct soda_ticket *t, int err)
{
	if (err == 0)
		err = get(g, c, t);
	if (err != GET_PAUSES)
		soda_ticket_finish(c, t, t->copy, err);
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
		soda_lists_take_of_locked(c); /* attends to it again, behind the list's beginning */
		if (c->attended && at == &m->attended)
			at = &c->next_attended;
	}
}

static bool look_once(void *arg)
{
	struct soda_movement *m = arg;
	bool found;

	pthread_mutex_lock(&m->lock);
	soda_lists_take_locked(m);
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

/* The getter's get is over. False: another one has its place, and it ends. */
static bool come_back_locked(struct soda_getter *g)
{
	struct soda_movement *m = g->movement;

	g->client = NULL;
	if (g->state == SODA_GETTER_READY)
		return true;
	m->getters_late--;
	if (m->getters_ready < SODA_MOVE_GETTERS) {
		m->getters_ready++;
		g->state = SODA_GETTER_READY;
		return true;
	}
	g->state = SODA_GETTER_OVER;
	return false;
}

/* One turn of the first client that waits for it. False: the getter ends. */
static bool take_turn_unlock(struct soda_getter *g, struct soda_ring_place *place)
{
	struct soda_movement *m = g->movement;
	struct soda_move_client *c;
	struct soda_ticket *t;
	bool goes_on, left;
	int err;

	t = take_locked(m, &c, &err);
	if (m->turn)
		soda_turn_rouse_locked(m);
	if (t) {
		g->client = c;
		g->since_ns = soda_now_ns();
	}
	pthread_mutex_unlock(&m->lock);
	if (!t)
		return true;
	soda_ring_give_way(&c->ring, place);
	serve(g, c, t, err);
	pthread_mutex_lock(&m->lock);
	goes_on = come_back_locked(g);
	left = m->left;
	/* the first of these turns is this thread's: nobody is roused for it */
	soda_lists_take_locked(m);
	soda_turn_queue_locked(m, c);
	if (!goes_on && m->turn)
		soda_turn_rouse_locked(m);
	pthread_mutex_unlock(&m->lock);
	if (left) /* what sessions are kept in may have ended before */
		return false;
	soda_session_put(c->session); /* perhaps the last reference: without the lock */
	return goes_on;
}

static void *getter_main(void *arg)
{
	struct soda_getter *g = arg;
	struct soda_movement *m = g->movement;
	struct soda_ring_place place = { 0 };
	struct soda_spin spin;
	bool had, goes_on = true;
	int err = soda_source_renounce(&had);

	pthread_setname_np(pthread_self(), "soda-getter");
	if (err < 0) /* no client has the way READS then: its first read was refused likewise */
		soda_log_error("movement: cannot give CAP_SYS_PTRACE up: %s", soda_strerror(err));
	soda_spin_init(&spin, NULL);
	while (goes_on) {
		pthread_mutex_lock(&m->lock);
		await_turn_locked(m, &spin);
		goes_on = m->turn;
		if (goes_on)
			goes_on = take_turn_unlock(g, &place);
		else
			pthread_mutex_unlock(&m->lock);
	}
	pthread_mutex_lock(&m->lock);
	if (m->stop)
		pthread_cond_broadcast(&m->work); /* for soda_getters_stop() */
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* Late getters */

/* The next that has become late. */
static struct soda_getter *find_late_locked(struct soda_movement *m)
{
	uint64_t now = soda_now_ns();

	for (unsigned i = 0; i < SODA_MOVE_GETTERS_MOST; i++) {
		struct soda_getter *g = &m->getters[i];

		if (g->state == SODA_GETTER_READY && g->client &&
		    now - g->since_ns > SODA_MOVE_LATE_MS * 1000000ull)
			return g;
	}
	return NULL;
}

/* Others do not wait for it any more, nor does its client's connection. */
static void give_up_locked(struct soda_getter *g)
{
	g->state = SODA_GETTER_LATE;
	if (g->client->at_work)
		g->client->at_work->late = true;
	g->movement->getters_ready--;
	g->movement->getters_late++;
	pthread_cond_broadcast(&g->client->ended);
}

/* A place for another getter, if one is wanted; NULL: none, or there is none. */
static struct soda_getter *take_place_locked(struct soda_movement *m, bool *joins_p)
{
	for (unsigned i = 0; m->getters_ready < SODA_MOVE_GETTERS && i < SODA_MOVE_GETTERS_MOST;
	     i++) {
		struct soda_getter *g = &m->getters[i];

		if (g->state != SODA_GETTER_NONE && g->state != SODA_GETTER_OVER)
			continue;
		*joins_p = g->state == SODA_GETTER_OVER;
		g->state = SODA_GETTER_READY;
		m->getters_ready++;
		return g;
	}
	return NULL;
}

static int start(struct soda_movement *m, struct soda_getter *g)
{
	int ret;

	g->movement = m;
	ret = pthread_create(&g->thread, NULL, getter_main, g);
	if (!ret)
		return 0;
	pthread_mutex_lock(&m->lock);
	g->state = SODA_GETTER_NONE;
	m->getters_ready--;
	pthread_mutex_unlock(&m->lock);
	return -ret;
}

void soda_getters_tick(struct soda_movement *m)
{
	char who[sizeof(((struct soda_session *)0)->info.address)] = "";
	struct soda_getter *late, *place;
	bool joins = false;

	pthread_mutex_lock(&m->lock);
	late = m->stop ? NULL : find_late_locked(m);
	if (late) {
		give_up_locked(late);
		memcpy(who, late->client->session->info.address, sizeof(who));
	}
	place = m->stop ? NULL : take_place_locked(m, &joins);
	pthread_mutex_unlock(&m->lock);
	if (late)
		soda_log_warning("%s: movement: reading this program's memory has taken over %d ms "
				 "so far: a page is served by a userfaultfd whose owner stands "
				 "still, perhaps; other programs' data do not wait for it",
				 who, SODA_MOVE_LATE_MS);
	if (joins)
		soda_wait_join(place->thread, "a getter to end");
	if (place)
		start(m, place); /* else the next tick tries again */
}

int soda_getters_start(struct soda_movement *m)
{
	struct soda_getter *place;
	bool joins;
	int ret = 0;

	do {
		pthread_mutex_lock(&m->lock);
		place = ret ? NULL : take_place_locked(m, &joins);
		pthread_mutex_unlock(&m->lock);
		if (place)
			ret = start(m, place);
	} while (place && ret == 0);
	return ret;
}

/* How many have a get under way. */
static unsigned at_work_locked(const struct soda_movement *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SODA_MOVE_GETTERS_MOST; i++)
		n += m->getters[i].client != NULL;
	return n;
}

bool soda_getters_stop(struct soda_movement *m)
{
	struct timespec until = soda_wait_until(SODA_MOVE_LEAVE_MS);
	unsigned left;
	int over = 0;

	pthread_mutex_lock(&m->lock);
	while ((left = at_work_locked(m)) && !over)
		over = pthread_cond_timedwait(&m->work, &m->lock, &until);
	m->left = left;
	for (unsigned i = 0; i < SODA_MOVE_GETTERS_MOST; i++) {
		struct soda_getter *g = &m->getters[i];

		if (g->state == SODA_GETTER_NONE)
			continue;
		if (g->client) {
			pthread_detach(g->thread);
			continue;
		}
		pthread_mutex_unlock(&m->lock);
		soda_wait_join(g->thread, "a getter to end");
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	if (left)
		soda_log_warning("movement: %u getters still read programs' memory: they are left "
				 "behind, and end with this process",
				 left);
	return !left;
}
