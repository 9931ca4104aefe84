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
 * A history of requests by entry (stream_history.h) knows both, and one thing more: the host has a
 * page buffer of its own, and does not ask for what that keeps.  A stream that comes again is
 * fetched without the parts that it left out twice, unless its client says itself what it has.
 *
 * Victims.  What a stream has read through goes first, the newest first: a
 * loop that is larger than the cache then keeps a part of itself, where arrival order
 * would keep nothing, and a scan evicts itself.  What comes back after it was read
 * through is settled, as is what density brought: second chance among those, when
 * nothing else is left, and one in SOMETIMES so that old ones leave at last.
 */
#include "dpu_agent/cache/policy/plugin.h"
#include "dpu_agent/cache/policy/stream_history.h"

enum { SOMETIMES = 32, EAGER_MAX = 8, WALK = 16 };
enum { PAID = 48 }; /* sectors, of 64 */
enum list { NOWHERE, STREAM, DONE, SETTLED, LISTS };

/* What the policy knows of the entry in a slot of the cache. */
struct stream_slot {
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
	struct stream_slot *slots;
	struct soda_stream_history history;
	uint32_t held, turn;
	uint32_t head[LISTS], tail[LISTS];
	uint32_t sector_shift;
	uint32_t eager; /* 0 .. EAGER_MAX */
};

static size_t stream_state_bytes(const struct soda_cache_setup *setup)
{
	return sizeof(struct stream_state) + setup->slots * sizeof(struct stream_slot) +
	       soda_stream_history_bytes(setup->slots);
}

static void stream_init(void *arg, const struct soda_cache_setup *setup)
{
	struct stream_state *st = arg;

	st->setup = setup;
	st->slots = (struct stream_slot *)(st + 1);
	soda_stream_history_init(&st->history, setup->slots, st->slots + setup->slots);
	st->eager = EAGER_MAX / 2;
	st->sector_shift = (uint32_t)__builtin_ctz(setup->entry_bytes) - 6;
	for (int i = 0; i < LISTS; i++)
		st->head[i] = st->tail[i] = SODA_CACHE_NONE;
}

/* Lists of slots. */

static void list_remove(struct stream_state *st, uint32_t id)
{
	struct stream_slot *s = &st->slots[id];

	if (s->list == NOWHERE)
		return;
	*(s->prev == SODA_CACHE_NONE ? &st->head[s->list] : &st->slots[s->prev].next) = s->next;
	*(s->next == SODA_CACHE_NONE ? &st->tail[s->list] : &st->slots[s->next].prev) = s->prev;
	s->list = NOWHERE;
}

static void list_push(struct stream_state *st, enum list list, uint32_t id)
{
	struct stream_slot *s = &st->slots[id];

	list_remove(st, id);
	s->list = (uint8_t)list;
	s->next = SODA_CACHE_NONE;
	s->prev = st->tail[list];
	*(s->prev == SODA_CACHE_NONE ? &st->head[list] : &st->slots[s->prev].next) = id;
	st->tail[list] = id;
}

static uint64_t sectors_of(const struct stream_state *st, const struct soda_cache_touch *touch)
{
	uint32_t first = touch->offset >> st->sector_shift;
	uint32_t last = (touch->offset + touch->bytes - 1) >> st->sector_shift;

	return (UINT64_MAX >> (63 - (last - first))) << first;
}

static bool one_run(uint64_t mask)
{
	uint64_t run = mask >> __builtin_ctzll(mask);

	return !(run & (run + 1));
}

/* 1 or -1: the direction in which this entry is read; 0: none. */
static int direction(struct stream_state *st, struct soda_stream_record *r,
		     const struct soda_cache_key *key, uint64_t sectors, bool *sure_p)
{
	const struct soda_stream_record *before =
		key->entry ? soda_stream_find(&st->history, key->owner, key->entry - 1) : NULL;
	const struct soda_stream_record *behind =
		soda_stream_find(&st->history, key->owner, key->entry + 1);
	uint64_t old = r->mask, all = old | sectors;

	*sure_p = true;
	if (soda_stream_lately(&st->history, before) && soda_stream_read_through(before) &&
	    !soda_stream_lately(&st->history, behind))
		return 1;
	if (soda_stream_lately(&st->history, behind) && soda_stream_read_through(behind) &&
	    !soda_stream_lately(&st->history, before))
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
	const struct soda_stream_record *r =
		soda_stream_find(&st->history, touch->key.owner, entry);

	/* What was left out once may come next time; what was left out twice stays out. */
	if (touch->told || !r || __builtin_popcountll(r->last) < SODA_STREAM_HALF ||
	    __builtin_popcountll(r->mask) < SODA_STREAM_HALF)
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

/*
 * The stream has left the entry before the last one, whatever it has left out of it. (Hosts
 * ask for two at a time.)
 */
static void leave(struct stream_state *st, const struct soda_cache_key *key, int way)
{
	uint64_t entry = key->entry - 2 * (uint64_t)way;
	const struct soda_stream_record *r = soda_stream_find(&st->history, key->owner, entry);
	const struct stream_slot *s;

	if (!r || r->slot >= st->setup->slots)
		return;
	s = &st->slots[r->slot];
	if (s->list == STREAM && s->key.owner == key->owner && s->key.entry == entry)
		list_push(st, DONE, r->slot);
}

static uint32_t predict_stream(struct stream_state *st, const struct soda_cache_touch *touch,
			       struct soda_stream_record *r, int way, bool sure, uint64_t sectors,
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
	struct soda_stream_record *r = soda_stream_note(&st->history, &touch->key, &again);
	uint64_t sectors = sectors_of(st, touch);
	int way;

	if (again)
		soda_stream_mark(r, 0, true);
	way = direction(st, r, &touch->key, sectors, &sure);
	soda_stream_mark(r, sectors, false);
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
	const struct soda_stream_record *r = soda_stream_find(&st->history, key->owner, key->entry),
					*other;
	uint32_t id, cost = 2 * (EAGER_MAX - st->eager);

	if (!r || !r->dense || st->held < st->setup->slots)
		return true;
	id = choose(st);
	if (id == SODA_CACHE_NONE || st->slots[id].list == DONE)
		return id != SODA_CACHE_NONE;
	other = soda_stream_find(&st->history, st->slots[id].key.owner, st->slots[id].key.entry);
	return soda_stream_wanted(&st->history, r) >=
	       (other ? soda_stream_wanted(&st->history, other) : 0) + cost;
}

static void stream_hit(void *arg, const struct soda_cache_touch *touch)
{
	struct stream_state *st = arg;
	struct stream_slot *s = &st->slots[touch->slot];

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
	const struct soda_stream_record *r = soda_stream_find(&st->history, key->owner, key->entry);

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
