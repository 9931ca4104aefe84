/* SPDX-License-Identifier: BSD-3-Clause */
/* A chunk of the store: its word that processes see, its place in accounts and lists. */
#include "dpu_agent/store/node_store_impl.h"

void soda_node_publish(struct soda_node_chunk *c, enum soda_store_state state)
{
	uint32_t word = c->generation * SODA_STORE_GENERATION | state;

	atomic_store(&soda_store_words(c->object->map)[soda_node_index(c)], word);
}

bool soda_node_is_touched(const struct soda_node_chunk *c)
{
	const struct soda_node_object *o = c->object;

	return atomic_load_explicit(&soda_store_touched(o->map, o->chunks_n)[soda_node_index(c)],
				    memory_order_relaxed);
}

/* A look first, because most have not been, and the line is shared. */
enum soda_store_touch soda_node_take_touch(const struct soda_node_chunk *c)
{
	const struct soda_node_object *o = c->object;
	_Atomic uint8_t *touched = &soda_store_touched(o->map, o->chunks_n)[soda_node_index(c)];
	uint8_t how = SODA_STORE_UNTOUCHED;

	if (soda_node_is_touched(c))
		how = atomic_exchange_explicit(touched, 0, memory_order_relaxed);
	return how == SODA_STORE_UNTOUCHED || how == SODA_STORE_PASSED ? how : SODA_STORE_TOUCHED;
}

bool soda_node_cut(const struct soda_node_object *o, uint64_t offset, uint64_t bytes,
		   uint32_t *first_p, uint32_t *n_p)
{
	uint32_t chunk = o->name.chunk_bytes;

	if (!bytes || offset >= o->name.bytes || bytes > o->name.bytes - offset)
		return false;
	*first_p = (uint32_t)(offset / chunk);
	*n_p = (uint32_t)((offset + bytes - 1) / chunk) - *first_p + 1;
	return true;
}

static void take_locked(struct soda_node_chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = soda_node_bytes(o, soda_node_index(c));

	o->taken++;
	o->user->used += bytes;
	o->store->stats.used += bytes;
}

void soda_node_begin_locked(struct soda_node_object *o, struct soda_node_chunk *c)
{
	c->object = o;
	c->state = SODA_NODE_CHUNK_FILLING;
	take_locked(c);
	soda_node_publish(c, SODA_STORE_FILLING);
}

void soda_node_give_locked(struct soda_node_chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = soda_node_bytes(o, soda_node_index(c));

	o->taken--;
	o->user->used -= bytes;
	o->store->stats.used -= bytes;
}

struct soda_node_list *soda_node_list(const struct soda_node_chunk *c)
{
	struct soda_node_user *u = c->object->user;

	return c->settled ? &u->settled : &u->trial;
}

void soda_node_link_newest_locked(struct soda_node_chunk *c)
{
	struct soda_node_list *l = soda_node_list(c);

	c->next = NULL;
	c->prev = l->newest;
	*(l->newest ? &l->newest->next : &l->oldest) = c;
	l->newest = c;
	l->n++;
}

void soda_node_unlink_locked(struct soda_node_chunk *c)
{
	struct soda_node_list *l = soda_node_list(c);

	*(c->prev ? &c->prev->next : &l->oldest) = c->next;
	*(c->next ? &c->next->prev : &l->newest) = c->prev;
	l->n--;
}

void soda_node_send_back_locked(struct soda_node_store *store, struct soda_node_waiter *waiters)
{
	struct soda_node_waiter **end = &store->again;

	if (!waiters)
		return;
	while (*end)
		end = &(*end)->next;
	*end = waiters;
	pthread_cond_signal(&store->work);
}

void soda_node_count_used_locked(struct soda_node_chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = soda_node_bytes(o, soda_node_index(c));

	c->ahead = false;
	o->news.asked += bytes;
	o->news.used += bytes;
	o->store->stats.bytes_used += bytes;
}

bool soda_node_end_ahead_locked(struct soda_node_chunk *c)
{
	struct soda_node_object *o = c->object;
	uint32_t bytes = soda_node_bytes(o, soda_node_index(c));

	if (!c->ahead)
		return false;
	if (soda_node_take_touch(c)) {
		soda_node_count_used_locked(c);
		return false;
	}
	c->ahead = false;
	o->news.unused += bytes;
	o->store->stats.useless++;
	o->store->stats.bytes_useless += bytes;
	return true;
}

void soda_node_empty_locked(struct soda_node_chunk *c)
{
	struct soda_node_waiter *waiters = c->waiters;

	soda_node_give_locked(c);
	c->state = SODA_NODE_CHUNK_EMPTY;
	c->ahead = false;
	c->waiters = NULL;
	soda_node_publish(c, SODA_STORE_EMPTY);
	soda_node_send_back_locked(c->object->store, waiters);
}
