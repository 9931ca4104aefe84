/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The default.  Fetches what is about to be read, or is read often, and nothing else:
 *
 *   streams   an entry whose requests grow out of one spot, or whose neighbour was
 *             read through a moment ago, is on a stream: the next entries are fetched,
 *             one at first, three once the stream has filled an entry.  Order
 *             within an entry does not matter, as hosts fetch ahead themselves.
 *   density   an entry with several requests and no direction.  When the cache is full it
 *             must have been wanted more often than the entry that would go for it
 *             (TinyLFU: Einziger et al., ACM ToS 2017).  How many requests, and how
 *             much more often, is learned: fetches that paid for themselves make it
 *             eager, those that did not make it shy.
 *
 * A history of requests by entry, sixty-four times the cache's slots, knows both, and
 * one thing more: the host has a page buffer of its own, and does not ask for what that
 * keeps.  A stream that comes again is fetched without the parts that it left out twice, unless
 * its client says itself what it has.
 *
 * Victims.  What a stream has read through goes first, the newest first: a
 * loop that is larger than the cache then keeps a part of itself, where arrival order
 * would keep nothing, and a scan evicts itself.  What comes back after it was read
 * through is settled, as is what density brought: second chance among those, when
 * nothing else is left, and one in SOMETIMES so that old ones leave at last.
 */
#include <string.h>

#include "dpu_agent/policies.h"

enum {
	WAYS = 4,
	SOMETIMES = 32,
	RECENTLY = 1024,
	LAP = 256,
	EAGER_MAX = 8,
	WALK = 16,
	HISTORY_MAX = 8192
};
enum { HALF = 32, PAID = 48 }; /* sectors, of 64 */
enum list { NOWHERE, STREAM, DONE, SETTLED, LISTS };

/* What was asked of one entry, cached or not. */
struct record {
	uint64_t entry; /* + 1; 0: free */
	uint64_t mask;	/* sectors, of 64, in this lap */
	uint64_t last;	/* the same in the lap before; 0: there was none */
	uint64_t has;	/* its client, when it asked last; 0: not told */
	uint32_t owner;
	uint32_t slot;	 /* that held it when it was last asked for; a hint */
	uint32_t when;	 /* of the last request */
	uint16_t wanted; /* requests; halved with age */
	uint8_t repeats; /* requests that brought nothing new into mask */
	bool dense;	 /* density, not a stream, asked for it */
};

struct slot {
	struct soda_cache_key key;
	uint64_t used;	 /* sectors, in this lap */
	uint32_t gained; /* sectors of all hits */
	uint32_t prev, next;
	uint8_t list;
	bool again; /* met since it was settled, or since the hand passed */
	bool dense; /* fetched for its density */
};

struct stream_state {
	const struct soda_cache_setup *setup;
	struct slot *slots;
	struct record *history;
	uint32_t sets; /* a power of two */
	uint32_t clock, held, turn;
	uint32_t head[LISTS], tail[LISTS];
	uint32_t sector_shift;
	uint32_t eager; /* 0 .. EAGER_MAX */
};

static uint32_t history_sets(const struct soda_cache_setup *setup)
{
	uint32_t sets = 64;

	while (sets < 16 * setup->slots && sets * WAYS < HISTORY_MAX)
		sets *= 2;
	return sets;
}

static size_t stream_state_bytes(const struct soda_cache_setup *setup)
{
	return sizeof(struct stream_state) + setup->slots * sizeof(struct slot) +
	       (size_t)history_sets(setup) * WAYS * sizeof(struct record);
}

static void stream_init(void *arg, const struct soda_cache_setup *setup)
{
	struct stream_state *st = arg;

	st->setup = setup;
	st->slots = (struct slot *)(st + 1);
	st->history = (struct record *)(st->slots + setup->slots);
	st->sets = history_sets(setup);
	st->eager = EAGER_MAX / 2;
	st->sector_shift = (uint32_t)__builtin_ctz(setup->entry_bytes) - 6;
	for (int i = 0; i < LISTS; i++)
		st->head[i] = st->tail[i] = SODA_CACHE_NONE;
}

/* Lists of slots. */

static void list_remove(struct stream_state *st, uint32_t id)
{
	struct slot *s = &st->slots[id];

	if (s->list == NOWHERE)
		return;
	*(s->prev == SODA_CACHE_NONE ? &st->head[s->list] : &st->slots[s->prev].next) = s->next;
	*(s->next == SODA_CACHE_NONE ? &st->tail[s->list] : &st->slots[s->next].prev) = s->prev;
	s->list = NOWHERE;
}

static void list_push(struct stream_state *st, enum list list, uint32_t id)
{
	struct slot *s = &st->slots[id];

	list_remove(st, id);
	s->list = (uint8_t)list;
	s->next = SODA_CACHE_NONE;
	s->prev = st->tail[list];
	*(s->prev == SODA_CACHE_NONE ? &st->head[list] : &st->slots[s->prev].next) = id;
	st->tail[list] = id;
}

/* The history. */

static struct record *history_set(const struct stream_state *st, uint32_t owner, uint64_t entry)
{
	uint64_t hash = (entry + ((uint64_t)owner << 40)) * 0x9e3779b97f4a7c15ull;

	return &st->history[(hash >> 32 & (st->sets - 1)) * WAYS];
}

static struct record *history_find(const struct stream_state *st, uint32_t owner, uint64_t entry)
{
	struct record *set = history_set(st, owner, entry);

	for (int i = 0; i < WAYS; i++)
		if (set[i].entry == entry + 1 && set[i].owner == owner)
			return &set[i];
	return NULL;
}

/* The record of an entry, a new one in the place of the set's oldest. */
static struct record *history_get(struct stream_state *st, const struct soda_cache_key *key)
{
	struct record *r = history_find(st, key->owner, key->entry), *set;

	if (r)
		return r;
	set = history_set(st, key->owner, key->entry);
	r = &set[0];
	for (int i = 1; i < WAYS; i++)
		if (st->clock - set[i].when > st->clock - r->when)
			r = &set[i];
	*r = (struct record){ .entry = key->entry + 1,
			      .owner = key->owner,
			      .when = st->clock,
			      .slot = SODA_CACHE_NONE };
	return r;
}

static uint32_t halving(const struct stream_state *st)
{
	return st->setup->slots * 32;
}

/* How often it was wanted lately. */
static uint32_t wanted(const struct stream_state *st, const struct record *r)
{
	uint32_t ages = (st->clock - r->when) / halving(st);

	return ages < 16 ? r->wanted >> ages : 0;
}

static uint64_t sectors_of(const struct stream_state *st, const struct soda_cache_touch *touch)
{
	uint32_t first = touch->offset >> st->sector_shift;
	uint32_t last = (touch->offset + touch->bytes - 1) >> st->sector_shift;

	return (UINT64_MAX >> (63 - (last - first))) << first;
}

/* *again_p: it was left for long. */
static struct record *note(struct stream_state *st, const struct soda_cache_touch *touch,
			   bool *again_p)
{
	struct record *r = history_get(st, &touch->key);
	uint32_t count = wanted(st, r);

	*again_p = st->clock - r->when > LAP;
	/* Half of what is remembered goes with each age, also of those in steady use. */
	st->clock++;
	if (st->clock % halving(st) == 0)
		for (uint32_t i = 0; i < st->sets * WAYS; i++)
			st->history[i].wanted /= 2;
	r->wanted = (uint16_t)(count < UINT16_MAX ? count + 1 : count);
	r->when = st->clock;
	return r;
}

static bool lately(const struct stream_state *st, const struct record *r)
{
	return r && st->clock - r->when < RECENTLY;
}

/*
 * Read through, three quarters of it (of what was asked for last time, where that is known;
 * what the client has it need not ask for), each part once: scattered requests repeat themselves.
 */
static bool read_through(const struct record *r)
{
	int asked = __builtin_popcountll(r->mask), whole = __builtin_popcountll(r->last);
	int got = __builtin_popcountll(r->mask | r->has);

	if (whole < HALF || r->has) /* a few spots say nothing of a stream */
		whole = 64;
	return r->repeats <= 2 && asked >= (r->has ? HALF / 2 : HALF) && got * 4 >= whole * 3;
}

static bool one_run(uint64_t mask)
{
	uint64_t run = mask >> __builtin_ctzll(mask);

	return !(run & (run + 1));
}

/* 1 or -1: the direction in which this entry is read; 0: none. */
static int direction(struct stream_state *st, struct record *r, const struct soda_cache_key *key,
		     uint64_t sectors, bool *sure_p)
{
	const struct record *before =
		key->entry ? history_find(st, key->owner, key->entry - 1) : NULL;
	const struct record *behind = history_find(st, key->owner, key->entry + 1);
	uint64_t old = r->mask, all = old | sectors;

	*sure_p = true;
	if (lately(st, before) && read_through(before) && !lately(st, behind))
		return 1;
	if (lately(st, behind) && read_through(behind) && !lately(st, before))
		return -1;
	*sure_p = false;
	/* Two neighbours may be chance. */
	if (!old || (old & sectors) || !one_run(old) || !one_run(all) ||
	    __builtin_popcountll(all) < 3 * __builtin_popcountll(sectors))
		return 0;
	return sectors > old ? 1 : -1;
}

/* What a stream will ask for of an entry that it has not come to yet. */
static uint64_t expected(const struct stream_state *st, const struct soda_cache_touch *touch,
			 uint64_t entry)
{
	const struct record *r = history_find(st, touch->key.owner, entry);

	/* What was left out once may come next time; what was left out twice stays out. */
	if (touch->told || !r || __builtin_popcountll(r->last) < HALF ||
	    __builtin_popcountll(r->mask) < HALF)
		return SODA_CACHE_WHOLE;
	return r->last | r->mask;
}

static void add(const struct stream_state *st, const struct soda_cache_touch *touch, int64_t step,
		struct soda_cache_want *wants, uint32_t *n, uint32_t max)
{
	int64_t entry = (int64_t)touch->key.entry + step;

	if (entry < 0 || (uint64_t)entry >= touch->entries || *n == max)
		return;
	wants[(*n)++] = (struct soda_cache_want){
		.entry = (uint64_t)entry,
		.sectors = expected(st, touch, (uint64_t)entry),
		.once = true,
	};
}

/* The rest of this entry: what was not asked for, or if that is not sure, what lies ahead. */
static void add_rest(const struct stream_state *st, const struct soda_cache_touch *touch,
		     uint64_t ahead, struct soda_cache_want *wants, uint32_t *n, uint32_t max)
{
	ahead &= expected(st, touch, touch->key.entry);
	if (__builtin_popcountll(ahead) >= 16 && *n < max)
		wants[(*n)++] = (struct soda_cache_want){ touch->key.entry, ahead, .once = true };
}

static uint64_t beyond(uint64_t sectors, int way)
{
	return way > 0 ? ~(sectors | (sectors - 1)) : (sectors & -sectors) - 1;
}

static void mark(struct record *r, uint64_t sectors, bool again)
{
	/* A full one, or one that was left for long, starts a new lap. */
	if (again || r->mask == UINT64_MAX) {
		r->last = r->mask;
		r->mask = r->repeats = 0;
	}
	if ((r->mask & sectors) == sectors && r->repeats < UINT8_MAX)
		r->repeats++;
	r->mask |= sectors;
}

/*
 * The stream has left the entry before the last one, whatever it has left out of it. (Hosts
 * ask for two at a time.)
 */
static void leave(struct stream_state *st, const struct soda_cache_key *key, int way)
{
	uint64_t entry = key->entry - 2 * (uint64_t)way;
	const struct record *r = history_find(st, key->owner, entry);
	const struct slot *s;

	if (!r || r->slot >= st->setup->slots)
		return;
	s = &st->slots[r->slot];
	if (s->list == STREAM && s->key.owner == key->owner && s->key.entry == entry)
		list_push(st, DONE, r->slot);
}

static uint32_t predict_stream(struct stream_state *st, const struct soda_cache_touch *touch,
			       struct record *r, int way, bool sure, uint64_t sectors,
			       struct soda_cache_want *wants, uint32_t max)
{
	uint32_t n = 0, ahead = sure && st->setup->slots >= 16 ? 3 : 1;

	if (__builtin_popcountll(r->mask) >= 16)
		leave(st, &touch->key, way);
	if (touch->slot == SODA_CACHE_NONE)
		add_rest(st, touch, sure ? ~r->mask : beyond(sectors, way), wants, &n, max);
	for (uint32_t i = 1; i <= ahead; i++)
		add(st, touch, way * (int64_t)i, wants, &n, max);
	return n;
}

static uint32_t stream_predict(void *arg, const struct soda_cache_touch *touch,
			       struct soda_cache_want *wants, uint32_t max)
{
	struct stream_state *st = arg;
	bool again, sure;
	struct record *r = note(st, touch, &again);
	uint64_t sectors = sectors_of(st, touch);
	int way;

	if (again)
		mark(r, 0, true);
	way = direction(st, r, &touch->key, sectors, &sure);
	mark(r, sectors, false);
	r->dense = false;
	r->slot = touch->slot;
	r->has = touch->has;
	if (way)
		return predict_stream(st, touch, r, way, sure, sectors, wants, max);
	if (touch->slot != SODA_CACHE_NONE || r->wanted < 1 + (EAGER_MAX - st->eager) / 2)
		return 0;
	r->dense = true;
	wants[0] =
		(struct soda_cache_want){ .entry = touch->key.entry, .sectors = SODA_CACHE_WHOLE };
	return 1;
}

/* Victims. */

static bool evictable(const struct stream_state *st, uint32_t id)
{
	return st->setup->evictable(st->setup->cache, id);
}

static uint32_t newest(const struct stream_state *st, enum list list)
{
	uint32_t id = st->tail[list];

	for (int i = 0; i < WALK && id != SODA_CACHE_NONE; i++, id = st->slots[id].prev)
		if (evictable(st, id))
			return id;
	return SODA_CACHE_NONE;
}

static uint32_t oldest(const struct stream_state *st, enum list list)
{
	uint32_t id = st->head[list];

	for (int i = 0; i < WALK && id != SODA_CACHE_NONE; i++, id = st->slots[id].next)
		if (evictable(st, id))
			return id;
	return SODA_CACHE_NONE;
}

/* Second chance among the settled; `steps` of the hand at most. */
static uint32_t second_chance(struct stream_state *st, int steps)
{
	while (steps-- > 0 && st->head[SETTLED] != SODA_CACHE_NONE) {
		uint32_t id = st->head[SETTLED];

		if (!st->slots[id].again && evictable(st, id))
			return id;
		st->slots[id].again = false;
		list_push(st, SETTLED, id);
	}
	return SODA_CACHE_NONE;
}

static uint32_t choose(struct stream_state *st)
{
	uint32_t id = SODA_CACHE_NONE;

	if (++st->turn % SOMETIMES == 0)
		id = st->turn / SOMETIMES % 2 ? oldest(st, DONE) : second_chance(st, 1);
	if (id == SODA_CACHE_NONE)
		id = newest(st, DONE);
	if (id == SODA_CACHE_NONE)
		id = second_chance(st, 2 * WALK);
	if (id == SODA_CACHE_NONE)
		id = oldest(st, STREAM);
	for (uint32_t i = 0; id == SODA_CACHE_NONE && i < st->setup->slots; i++)
		if (evictable(st, i))
			id = i;
	return id;
}

static uint32_t stream_victim(void *arg)
{
	return choose(arg);
}

static bool stream_admit(void *arg, const struct soda_cache_key *key)
{
	struct stream_state *st = arg;
	const struct record *r = history_find(st, key->owner, key->entry), *other;
	uint32_t id, cost = 2 * (EAGER_MAX - st->eager);

	if (!r || !r->dense || st->held < st->setup->slots)
		return true;
	id = choose(st);
	if (id == SODA_CACHE_NONE || st->slots[id].list == DONE)
		return id != SODA_CACHE_NONE;
	other = history_find(st, st->slots[id].key.owner, st->slots[id].key.entry);
	return wanted(st, r) >= (other ? wanted(st, other) : 0) + cost;
}

static void stream_hit(void *arg, const struct soda_cache_touch *touch)
{
	struct stream_state *st = arg;
	struct slot *s = &st->slots[touch->slot];

	s->again = true;
	s->gained += (uint32_t)__builtin_popcountll(sectors_of(st, touch));
	if (s->list == DONE) {
		list_push(st, SETTLED, touch->slot);
	} else if (s->list == STREAM) {
		s->used |= sectors_of(st, touch);
		if (s->used == UINT64_MAX)
			list_push(st, DONE, touch->slot);
	}
}

static void stream_fill(void *arg, uint32_t slot, const struct soda_cache_key *key,
			uint64_t sectors)
{
	struct stream_state *st = arg;
	const struct record *r = history_find(st, key->owner, key->entry);

	st->held++;
	st->slots[slot].key = *key;
	st->slots[slot].again = false;
	st->slots[slot].gained = 0;
	st->slots[slot].dense = r && r->dense;
	/* What is not there will not be read out of the cache. */
	st->slots[slot].used = ~sectors;
	list_push(st, r && r->dense ? SETTLED : STREAM, slot);
}

static void stream_drop(void *arg, uint32_t slot)
{
	struct stream_state *st = arg;

	st->held--;
	if (st->slots[slot].dense && st->slots[slot].gained >= PAID)
		st->eager += st->eager < EAGER_MAX;
	else if (st->slots[slot].dense)
		st->eager -= st->eager > 0;
	list_remove(st, slot);
}

const struct soda_cache_policy soda_cache_policy_stream = {
	.abi = SODA_CACHE_POLICY_ABI,
	.struct_bytes = sizeof(struct soda_cache_policy),
	.name = "stream",
	.state_bytes = stream_state_bytes,
	.init = stream_init,
	.admit = stream_admit,
	.hit = stream_hit,
	.fill = stream_fill,
	.victim = stream_victim,
	.drop = stream_drop,
	.predict = stream_predict,
};
