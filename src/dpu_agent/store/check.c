/* SPDX-License-Identifier: BSD-3-Clause */
/* Accounts: what must hold of all states, lists and sums while nobody has the lock. */
#include "dpu_agent/store/node_store_impl.h"

#include <errno.h>
#include <stdio.h>

struct sums {
	uint64_t used, ready, pinned; /* bytes; chunks that belong into lists; bytes */
	uint64_t pins, pins_of_chunks;
	uint32_t taken, ringed; /* of one object */
};

/* What holds of a chunk alone, while nobody has the lock. */
static const char *wrong_of_chunk(const struct soda_node_object *o, const struct soda_node_chunk *c)
{
	if (c->state == SODA_NODE_CHUNK_CHOSEN)
		return "a chunk is chosen, and no eviction is under way";
	if (c->waiters && c->state != SODA_NODE_CHUNK_FILLING &&
	    c->state != SODA_NODE_CHUNK_EVICTING)
		return "a thread waits for a chunk that nobody fills or evicts";
	if (c->state != SODA_NODE_CHUNK_EMPTY && c->object != o)
		return "a chunk belongs to another object";
	if (c->ahead && !c->ringed)
		return "a chunk that was brought ahead is nowhere looked at";
	return NULL;
}

static const char *sum_object(const struct soda_node_object *o, struct sums *s)
{
	const char *wrong = NULL;

	s->taken = s->ringed = 0;
	for (uint32_t i = 0; i < o->chunks_n; i++) {
		const struct soda_node_chunk *c = &o->chunks[i];

		wrong = wrong ? wrong : wrong_of_chunk(o, c);
		s->taken += c->state != SODA_NODE_CHUNK_EMPTY;
		s->used += c->state != SODA_NODE_CHUNK_EMPTY ? soda_node_bytes(o, i) : 0;
		s->ready += c->state == SODA_NODE_CHUNK_READY && !c->pins;
		s->pinned += c->pins ? soda_node_bytes(o, i) : 0;
		s->pins_of_chunks += c->pins;
		s->ringed += c->ringed;
	}
	for (const struct soda_node_pin *p = o->pins; p; p = p->next)
		s->pins += p->n;
	return wrong;
}

/* How many chunks the list has; UINT64_MAX: one does not belong there. */
static uint64_t count_list(const struct soda_node_user *u, const struct soda_node_list *l)
{
	uint64_t n = 0;

	for (const struct soda_node_chunk *c = l->oldest; c; c = c->next) {
		if (c->state != SODA_NODE_CHUNK_READY || c->pins || c->object->user != u ||
		    soda_node_list(c) != l)
			return UINT64_MAX;
		n++;
	}
	return n == l->n ? n : UINT64_MAX;
}

static const char *check_user_locked(const struct soda_node_store *store,
				     const struct soda_node_user *u, struct sums *all)
{
	struct sums s = { .used = 0 };
	unsigned objects = 0;

	for (const struct soda_node_object *o = store->objects; o; o = o->next) {
		const char *wrong;

		if (o->user != u)
			continue;
		objects++;
		wrong = sum_object(o, &s);
		if (wrong)
			return wrong;
		if (s.taken != o->taken)
			return "an object counts other chunks than are taken";
		if (s.ringed != o->ahead_n)
			return "an object looks at other chunks than are in its ring, or at one "
			       "twice";
	}
	if (count_list(u, &u->trial) == UINT64_MAX || count_list(u, &u->settled) == UINT64_MAX)
		return "a list has a chunk that does not belong there, or counts wrong";
	all->used += s.used;
	all->pinned += s.pinned;
	return s.used != u->used	       ? "a user counts other bytes than its chunks have"
	       : s.ready != soda_node_ready(u) ? "READY chunks are not those of the list"
	       : objects != u->objects	       ? "a user counts other objects than there are"
	       : s.pinned != u->pinned	       ? "a user counts other bytes than are pinned"
	       : s.pins != s.pins_of_chunks    ? "chunks are pinned by other ranges than there are"
					       : NULL;
}

/* Objects, their members and descriptors. */
static const char *check_objects_locked(const struct soda_node_store *store)
{
	uint64_t objects = 0, members = 0;
	unsigned descriptors = 0;

	for (const struct soda_node_object *o = store->objects; o; o = o->next) {
		objects++;
		members += (unsigned)__builtin_popcountll(o->members);
		descriptors += soda_node_descriptors(o);
		if (!o->members && !o->taken)
			return "an object has neither members nor chunks, and was not freed";
	}
	return objects != store->stats.objects	 ? "the store counts other objects than there are"
	       : members != store->stats.members ? "the store counts other members than there are"
	       : descriptors > store->descriptors
		       ? "the store counts fewer descriptors than its objects have"
		       : NULL;
}

/* Also unlocks. */
static int check_locked(struct soda_node_store *store, struct soda_why *why)
{
	const char *wrong = check_objects_locked(store);
	struct sums all = { .used = 0 };

	for (const struct soda_node_user *u = store->users; u && !wrong; u = u->next)
		wrong = check_user_locked(store, u, &all);
	if (!wrong && (all.used != store->stats.used || all.pinned != store->stats.pinned))
		wrong = "the store counts other bytes than its users";
	pthread_mutex_unlock(&store->lock);
	if (wrong)
		snprintf(why->text, sizeof(why->text), "%s", wrong);
	return wrong ? -EUCLEAN : 0;
}

int soda_node_check(struct soda_node_store *store, struct soda_why *why)
{
	pthread_mutex_lock(&store->lock);
	return check_locked(store, why);
}

int soda_node_check_now(struct soda_node_store *store, struct soda_why *why)
{
	return pthread_mutex_trylock(&store->lock) ? -EBUSY : check_locked(store, why);
}
