/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pins.  A pinned chunk that is READY is in no list, so that nobody comes across it who looks for
 * victims.  One that is pinned while it is being evicted goes, and is asked for again.
 */
#include "dpu_agent/store/node_store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { PINS_MAX = 4096 }; /* ranges of an object */

static void pin_chunk_locked(struct soda_node_object *o, uint32_t index)
{
	struct soda_node_chunk *c = &o->chunks[index];

	if (c->pins++)
		return;
	o->user->pinned += soda_node_bytes(o, index);
	o->store->stats.pinned += soda_node_bytes(o, index);
	if (c->state == SODA_NODE_CHUNK_READY)
		soda_node_unlink_locked(c);
}

static void unpin_chunk_locked(struct soda_node_object *o, uint32_t index)
{
	struct soda_node_chunk *c = &o->chunks[index];

	if (--c->pins)
		return;
	o->user->pinned -= soda_node_bytes(o, index);
	o->store->stats.pinned -= soda_node_bytes(o, index);
	if (c->state == SODA_NODE_CHUNK_READY)
		soda_node_link_newest_locked(c);
}

struct soda_node_pin *soda_node_take_pins_locked(struct soda_node_object *o, uint32_t member,
						 uint32_t first, uint32_t n)
{
	struct soda_node_pin **link = &o->pins, *taken = NULL, *p;

	while ((p = *link)) {
		if (p->member != member || p->first < first || p->first + p->n > first + n) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		for (uint32_t i = 0; i < p->n; i++)
			unpin_chunk_locked(o, p->first + i);
		o->pins_n--;
		o->store->stats.pins--;
		p->next = taken;
		taken = p;
	}
	return taken;
}

int soda_node_free_pins(struct soda_node_pin *pins)
{
	int n = 0;

	while (pins) {
		struct soda_node_pin *next = pins->next;

		free(pins);
		pins = next;
		n++;
	}
	return n;
}

/* What a user may have pinned: half of its share, and of all what others have left of the half. */
static uint64_t room_for_pins_locked(const struct soda_node_store *store,
				     const struct soda_node_user *u)
{
	uint64_t all = store->stats.capacity / SODA_NODE_PINS_PART, own = all / store->users_n;

	all -= all < store->stats.pinned ? all : store->stats.pinned;
	own -= own < u->pinned ? own : u->pinned;
	return own < all ? own : all;
}

static int refuse_pin_locked(const struct soda_node_object *o, uint64_t wanted,
			     struct soda_why *why)
{
	struct soda_node_store *store = o->store;

	store->stats.pins_refused++;
	snprintf(why->text, sizeof(why->text),
		 "the node's store: %llu KiB wanted, but only %llu more may be kept: choose less, "
		 "or start the agent with a larger --store",
		 (unsigned long long)wanted >> 10,
		 (unsigned long long)room_for_pins_locked(store, o->user) >> 10);
	return -ENOSPC;
}

static int refuse_many_locked(const struct soda_node_object *o, struct soda_why *why)
{
	o->store->stats.pins_refused++;
	snprintf(why->text, sizeof(why->text),
		 "the node's store: programs have %d ranges of the file kept already: choose fewer "
		 "and larger ones",
		 PINS_MAX);
	return -ENOSPC;
}

static bool has_pinned_locked(const struct soda_node_object *o, uint32_t member, uint32_t first,
			      uint32_t n)
{
	const struct soda_node_pin *p = o->pins;

	while (p && (p->member != member || p->first > first || p->first + p->n < first + n))
		p = p->next;
	return p;
}

/* 0: *p is the object's now; 1, -ENOSPC: it is not. */
static int add_pin_locked(struct soda_node_object *o, struct soda_node_pin *p, struct soda_why *why)
{
	uint64_t more = 0;

	if (has_pinned_locked(o, p->member, p->first, p->n))
		return 1;
	if (o->pins_n == PINS_MAX)
		return refuse_many_locked(o, why);
	for (uint32_t i = p->first; i < p->first + p->n; i++)
		more += o->chunks[i].pins ? 0 : soda_node_bytes(o, i);
	if (more > room_for_pins_locked(o->store, o->user))
		return refuse_pin_locked(o, more, why);
	for (uint32_t i = p->first; i < p->first + p->n; i++)
		pin_chunk_locked(o, i);
	p->next = o->pins;
	o->pins = p;
	o->pins_n++;
	o->store->stats.pins++;
	return 0;
}

int soda_node_pin(const struct soda_node_member *member, uint64_t offset, uint64_t bytes,
		  struct soda_why *why)
{
	struct soda_node_object *o = member->object;
	uint32_t first, n;
	struct soda_node_pin *p;
	int ret;

	if (!soda_node_cut(o, offset, bytes, &first, &n)) {
		snprintf(why->text, sizeof(why->text), "the range is not inside of the file");
		return -EINVAL;
	}
	p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct soda_node_pin){ .member = member->number, .first = first, .n = n };
	pthread_mutex_lock(&o->store->lock);
	ret = add_pin_locked(o, p, why);
	pthread_mutex_unlock(&o->store->lock);
	if (ret)
		free(p);
	return ret;
}

static bool lies_across(const struct soda_node_pin *p, uint32_t first, uint32_t n)
{
	return p->first < first + n && first < p->first + p->n &&
	       (p->first < first || p->first + p->n > first + n);
}

int soda_node_unpin(const struct soda_node_member *member, uint64_t offset, uint64_t bytes)
{
	struct soda_node_object *o = member->object;
	struct soda_node_pin *taken = NULL;
	uint32_t first, n;
	bool across = false;

	if (!soda_node_cut(o, offset, bytes, &first, &n))
		return 0;
	pthread_mutex_lock(&o->store->lock);
	for (const struct soda_node_pin *p = o->pins; p && !across; p = p->next)
		across = p->member == member->number && lies_across(p, first, n);
	if (!across)
		taken = soda_node_take_pins_locked(o, member->number, first, n);
	pthread_mutex_unlock(&o->store->lock);
	return across ? -EBUSY : soda_node_free_pins(taken);
}
