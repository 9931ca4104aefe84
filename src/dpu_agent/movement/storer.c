/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that write lists that were gathered for ranges of objects to the memory server.  Each
 * server has one at most, so that its lists are written in their order, and one that is silent
 * holds up those for no other.  There is one thread, and more once servers hold up those.
 */
#include "dpu_agent/movement/tickets_impl.h"

#include <pthread.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/movement/memory.h"

/* Whether the ticket's server has a storer at work. */
static bool is_storing_locked(const struct soda_movement *m, const struct soda_ticket *t)
{
	for (unsigned i = 0; i < SODA_MOVE_STORERS; i++)
		if (m->storing[i] && soda_session_same_server(m->storing[i], t->client->session))
			return true;
	return false;
}

/* The first whose server has no storer, which stays where it is; NULL: there is none. */
static struct soda_ticket **next_locked(struct soda_movement *m)
{
	struct soda_ticket **at = &m->stores;

	while (*at && is_storing_locked(m, *at))
		at = &(*at)->next;
	return *at ? at : NULL;
}

static int write_copy(struct soda_move_client *c, const struct soda_ticket *t)
{
	const struct soda_buffer *b = t->buffer;
	uint64_t bytes = soda_memory_pages(b->bytes);
	int ret = c->session->all->regions->write(c->session, b->region, b->at, t->copy->memory,
						  bytes);

	if (ret == 0)
		soda_ticket_count(&c->movement->stored_bytes, bytes);
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
	soda_ticket_count(err ? &m->failed : &m->published, 1);
	pthread_mutex_lock(&m->lock);
	c->storing--;
	soda_ticket_notify_locked(c, t->number, err ? -EIO : 0, step);
	soda_ticket_free(m, t);
	if (c->blocked) {
		c->blocked = false;
		soda_turn_queue_locked(m, c);
		soda_turn_rouse_locked(m);
	}
	pthread_mutex_unlock(&m->lock);
	soda_session_put(c->session); /* perhaps the last reference */
}

static struct soda_ticket *await_locked(struct soda_movement *m)
{
	struct soda_ticket **at, *t;

	while (!(at = next_locked(m)) && !m->stop) {
		m->storers_idle++;
		pthread_cond_wait(&m->store, &m->lock);
		m->storers_idle--;
	}
	if (!at)
		return NULL; /* who is at work takes what is left for that server */
	t = *at;
	*at = t->next;
	if (!*at)
		m->stores_end = at;
	return t;
}

static struct soda_session **place_locked(struct soda_movement *m)
{
	struct soda_session **at = m->storing;

	while (*at)
		at++;
	return at;
}

static void *storer_main(void *arg);

static int add_storer_locked(struct soda_movement *m)
{
	int ret = pthread_create(&m->storers[m->storers_n], NULL, storer_main, m);

	m->storers_n += !ret;
	m->storers_idle += !ret; /* it has a look as soon as it runs */
	return -ret;
}

/*
 * There is something to be written, for one that sleeps or one more.  One that sleeps may have been
 * told of another ticket already: it calls this again when it has taken that.
 */
static void rouse_locked(struct soda_movement *m)
{
	if (!next_locked(m))
		return;
	if (m->storers_idle)
		pthread_cond_signal(&m->store);
	else if (!m->stop && m->storers_n < SODA_MOVE_STORERS)
		add_storer_locked(m); /* without it one of those that there are comes to it */
}

static void *storer_main(void *arg)
{
	struct soda_movement *m = arg;
	struct soda_ticket *t;

	pthread_setname_np(pthread_self(), "soda-storer");
	pthread_mutex_lock(&m->lock);
	m->storers_idle--;
	while ((t = await_locked(m))) {
		struct soda_session **own = place_locked(m), *s = t->client->session;
		int ret;

		*own = s;
		soda_session_ref(s);
		rouse_locked(m);
		pthread_mutex_unlock(&m->lock);
		ret = write_copy(t->client, t);
		end_store(t, ret);
		pthread_mutex_lock(&m->lock);
		*own = NULL;
		pthread_mutex_unlock(&m->lock);
		soda_session_put(s); /* perhaps the last reference */
		pthread_mutex_lock(&m->lock);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

void soda_storer_take_locked(struct soda_move_client *c, struct soda_ticket *t)
{
	struct soda_movement *m = c->movement;

	soda_session_ref(c->session);
	c->storing++;
	t->client = c;
	t->next = NULL;
	*m->stores_end = t;
	m->stores_end = &t->next;
	rouse_locked(m);
}

int soda_storer_start(struct soda_movement *m)
{
	int ret;

	pthread_mutex_lock(&m->lock);
	ret = add_storer_locked(m);
	pthread_mutex_unlock(&m->lock);
	return ret;
}

void soda_storer_stop(struct soda_movement *m)
{
	while (m->storers_n) /* none is added any more */
		soda_wait_join(m->storers[--m->storers_n], "a storer to end");
}
