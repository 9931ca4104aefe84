/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks that are brought ahead of the programs.  A ring has them, until a program uses them, which
 * the store sees only when it looks, or they go.
 */
#include "dpu_agent/store/node_store_impl.h"

enum { AHEAD_LOOK = 256 }; /* chunks of the ring looked at at a time */

uint64_t soda_node_lacks(struct soda_node_object *o, uint64_t offset, uint64_t bytes)
{
	uint64_t lacks = 0;
	uint32_t first, n;

	if (!soda_node_cut(o, offset, bytes, &first, &n))
		return 0;
	pthread_mutex_lock(&o->store->lock);
	for (uint32_t i = first; i < first + n; i++)
		lacks += o->chunks[i].state == SODA_NODE_CHUNK_EMPTY ? soda_node_bytes(o, i) : 0;
	pthread_mutex_unlock(&o->store->lock);
	return lacks;
}

static void push_ahead_locked(struct soda_node_chunk *c)
{
	struct soda_node_object *o = c->object;

	c->ringed = true;
	o->ahead[(o->ahead_first + o->ahead_n++) % SODA_NODE_AHEAD_MAX] = soda_node_index(c);
}

static bool claim_locked(struct soda_node_object *o, uint32_t index)
{
	struct soda_node_chunk *c = &o->chunks[index];

	if (c->state != SODA_NODE_CHUNK_EMPTY || (!c->ringed && o->ahead_n == SODA_NODE_AHEAD_MAX))
		return false;
	soda_node_begin_locked(o, c);
	c->ahead = true;
	/* It may be there from an earlier time that nobody has looked at since. */
	if (!c->ringed)
		push_ahead_locked(c);
	return true;
}

bool soda_node_claim(struct soda_node_object *o, uint32_t chunk)
{
	bool claimed;

	if (chunk >= o->chunks_n)
		return false;
	pthread_mutex_lock(&o->store->lock);
	claimed = claim_locked(o, chunk);
	pthread_mutex_unlock(&o->store->lock);
	if (claimed)
		soda_node_make_room(o->store, o->user);
	return claimed;
}

/* The oldest of the ring, which leaves it. */
static struct soda_node_chunk *shift_ahead_locked(struct soda_node_object *o)
{
	struct soda_node_chunk *c = &o->chunks[o->ahead[o->ahead_first]];

	o->ahead_first = (o->ahead_first + 1) % SODA_NODE_AHEAD_MAX;
	o->ahead_n--;
	c->ringed = false;
	return c;
}

/* What neither was touched nor has gone goes to the ring's end. */
static uint32_t harvest_locked(struct soda_node_object *o, uint64_t *offsets, uint32_t max)
{
	uint32_t left = o->ahead_n < AHEAD_LOOK ? o->ahead_n : AHEAD_LOOK, n = 0;

	for (; left && n < max; left--) {
		struct soda_node_chunk *c = shift_ahead_locked(o);

		if (c->ahead && c->state == SODA_NODE_CHUNK_READY && soda_node_take_touch(c)) {
			soda_node_use_locked(c);
			offsets[n++] = soda_node_offset(c);
		} else if (c->ahead) {
			push_ahead_locked(c);
		}
	}
	return n;
}

uint32_t soda_node_touched(struct soda_node_object *o, uint64_t *offsets, uint32_t max)
{
	uint32_t n;

	pthread_mutex_lock(&o->store->lock);
	n = harvest_locked(o, offsets, max);
	pthread_mutex_unlock(&o->store->lock);
	return n;
}

void soda_node_take_news(struct soda_node_object *o, struct soda_node_news *news_p)
{
	pthread_mutex_lock(&o->store->lock);
	*news_p = o->news;
	o->news = (struct soda_node_news){ 0 };
	pthread_mutex_unlock(&o->store->lock);
}

uint64_t soda_node_touched_yet_locked(const struct soda_node_object *o)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < o->ahead_n; i++) {
		const struct soda_node_chunk *c =
			&o->chunks[o->ahead[(o->ahead_first + i) % SODA_NODE_AHEAD_MAX]];

		if (c->ahead && c->state == SODA_NODE_CHUNK_READY && soda_node_is_touched(c))
			bytes += soda_node_bytes(o, soda_node_index(c));
	}
	return bytes;
}
