/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/replace.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct soda_policy *const policies[] = { &soda_policy_ghost, &soda_policy_fifo };

const struct soda_policy *soda_policy_find(const char *name, struct soda_why *why)
{
	char all[128] = "";
	size_t at = 0;

	for (unsigned i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		if (!strcmp(policies[i]->name, name))
			return policies[i];
		at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s", i ? ", " : "",
				       policies[i]->name);
	}
	snprintf(why->text, sizeof(why->text),
		 "evict (SODA_EVICT): there is no '%.64s'; there are: %s", name, all);
	return NULL;
}

void soda_list_push(struct soda_shard *s, int list, uint32_t id)
{
	struct soda_chunk *c = soda_shard_chunk(s, id);

	assert(c->list == 0 && list > 0 && list < SODA_REPLACE_LISTS);
	c->list = (uint8_t)list;
	c->next = SODA_NO_CHUNK;
	c->prev = s->tail[list];
	if (c->prev == SODA_NO_CHUNK)
		s->head[list] = id;
	else
		soda_shard_chunk(s, c->prev)->next = id;
	s->tail[list] = id;
	s->count[list]++;
}

void soda_list_remove(struct soda_shard *s, uint32_t id)
{
	struct soda_chunk *c = soda_shard_chunk(s, id);
	int list = c->list;

	assert(list > 0 && list < SODA_REPLACE_LISTS);
	if (c->prev == SODA_NO_CHUNK)
		s->head[list] = c->next;
	else
		soda_shard_chunk(s, c->prev)->next = c->next;
	if (c->next == SODA_NO_CHUNK)
		s->tail[list] = c->prev;
	else
		soda_shard_chunk(s, c->next)->prev = c->prev;
	c->list = 0;
	s->count[list]--;
}

uint32_t soda_shard_random(struct soda_shard *s)
{
	s->seed ^= s->seed << 13; /* xorshift32: Marsaglia, 2003 */
	s->seed ^= s->seed >> 17;
	s->seed ^= s->seed << 5;
	return s->seed;
}

/* Eight neighbours share a shard, so that a batch of victims has runs of neighbours. */
static struct soda_shard *shard_of(struct soda_replacer *r, uint32_t id)
{
	return &r->shard[(id >> 3) * 2654435761u >> 16 & (r->shards - 1)];
}

void soda_replace_init(struct soda_replacer *r, const struct soda_policy *policy,
		       struct soda_chunk *table, uint64_t capacity)
{
	memset(r, 0, sizeof(*r));
	r->policy = policy;
	r->table = table;
	r->shards = 1;
	/* In a shard of few chunks the hash, not the policy, would decide what is evicted. */
	while (r->shards < SODA_REPLACE_SHARDS_MAX && capacity / r->shards > 1024)
		r->shards *= 2;
	for (uint32_t i = 0; i < r->shards; i++) {
		struct soda_shard *s = &r->shard[i];

		soda_lock_init(&s->lock, SODA_RANK_SHARD);
		s->replacer = r;
		s->clock = 1;
		s->seed = 2463534242u + i;
		for (int l = 0; l < SODA_REPLACE_LISTS; l++)
			s->head[l] = s->tail[l] = SODA_NO_CHUNK;
	}
	soda_replace_resize(r, capacity);
}

void soda_replace_resize(struct soda_replacer *r, uint64_t capacity)
{
	uint64_t share = capacity / r->shards;

	for (uint32_t i = 0; i < r->shards; i++) {
		soda_lock_acquire(&r->shard[i].lock);
		r->shard[i].capacity =
			share ? (uint32_t)(share > UINT32_MAX / 16 ? UINT32_MAX / 16 : share) : 1;
		soda_lock_release(&r->shard[i].lock);
	}
}

void soda_replace_insert(struct soda_replacer *r, uint32_t id)
{
	struct soda_shard *s = shard_of(r, id);

	soda_lock_acquire(&s->lock);
	s->clock++;
	if (!s->clock)
		s->clock = 1;
	r->policy->insert(s, id);
	atomic_fetch_add_explicit(&s->resident, 1, memory_order_relaxed);
	soda_lock_release(&s->lock);
}

void soda_replace_remove(struct soda_replacer *r, uint32_t id)
{
	struct soda_shard *s = shard_of(r, id);

	soda_lock_acquire(&s->lock);
	if (r->table[id].list) {
		soda_list_remove(s, id);
		atomic_fetch_sub_explicit(&s->resident, 1, memory_order_relaxed);
		r->policy->evicted(s, id);
	}
	soda_lock_release(&s->lock);
}

bool soda_replace_has(struct soda_replacer *r, uint32_t id)
{
	struct soda_shard *s = shard_of(r, id);
	bool has;

	soda_lock_acquire(&s->lock);
	has = r->table[id].list != 0;
	soda_lock_release(&s->lock);
	return has;
}

static struct soda_shard *fullest(struct soda_replacer *r)
{
	struct soda_shard *best = &r->shard[0];
	uint32_t most = 0;

	for (uint32_t i = 0; i < r->shards; i++) {
		uint32_t n = atomic_load_explicit(&r->shard[i].resident, memory_order_relaxed);

		if (n > most) {
			most = n;
			best = &r->shard[i];
		}
	}
	return best;
}

static int take_from(struct soda_shard *s, uint32_t *ids, int max,
		     enum soda_take (*want)(void *arg, uint32_t id), void *arg, int *dealt_p)
{
	enum { PATIENCE = 32 };
	const struct soda_policy *policy = s->replacer->policy;
	int n = 0;

	soda_lock_acquire(&s->lock);
	for (int looked = 0; n < max && looked < max + PATIENCE; looked++) {
		uint32_t id = policy->victim(s);
		enum soda_take answer;

		if (id == SODA_NO_CHUNK)
			break;
		answer = want(arg, id);
		*dealt_p += answer != SODA_TAKE_NO;
		if (answer != SODA_TAKE_DROP) {
			policy->spare(s, id);
			continue;
		}
		soda_list_remove(s, id);
		atomic_fetch_sub_explicit(&s->resident, 1, memory_order_relaxed);
		policy->evicted(s, id);
		ids[n++] = id;
	}
	soda_lock_release(&s->lock);
	return n;
}

int soda_replace_take(struct soda_replacer *r, uint32_t *ids, int max,
		      enum soda_take (*want)(void *arg, uint32_t id), void *arg)
{
	uint32_t first = (uint32_t)(fullest(r) - r->shard);
	int n = 0, dealt = 0;

	/* Other shards only where no candidate of the fullest one could be taken. */
	for (uint32_t i = 0; i < r->shards && !dealt; i++)
		n = take_from(&r->shard[(first + i) & (r->shards - 1)], ids, max, want, arg,
			      &dealt);
	return n;
}

void soda_replace_check(struct soda_replacer *r)
{
	for (uint32_t i = 0; i < r->shards; i++) {
		struct soda_shard *s = &r->shard[i];
		uint32_t total = 0;

		soda_lock_acquire(&s->lock);
		for (int l = 1; l < SODA_REPLACE_LISTS; l++) {
			uint32_t n = 0, before = SODA_NO_CHUNK;

			for (uint32_t id = s->head[l]; id != SODA_NO_CHUNK;
			     id = r->table[id].next) {
				assert(r->table[id].prev == before && r->table[id].list == l);
				before = id;
				n++;
			}
			assert(n == s->count[l] && s->tail[l] == before);
			total += n;
		}
		assert(total == atomic_load_explicit(&s->resident, memory_order_relaxed));
		soda_lock_release(&s->lock);
	}
}
