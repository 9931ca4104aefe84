/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread writes lists that were gathered for ranges of objects to the memory server. */
#include "dpu_agent/movement/tickets_impl.h"

#include <pthread.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/movement/memory.h"

void soda_storer_take_locked(struct soda_move_client *c, struct soda_ticket *t)
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

int soda_storer_start(struct soda_movement *m)
{
	int ret = pthread_create(&m->storer, NULL, storer_main, m);

	m->storer_runs = !ret;
	return -ret;
}

void soda_storer_stop(struct soda_movement *m)
{
	if (m->storer_runs)
		soda_wait_join(m->storer, "the storer to end");
}
