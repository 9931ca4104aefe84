/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/prefetch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/wait.h"
#include "dpu_agent/cache/dynamic/owner.h"
#include "dpu_agent/cache/dynamic/recent_list.h"
#include "dpu_agent/cache/dynamic/workers.h"
#include "dpu_agent/cache/policy/plugin.h"
#include "dpu_agent/cache/policy/policy_guard.h"

/* What the path of a READ has to know of an owner, without a lock. */
enum soda_owner_mode { SODA_MODE_UNCACHED, SODA_MODE_GHOSTS, SODA_MODE_ON };

enum { SERVERS = 4 * SODA_MEMBERS_MAX };

/* All 0, but for `at`: the place is free. */
struct soda_fill_server {
	uint16_t at;
	uint32_t queued, taken; /* fetches that wait for a worker, and those under way */
	uint32_t pause;		/* requests that cause no fetch, after one that failed */
	struct soda_cache_line line;
};

struct soda_prefetch {
	struct soda_cache *cache;
	const struct soda_prefetch_ops *ops;
	void *arg;
	bool always;
	unsigned per_server; /* set before start, then constant */
	enum soda_prefetch_limit limit;
	struct soda_model_rates rates;
	struct soda_recent_list recent;
	_Atomic uint8_t *modes;		  /* by owner id; enum soda_owner_mode */
	struct soda_cache_tally *tallies; /* by owner id; the cache adds, the budget takes out */
	_Atomic uint64_t ruled_given;	  /* likewise, of what rules have loaded */

	struct soda_lock lock; /* guards all down to the gap */
	struct soda_guard guard;
	struct soda_owners owners;
	struct soda_budget_pool pool;
	uint64_t bytes_ruled;
	uint64_t ghost_bytes, ghost_bytes_max;
	uint32_t *free_slots, free_n;
	uint32_t *holders;	   /* tenants, by slot that is not free; 0: nobody's */
	struct soda_shares shares; /* of the slots */
	struct soda_shares open;   /* regions of each tenant */
	struct soda_holder asking; /* for whom a victim is looked for */
	uint32_t hand;		   /* where its own entries were looked for last */
	struct soda_fill fills[SODA_FILLS_MAX];
	struct soda_fill *queue[SODA_FILLS_MAX]; /* a ring of those that no worker has taken */
	uint32_t queue_head, queue_n;
	uint32_t underway;
	struct soda_fill_server servers[SERVERS]; /* of more at a time some share a place */
	uint64_t begun, unwanted, unpaid, switched_on, switched_off;
	bool stopping;

	_Atomic uint32_t ended; /* futex: counts fills that ended */
	struct soda_workers workers;
};

/* Whether entries of this owner are fetched. The lock is held. */
static bool fetches(const struct soda_prefetch *p, const struct soda_owner *o)
{
	if (p->always)
		return true;
	if (p->limit != SODA_LIMIT_MODEL && o->s.budget.ended)
		return false;
	return p->limit == SODA_LIMIT_BUDGET || o->s.advice == SODA_OWNER_CACHED || o->s.model.on;
}

enum {
	OWNERS_MAX = 16384,
	BATCH = 32,
	PAUSE = 256,
	/* Requests in the recent list that are worth waking a worker for... */
	PENDING_OFF = 16, /* ...while nothing is fetched for their owner */
	PENDING_ON = 64,  /* ...and nothing new has happened */
	GHOST_SHARE = 64, /* of the cache's bytes */
	TOUCHED = 64,	  /* chunks of a view that are taken in with one request */
	OWN_LOOKS = 4096, /* slots that are looked at for a tenant's own entry */
};

/* Changes of an owner; the lock is held. */

/* Set the owner's mode after a change of its switch or advice. */
static void show_mode(struct soda_prefetch *p, const struct soda_owner *o)
{
	uint8_t mode = SODA_MODE_GHOSTS;

	if (o->s.advice == SODA_OWNER_UNCACHED)
		mode = SODA_MODE_UNCACHED;
	else if (fetches(p, o))
		mode = SODA_MODE_ON;
	/* relaxed: a READ that sees the old mode is treated by the old one */
	atomic_store_explicit(&p->modes[o->id], mode, memory_order_relaxed);
}

static void drop_ghost(struct soda_prefetch *p, struct soda_owner *o)
{
	if (!o->ghost)
		return;
	p->ghost_bytes -= soda_ghost_bytes(soda_cache_slots(p->cache), o->entries);
	soda_ghost_destroy(o->ghost);
	o->ghost = NULL;
}

/* The i-th of those that no worker has taken. */
static struct soda_fill *queued(const struct soda_prefetch *p, uint32_t i)
{
	return p->queue[(p->queue_head + i) % SODA_FILLS_MAX];
}

/* Entries of the owner that no worker has taken will not be fetched. */
static void unwant_locked(struct soda_prefetch *p, uint32_t owner)
{
	for (uint32_t i = 0; i < p->queue_n; i++) {
		struct soda_fill *fill = queued(p, i);

		if (fill->owner == owner)
			fill->cancelled = true;
	}
	/* Requests that wait for these entries go to the server instead. */
	if (p->queue_n)
		soda_workers_ring(&p->workers);
}

/* Shares of tenants; the lock is held. */

/* Whether the slot's entry is kept for its tenant, which is not the one that asks. */
static bool is_kept(const struct soda_prefetch *p, uint32_t slot)
{
	struct soda_holder holder = { p->holders[slot], p->asking.of };

	return holder.number && holder.number != p->asking.number &&
	       soda_shares_of(&p->open, holder.number) &&
	       soda_shares_of(&p->shares, holder.number) <=
		       soda_shares_kept(soda_cache_slots(p->cache), holder.of);
}

/* The question that policies ask of their victims. */
static bool may_go(const void *arg, uint32_t slot)
{
	const struct soda_prefetch *p = arg;

	return soda_cache_evictable(p->cache, slot) && !is_kept(p, slot);
}

static void slot_taken(struct soda_prefetch *p, uint32_t slot, struct soda_holder holder)
{
	p->holders[slot] = soda_shares_take(&p->shares, holder.number, 1) ? 0 : holder.number;
	if (!p->holders[slot] && holder.number)
		soda_shares_take(&p->shares, 0, 1); /* no memory to count it as the tenant's */
}

static void slot_left(struct soda_prefetch *p, uint32_t slot)
{
	if (!p->guard.held[slot])
		return;
	soda_guard_drop(&p->guard, slot);
	soda_shares_put(&p->shares, p->holders[slot], 1);
	p->holders[slot] = 0;
}

/* An entry of the asking tenant's own, where the policy has met kept ones of others alone. */
static uint32_t own_victim(struct soda_prefetch *p)
{
	uint32_t slots = soda_cache_slots(p->cache);

	for (uint32_t i = 0; p->asking.number && i < OWN_LOOKS && i < slots; i++) {
		p->hand = (p->hand + 1) % slots;
		if (p->holders[p->hand] == p->asking.number &&
		    soda_cache_evictable(p->cache, p->hand))
			return p->hand;
	}
	return SODA_CACHE_NONE;
}

int soda_prefetch_create(const struct soda_prefetch_options *opt,
			 const struct soda_prefetch_ops *ops, void *arg, struct soda_prefetch **p_p)
{
	struct soda_prefetch *p = calloc(1, sizeof(*p));
	struct soda_cache_setup setup;
	uint32_t max = opt->max_owners ? opt->max_owners : OWNERS_MAX;
	int ret;

	if (!p)
		return -ENOMEM;
	p->per_server = opt->per_server;
	p->ops = ops;
	p->arg = arg;
	p->always = opt->always;
	p->limit = opt->limit;
	soda_budget_pool_init(&p->pool, opt->entry_bytes);
	soda_recent_init(&p->recent);
	soda_lock_init(&p->lock, SODA_RANK_DPU_POLICY);
	ret = soda_cache_create(opt->cache_bytes, opt->entry_bytes, &p->cache);
	if (ret) {
		free(p);
		return ret;
	}
	p->ghost_bytes_max = opt->cache_bytes / GHOST_SHARE;
	setup = (struct soda_cache_setup){ .slots = soda_cache_slots(p->cache),
					   .entry_bytes = opt->entry_bytes,
					   .seed = opt->seed ? opt->seed : 1,
					   .evictable = may_go,
					   .cache = p };
	ret = soda_guard_init(&p->guard, opt->policy ? opt->policy : &soda_cache_policy_stream,
			      &setup);
	if (!ret)
		ret = soda_owners_init(&p->owners, max);
	p->free_slots = calloc(setup.slots, sizeof(*p->free_slots));
	p->holders = calloc(setup.slots, sizeof(*p->holders));
	p->modes = calloc(max, sizeof(*p->modes));
	p->tallies = calloc(max, sizeof(*p->tallies));
	if (!ret && (!p->free_slots || !p->holders || !p->modes || !p->tallies))
		ret = -ENOMEM;
	if (ret) {
		soda_prefetch_destroy(p);
		return ret;
	}
	soda_cache_tell(p->cache, p->tallies);
	*p_p = p;
	return 0;
}

void soda_prefetch_destroy(struct soda_prefetch *p)
{
	if (!p)
		return;
	soda_owners_destroy(&p->owners);
	soda_guard_destroy(&p->guard);
	soda_cache_destroy(p->cache);
	free(p->free_slots);
	free(p->holders);
	soda_shares_free(&p->shares);
	soda_shares_free(&p->open);
	free((void *)p->modes);
	free(p->tallies);
	free(p);
}

struct soda_cache *soda_prefetch_cache(struct soda_prefetch *p)
{
	return p->cache;
}

/* The path of a READ. */

static bool matters(uint8_t mode, enum soda_cache_answer answer, bool first, uint32_t pending)
{
	if (mode == SODA_MODE_GHOSTS)
		return pending >= PENDING_OFF;
	return answer == SODA_CACHE_MISS || first || pending >= PENDING_ON;
}

enum soda_cache_answer soda_prefetch_read(struct soda_prefetch *p, uint32_t owner, uint64_t offset,
					  uint32_t bytes,
					  const struct soda_recent_residency *residency,
					  struct soda_cache_waiter *waiter,
					  struct soda_cache_ref *ref_p)
{
	uint8_t mode = atomic_load_explicit(&p->modes[owner], memory_order_relaxed);
	struct soda_recent item = {
		.offset = offset, .bytes = bytes, .owner = owner, .slot = SODA_CACHE_NONE
	};
	struct soda_cache_ref ref = { .slot = SODA_CACHE_NONE };
	uint32_t pending;

	if (mode == SODA_MODE_UNCACHED)
		return SODA_CACHE_MISS;
	if (residency)
		item.residency = *residency;
	item.answer = soda_cache_acquire(p->cache, owner, offset, bytes, waiter, &ref);
	if (item.answer != SODA_CACHE_MISS) {
		item.slot = ref.slot;
		*ref_p = ref;
	}
	pending = soda_recent_push(&p->recent, &item);
	if (matters(mode, item.answer, ref.first, pending))
		soda_workers_ring(&p->workers);
	return item.answer;
}

void soda_prefetch_note(struct soda_prefetch *p, uint32_t owner, uint64_t offset, uint32_t bytes,
			enum soda_cache_answer answer)
{
	uint8_t mode = atomic_load_explicit(&p->modes[owner], memory_order_relaxed);
	struct soda_recent item = { .offset = offset,
				    .bytes = bytes,
				    .owner = owner,
				    .slot = SODA_CACHE_NONE,
				    .answer = answer };

	if (mode == SODA_MODE_UNCACHED)
		return;
	if (matters(mode, answer, false, soda_recent_push(&p->recent, &item)))
		soda_workers_ring(&p->workers);
}

void soda_prefetch_net(struct soda_prefetch *p, uint64_t bytes, uint64_t ns)
{
	soda_rate_note(&p->rates.net, bytes, ns);
}

void soda_prefetch_intra(struct soda_prefetch *p, uint64_t bytes, uint64_t ns)
{
	soda_rate_note(&p->rates.intra, bytes, ns);
}

void soda_prefetch_ruled(struct soda_prefetch *p, uint64_t bytes)
{
	soda_lock_acquire(&p->lock);
	soda_budget_ruled(&p->pool, bytes);
	p->bytes_ruled += bytes;
	soda_lock_release(&p->lock);
}

void soda_prefetch_ruled_given(struct soda_prefetch *p, uint64_t bytes)
{
	/* relaxed: a sum, which orders nothing; the path of a READ takes no lock for it */
	atomic_fetch_add_explicit(&p->ruled_given, bytes, memory_order_relaxed);
}

/* What an owner may fetch; the lock is held. */

static uint64_t clock_of(const struct soda_prefetch *p)
{
	return p->ops && p->ops->now_ns ? p->ops->now_ns(p->arg) : soda_now_ns();
}

/* After the model or the budget has changed, where `before` was fetches(). */
static void switched(struct soda_prefetch *p, struct soda_owner *o, bool before)
{
	if (fetches(p, o) == before)
		return;
	if (before) {
		unwant_locked(p, o->id);
	} else {
		if (o->ghost)
			soda_model_credit(&o->s.model, (uint64_t)soda_ghost_count(o->ghost) *
							       soda_cache_entry_bytes(p->cache));
		drop_ghost(p, o);
	}
	show_mode(p, o);
}

static uint64_t taken_out(_Atomic uint64_t *sum)
{
	/* relaxed: sums order nothing */
	return atomic_exchange_explicit(sum, 0, memory_order_relaxed);
}

static struct soda_budget_news news_of(struct soda_prefetch *p, const struct soda_owner *o)
{
	struct soda_cache_tally *t = &p->tallies[o->id];
	struct soda_budget_news news = { .asked = 0 };

	if (o->view)
		p->ops->news(o->view, &news);
	else
		news = (struct soda_budget_news){ .asked = taken_out(&t->asked),
						  .given = taken_out(&t->given),
						  .failed = taken_out(&t->failed),
						  .used = taken_out(&t->used),
						  .unused = taken_out(&t->unused) };
	return news;
}

/* Tell the owner's budget what has happened. */
static struct soda_budget_news settle(struct soda_prefetch *p, struct soda_owner *o)
{
	struct soda_budget_news news = news_of(p, o);
	bool before = fetches(p, o);

	soda_budget_ruled_given(&p->pool, taken_out(&p->ruled_given));
	soda_budget_note(&o->s.budget, &p->pool, clock_of(p), &news);
	o->s.bytes_asked += news.asked;
	o->s.bytes_hit += news.given - news.failed;
	switched(p, o, before);
	return news;
}

/* True: the fetch may begin. */
static bool buy(struct soda_prefetch *p, struct soda_owner *o, uint64_t bytes)
{
	if (!p->always && p->limit != SODA_LIMIT_MODEL)
		return soda_budget_buy(&o->s.budget, &p->pool, clock_of(p), bytes);
	soda_budget_buy_anyway(&o->s.budget, &p->pool, clock_of(p), bytes);
	return true;
}

static void pay_back(struct soda_prefetch *p, struct soda_owner *o, uint64_t bytes)
{
	soda_budget_refund(&o->s.budget, &p->pool, clock_of(p), bytes);
	o->s.bytes_fetched -= bytes;
}

/* Decisions. */

/* What is to be read for an entry that the policy wants. */
struct plan {
	struct soda_cache_run runs[SODA_CACHE_RUNS_MAX];
	uint32_t n, bytes;
	uint64_t sectors; /* 64ths that are in the runs */
};

static bool is_view(const struct soda_owner *o)
{
	return o->s.name.view_chunk;
}

/* Whether the client's residency counts: with several clients another one may ask for the entry. */
static bool one_tells(const struct soda_owner *o, const struct soda_recent *item)
{
	return item->residency.chunk_bytes && o->s.regions == 1;
}

/* Of a view only what the store lacks is read. */
static uint32_t bytes_lacking(const struct soda_prefetch *p, const struct soda_owner *o,
			      uint64_t at, const struct plan *plan)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; o->view && i < plan->n; i++)
		bytes += p->ops->lacks(o->view, at + plan->runs[i].at, plan->runs[i].bytes);
	return (uint32_t)bytes;
}

/* False: nothing is left to be fetched. */
static bool make_plan(const struct soda_prefetch *p, const struct soda_owner *o,
		      const struct soda_recent *item, const struct soda_cache_want *want,
		      struct plan *plan)
{
	uint64_t size = soda_cache_entry_bytes(p->cache),
		 left = o->s.name.bytes - want->entry * size, sectors = want->sectors;
	uint32_t part = (uint32_t)(size / 64);

	if (want->once && one_tells(o, item))
		sectors &= ~soda_recent_resident(item, want->entry * size, part);
	if (!sectors)
		return false;
	plan->n = soda_cache_plan(p->cache, (uint32_t)(left < size ? left : size), sectors,
				  plan->runs);
	plan->bytes = 0;
	plan->sectors = 0;
	for (uint32_t i = 0; i < plan->n; i++) {
		uint32_t first = plan->runs[i].at / part;
		uint32_t last = (plan->runs[i].at + plan->runs[i].bytes - 1) / part;

		plan->bytes += plan->runs[i].bytes;
		plan->sectors |= (UINT64_MAX >> (63 - (last - first))) << first;
	}
	if (is_view(o))
		plan->bytes = bytes_lacking(p, o, want->entry * size, plan);
	return plan->bytes;
}

/* A slot for one entry of the tenant, EMPTY; SODA_CACHE_NONE: all are in use, or kept. */
static uint32_t find_slot(struct soda_prefetch *p, struct soda_holder holder)
{
	uint32_t slot;

	while ((slot = soda_cache_reclaim(p->cache)) != SODA_CACHE_NONE) {
		slot_left(p, slot);
		p->free_slots[p->free_n++] = slot;
	}
	if (p->free_n)
		return p->free_slots[--p->free_n];
	p->asking = holder;
	slot = soda_guard_victim(&p->guard);
	if (slot == SODA_CACHE_NONE)
		slot = own_victim(p);
	if (slot == SODA_CACHE_NONE || soda_cache_evict(p->cache, slot))
		return SODA_CACHE_NONE;
	slot_left(p, slot);
	return slot;
}

/* From here on the entry is FILLING: requests wait for it instead of being forwarded. */
static bool fill_slot(struct soda_prefetch *p, struct soda_holder holder,
		      const struct soda_cache_key *key, const struct plan *plan,
		      struct soda_fill *fill)
{
	uint32_t slot = find_slot(p, holder);

	if (slot == SODA_CACHE_NONE)
		return false;
	if (soda_cache_fill_begin(p->cache, slot, key, plan->runs, plan->n, &fill->memory)) {
		p->free_slots[p->free_n++] = slot;
		return false;
	}
	soda_guard_fill(&p->guard, slot, key, plan->sectors);
	slot_taken(p, slot, holder);
	fill->slot = slot;
	return true;
}

static struct soda_fill_server *server_of(struct soda_prefetch *p, uint16_t at)
{
	struct soda_fill_server *end = p->servers + SERVERS, *spare = NULL;

	for (struct soda_fill_server *k = p->servers; k < end; k++)
		if (!k->queued && !k->taken && !k->pause)
			spare = spare ? spare : k;
		else if (k->at == at)
			return k;
	if (!spare)
		return &p->servers[at % SERVERS];
	spare->at = at;
	return spare;
}

static bool is_full(const struct soda_prefetch *p, const struct soda_fill_server *server)
{
	return p->per_server && server->taken >= p->per_server;
}

/* After a change of what waits for the server, or is under way: who is sent on (dynamic_cache.h).
 */
static void show_line(struct soda_prefetch *p, struct soda_fill_server *server)
{
	uint32_t first = SODA_CACHE_NONE;

	for (uint32_t i = 0; i < p->queue_n && first == SODA_CACHE_NONE; i++) {
		const struct soda_fill *fill = queued(p, i);

		if (fill->server == server && !fill->cancelled)
			first = fill->slot;
	}
	/* relaxed: who sees it late waits, or is sent on, as a moment before */
	if (first != SODA_CACHE_NONE)
		atomic_store_explicit(&server->line.first, first, memory_order_relaxed);
	atomic_store_explicit(&server->line.stands, first != SODA_CACHE_NONE && is_full(p, server),
			      memory_order_relaxed);
}

/* What is read for a view has its place in the store when it is read. */
static bool begin(struct soda_prefetch *p, struct soda_owner *o, struct soda_fill_server *server,
		  const struct soda_cache_key *key, const struct plan *plan)
{
	struct soda_fill *fill = p->fills;

	while (fill->busy)
		fill++;
	fill->memory = NULL;
	fill->slot = SODA_CACHE_NONE;
	fill->read = 0;
	if (!is_view(o) && !fill_slot(p, o->s.name.holder, key, plan, fill))
		return false;
	fill->offset = key->entry * soda_cache_entry_bytes(p->cache);
	fill->bytes = plan->bytes;
	fill->runs_n = plan->n;
	memcpy(fill->runs, plan->runs, sizeof(fill->runs));
	fill->owner = key->owner;
	fill->owner_serial = o->serial;
	fill->server = server;
	server->queued++;
	fill->busy = true;
	fill->cancelled = false;
	p->queue[(p->queue_head + p->queue_n++) % SODA_FILLS_MAX] = fill;
	p->begun++;
	if (fill->slot != SODA_CACHE_NONE)
		soda_cache_fill_queue(p->cache, fill->slot, &server->line);
	show_line(p, server);
	return true;
}

/* Whether the entry is in the cache, or on its way; of a view only the latter is asked. */
static bool has_entry(const struct soda_prefetch *p, const struct soda_owner *o,
		      const struct soda_cache_key *key)
{
	uint64_t at = key->entry * soda_cache_entry_bytes(p->cache);

	if (!is_view(o))
		return soda_cache_find(p->cache, key) != SODA_CACHE_NONE;
	for (const struct soda_fill *fill = p->fills; fill < p->fills + SODA_FILLS_MAX; fill++)
		if (fill->busy && fill->owner == o->id && fill->offset == at)
			return true;
	return false;
}

/*
 * How many fetches of the server may wait for a worker: where others have some, too, its part of
 * half of the slots, less those under way.
 */
static uint32_t most_queued(const struct soda_prefetch *p, const struct soda_fill_server *server)
{
	uint32_t servers = 1, part;

	for (const struct soda_fill_server *k = p->servers; k < p->servers + SERVERS; k++)
		servers += k != server && k->queued + k->taken;
	if (servers == 1)
		return SODA_FILLS_QUEUED;
	part = soda_cache_slots(p->cache) / 2 / servers;
	part = part > p->per_server ? part - p->per_server : 1;
	return part < SODA_FILLS_QUEUED ? part : SODA_FILLS_QUEUED;
}

/*
 * No slot is left for an entry of the server.  The newest of those that wait for a server which has
 * its number under way, and more that wait than this one has in all, ends without: a server that is
 * silent keeps the slots of its number, and leaves the others'.
 */
static void make_room(struct soda_prefetch *p, const struct soda_fill_server *server)
{
	uint32_t most = server->queued + server->taken;
	struct soda_fill *victim = NULL;

	for (uint32_t i = 0; i < p->queue_n; i++) {
		struct soda_fill *fill = queued(p, i);
		uint32_t n = fill->server->queued;

		if (fill->cancelled || fill->slot == SODA_CACHE_NONE || n < most ||
		    (n == most && !victim) || !is_full(p, fill->server))
			continue;
		victim = fill;
		most = n;
	}
	if (!victim)
		return;
	victim->cancelled = true;
	soda_workers_ring(&p->workers);
}

/* Begin a fetch; how many bytes it reads, 0: the entry is there already, or there is no slot. */
static uint64_t want(struct soda_prefetch *p, struct soda_owner *o, struct soda_fill_server *server,
		     const struct soda_recent *item, const struct soda_cache_want *want)
{
	struct soda_cache_key key = { .owner = o->id, .entry = want->entry };
	struct plan plan;

	if (server->pause || has_entry(p, o, &key) || !soda_guard_admit(&p->guard, &key) ||
	    !make_plan(p, o, item, want, &plan))
		return 0;
	if (p->stopping || server->queued >= most_queued(p, server) ||
	    p->queue_n + p->underway == SODA_FILLS_MAX) {
		p->unwanted++;
		return 0;
	}
	if (!buy(p, o, plan.bytes)) {
		p->unpaid++;
		return 0;
	}
	o->s.bytes_fetched += plan.bytes;
	if (!begin(p, o, server, &key, &plan)) {
		pay_back(p, o, plan.bytes);
		make_room(p, server);
		p->unwanted++;
		return 0;
	}
	return plan.bytes;
}

/* The same while caching is off: the entry goes into the owner's ghost. */
static uint64_t imagine(struct soda_prefetch *p, const struct soda_owner *o,
			const struct soda_recent *item, const struct soda_cache_want *want)
{
	struct soda_cache_key key = { .owner = o->id, .entry = want->entry };
	struct plan plan;

	if (!o->ghost || soda_ghost_has(o->ghost, want->entry) ||
	    !soda_guard_admit(&p->guard, &key) || !make_plan(p, o, item, want, &plan))
		return 0;
	soda_ghost_insert(o->ghost, want->entry);
	return plan.bytes;
}

/* Within the bytes that all ghosts may take; without ghosts an owner stays off. */
static void need_ghost(struct soda_prefetch *p, struct soda_owner *o)
{
	uint32_t slots = soda_cache_slots(p->cache);
	size_t bytes = soda_ghost_bytes(slots, o->entries);

	if (o->ghost || p->ghost_bytes + bytes > p->ghost_bytes_max)
		return;
	o->ghost = soda_ghost_create(slots, o->entries, p->guard.setup.seed + o->id);
	if (o->ghost)
		p->ghost_bytes += bytes;
}

/*
 * soda_model_note() of a view.  The store says what was needed, and what was given of what was read
 * ahead; requests for what is there for another program's sake are neither.
 */
static bool tell_model_of_view(struct soda_prefetch *p, struct soda_owner *o,
			       const struct soda_budget_news *news, uint64_t ghost_hit,
			       uint64_t fetched, bool real)
{
	uint64_t hit = real ? news->given : ghost_hit;

	o->untold += fetched;
	if (!news->asked)
		return false;
	fetched = o->untold;
	o->untold = 0;
	return soda_model_note(&o->s.model, &p->rates, news->asked,
			       hit < news->asked ? hit : news->asked, fetched);
}

static void note_request(struct soda_prefetch *p, struct soda_owner *o,
			 const struct soda_recent *item, struct soda_cache_touch *touch)
{
	struct soda_cache_want wants[SODA_CACHE_PREDICT_MAX];
	struct soda_budget_news news = settle(p, o);
	struct soda_fill_server *server = server_of(p, o->s.name.at);
	uint64_t hit = 0, fetched = 0;
	bool real = fetches(p, o), turned;
	uint32_t n;

	if (!real)
		need_ghost(p, o);
	if (touch->slot != SODA_CACHE_NONE)
		soda_guard_hit(&p->guard, touch);
	n = soda_guard_predict(&p->guard, touch, wants);
	if (real ? item->answer != SODA_CACHE_MISS
		 : o->ghost && soda_ghost_has(o->ghost, touch->key.entry))
		hit = item->bytes;
	for (uint32_t i = 0; i < n; i++)
		fetched +=
			real ? want(p, o, server, item, &wants[i]) : imagine(p, o, item, &wants[i]);
	if (server->pause)
		server->pause--;
	o->s.requests++;
	o->s.hits += item->answer == SODA_CACHE_HIT;
	o->s.late_hits += item->answer == SODA_CACHE_LATE;
	turned = is_view(o) ? tell_model_of_view(p, o, &news, hit, fetched, real)
			    : soda_model_note(&o->s.model, &p->rates, item->bytes, hit, fetched);
	if (!turned)
		return;
	p->switched_on += o->s.model.on;
	p->switched_off += !o->s.model.on;
	switched(p, o, real);
}

/* Requests of an owner that is gone, or of another that has its id now, are no harm: but what
 * policies see is within the owner. */
static void take_request(struct soda_prefetch *p, struct soda_owner *o,
			 const struct soda_recent *item)
{
	uint32_t size = soda_cache_entry_bytes(p->cache);
	struct soda_cache_touch touch = {
		.key = { .owner = item->owner, .entry = item->offset / size },
		.offset = (uint32_t)(item->offset % size),
		.bytes = item->bytes,
		.slot = item->slot,
	};

	if (item->offset >= o->s.name.bytes || item->bytes > o->s.name.bytes - item->offset ||
	    item->bytes > size - touch.offset)
		return;
	touch.entries = o->entries;
	touch.told = one_tells(o, item);
	if (touch.told)
		touch.has = soda_recent_resident(item, touch.key.entry * size, size / 64);
	note_request(p, o, item, &touch);
}

/*
 * What programs have touched of what was brought ahead: they did not ask for that, and to the
 * policy it is a part of the sequence all the same, before what they ask for now.
 */
static void take_touched(struct soda_prefetch *p, struct soda_owner *o)
{
	uint32_t bytes = o->s.name.view_chunk;
	uint64_t offsets[TOUCHED];
	uint32_t n = p->ops->touched(o->view, offsets, TOUCHED);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t left = o->s.name.bytes - offsets[i];
		struct soda_recent item = { .offset = offsets[i],
					    .bytes = left < bytes ? (uint32_t)left : bytes,
					    .owner = o->id,
					    .slot = SODA_CACHE_NONE,
					    .answer = SODA_CACHE_HIT };

		take_request(p, o, &item);
	}
}

static void take_in(struct soda_prefetch *p, const struct soda_recent *item)
{
	struct soda_owner *o = soda_owner_get(&p->owners, item->owner);

	if (o && o->view)
		take_touched(p, o);
	if (o)
		take_request(p, o, item);
}

void soda_prefetch_step(struct soda_prefetch *p)
{
	struct soda_recent items[BATCH];
	uint32_t n;

	do {
		soda_lock_acquire(&p->lock);
		n = soda_recent_take(&p->recent, items, BATCH);
		soda_recent_refresh(items, n);
		for (uint32_t i = 0; i < n; i++)
			take_in(p, &items[i]);
		soda_lock_release(&p->lock);
	} while (n == BATCH);
}

/* Fetches. */

/* Whether the fill's server may have one more under way, or the fill is to end without. */
static bool may_take(const struct soda_prefetch *p, const struct soda_fill *fill)
{
	return p->stopping || fill->cancelled || !is_full(p, fill->server);
}

/* Take the i-th out of the queue. */
static struct soda_fill *unqueue(struct soda_prefetch *p, uint32_t i)
{
	struct soda_fill *fill = queued(p, i);

	for (; i; i--)
		p->queue[(p->queue_head + i) % SODA_FILLS_MAX] = queued(p, i - 1);
	p->queue_head = (p->queue_head + 1) % SODA_FILLS_MAX;
	p->queue_n--;
	return fill;
}

/* Sectors that requests have hidden since the fill was queued are not read, and are paid back. */
static void start(struct soda_prefetch *p, struct soda_fill *fill)
{
	struct soda_owner *o = soda_owner_get(&p->owners, fill->owner);
	uint32_t bytes = 0;

	fill->runs_n = soda_cache_fill_start(p->cache, fill->slot, fill->runs, fill->runs_n);
	for (uint32_t i = 0; i < fill->runs_n; i++)
		bytes += fill->runs[i].bytes;
	if (o && o->serial == fill->owner_serial && bytes < fill->bytes)
		pay_back(p, o, fill->bytes - bytes);
	fill->bytes = bytes;
	fill->cancelled = !bytes;
}

/* The first of the queue whose server has not its number under way. */
static struct soda_fill *take(struct soda_prefetch *p)
{
	struct soda_fill *fill = NULL;
	uint32_t i = 0;

	soda_lock_acquire(&p->lock);
	while (i < p->queue_n && !may_take(p, queued(p, i)))
		i++;
	if (i < p->queue_n) {
		fill = unqueue(p, i);
		fill->server->queued--;
		fill->server->taken++;
		if (fill->slot != SODA_CACHE_NONE && !fill->cancelled)
			start(p, fill);
		show_line(p, fill->server);
		p->underway++;
	}
	soda_lock_release(&p->lock);
	return fill;
}

struct soda_fill *soda_prefetch_take(struct soda_prefetch *p)
{
	struct soda_fill *fill;

	/* Fetches that were cancelled in the queue end here. */
	while ((fill = take(p)) && fill->cancelled)
		soda_prefetch_filled(p, fill, -ECANCELED);
	return fill;
}

bool soda_prefetch_wanted(struct soda_prefetch *p, const struct soda_fill *fill)
{
	const struct soda_owner *o;
	bool wanted;

	soda_lock_acquire(&p->lock);
	o = soda_owner_get(&p->owners, fill->owner);
	wanted = o && o->serial == fill->owner_serial;
	soda_lock_release(&p->lock);
	return wanted;
}

/*
 * What was paid and has not travelled.  A view's part that others have brought meanwhile is not
 * read; what fails on its way may have travelled.
 */
static uint64_t unread(const struct soda_fill *fill, int status)
{
	if (status == -ECANCELED)
		return fill->bytes;
	if (fill->memory && !status)
		return 0;
	return fill->read < fill->bytes ? fill->bytes - fill->read : 0;
}

void soda_prefetch_filled(struct soda_prefetch *p, struct soda_fill *fill, int status)
{
	struct soda_owner *o;

	if (fill->slot != SODA_CACHE_NONE)
		soda_cache_fill_end(p->cache, fill->slot, status);
	soda_lock_acquire(&p->lock);
	o = soda_owner_get(&p->owners, fill->owner);
	if (o && o->serial == fill->owner_serial && unread(fill, status))
		pay_back(p, o, unread(fill, status));
	if (status && !fill->cancelled)
		fill->server->pause = PAUSE;
	fill->busy = false;
	fill->server->taken--;
	show_line(p, fill->server);
	p->underway--;
	atomic_fetch_add_explicit(&p->ended, 1, memory_order_relaxed);
	soda_lock_release(&p->lock);
	soda_futex_wake(&p->ended, INT32_MAX);
}

/* Whether no fetch waits for a worker. */
static bool idle(struct soda_prefetch *p)
{
	bool idle;

	soda_lock_acquire(&p->lock);
	idle = !p->queue_n;
	soda_lock_release(&p->lock);
	return idle;
}

/* A worker's turn: it decides, and fetches what may be fetched. */
static bool turn(void *arg)
{
	struct soda_prefetch *p = arg;
	struct soda_fill *fill;

	soda_prefetch_step(p);
	fill = soda_prefetch_take(p);
	if (!fill)
		return false;
	/* A fill that blocks should not be alone, where more is wanted. */
	if (!idle(p))
		soda_workers_ring(&p->workers);
	soda_workers_block(&p->workers);
	p->ops->fill(p->arg, fill);
	soda_workers_unblock(&p->workers);
	return true;
}

int soda_prefetch_start(struct soda_prefetch *p, unsigned least, unsigned most)
{
	p->workers.name = "soda-prefetch";
	p->workers.turn = turn;
	p->workers.arg = p;
	p->workers.least = least;
	p->workers.most = most;
	return soda_workers_start(&p->workers);
}

/* End the fetches in the queue, which no worker will take, and tell their waiters. */
static void end_queue(struct soda_prefetch *p)
{
	struct soda_fill *fill;

	while ((fill = soda_prefetch_take(p)))
		soda_prefetch_filled(p, fill, -ECANCELED);
}

void soda_prefetch_stop(struct soda_prefetch *p)
{
	struct soda_wait wait;

	soda_lock_acquire(&p->lock);
	p->stopping = true;
	soda_lock_release(&p->lock);
	soda_workers_stop(&p->workers);
	end_queue(p);
	soda_wait_begin(&wait, "what is fetched ahead to come back");
	for (;;) {
		uint32_t seen = atomic_load_explicit(&p->ended, memory_order_relaxed), underway;

		soda_lock_acquire(&p->lock);
		underway = p->underway;
		soda_lock_release(&p->lock);
		if (!underway)
			break;
		soda_wait_futex(&wait, &p->ended, seen);
	}
	soda_wait_end(&wait);
}

/* Owners come and go, and what is seen of all of it from outside. */

/* Under the lock, so that no fetch of this owner begins after this. */
static void remove_locked(struct soda_prefetch *p, struct soda_owner *o)
{
	unwant_locked(p, o->id);
	soda_cache_forget(p->cache, o->id);
	drop_ghost(p, o);
	settle(p, o);
	soda_budget_leave(&o->s.budget, &p->pool);
	soda_owner_remove(&p->owners, o);
}

/* The first region of the owner is a tenant's, whose its entries are from now on. */
static void take_side(struct soda_prefetch *p, struct soda_owner *o, struct soda_holder holder)
{
	if (soda_shares_take(&p->open, holder.number, 1)) {
		holder = (struct soda_holder){ 0 };
		soda_shares_take(&p->open, 0, 1);
	}
	o->s.name.holder = holder;
}

static int open_locked(struct soda_prefetch *p, const struct soda_owner_name *name,
		       uint64_t entries, struct soda_owner **o_p)
{
	struct soda_owner *o = name->file ? soda_owner_find(&p->owners, name) : NULL;
	int ret = 0;

	if (!o) {
		ret = soda_owner_add(&p->owners, name, entries, &o);
		if (ret == -ENOSPC) {
			o = soda_owner_lingering(&p->owners);
			if (!o)
				return -ENOSPC;
			remove_locked(p, o);
			ret = soda_owner_add(&p->owners, name, entries, &o);
		}
	}
	if (ret)
		return ret;
	if (!o->s.regions++)
		take_side(p, o, name->holder);
	show_mode(p, o);
	*o_p = o;
	return 0;
}

static int open_owner(struct soda_prefetch *p, const struct soda_owner_name *name, void *view,
		      uint32_t *owner_p)
{
	uint64_t size = soda_cache_entry_bytes(p->cache);
	struct soda_owner *o = NULL;
	int ret;

	if (!name->bytes || name->bytes > INT64_MAX)
		return -EINVAL;
	soda_lock_acquire(&p->lock);
	ret = open_locked(p, name, (name->bytes + size - 1) / size, &o);
	if (!ret) {
		*owner_p = o->id;
		o->view = view;
	}
	soda_lock_release(&p->lock);
	return ret;
}

int soda_prefetch_open(struct soda_prefetch *p, const struct soda_owner_name *name,
		       uint32_t *owner_p)
{
	return open_owner(p, name, NULL, owner_p);
}

int soda_prefetch_open_view(struct soda_prefetch *p, const struct soda_owner_name *name, void *view,
			    uint32_t *owner_p)
{
	return open_owner(p, name, view, owner_p);
}

void soda_prefetch_close(struct soda_prefetch *p, uint32_t owner, bool gone)
{
	struct soda_owner *o;

	soda_lock_acquire(&p->lock);
	o = soda_owner_get(&p->owners, owner);
	if (o && --o->s.regions == 0) {
		o->closed = ++p->owners.closings;
		soda_shares_put(&p->open, o->s.name.holder.number, 1);
		unwant_locked(p, owner);
		if (o->view)
			settle(p, o);
		o->view = NULL;
		if (!o->s.name.file || gone)
			remove_locked(p, o);
	}
	soda_lock_release(&p->lock);
}

void soda_prefetch_advise(struct soda_prefetch *p, uint32_t owner, enum soda_owner_advice advice)
{
	struct soda_owner *o;

	soda_lock_acquire(&p->lock);
	o = soda_owner_get(&p->owners, owner);
	if (o) {
		o->s.advice = advice;
		show_mode(p, o);
		if (advice == SODA_OWNER_UNCACHED) {
			unwant_locked(p, owner);
			soda_cache_forget(p->cache, owner);
		}
	}
	soda_lock_release(&p->lock);
}

void soda_prefetch_stats(struct soda_prefetch *p, struct soda_prefetch_stats *stats_p)
{
	struct soda_prefetch_stats s = { .net_bytes_per_s = soda_rate_get(&p->rates.net),
					 .intra_bytes_per_s = soda_rate_get(&p->rates.intra),
					 .ratio = soda_model_ratio(&p->rates) };

	soda_cache_count(p->cache, &s.cache);
	soda_lock_acquire(&p->recent.lock);
	s.recent_lost = p->recent.lost;
	soda_lock_release(&p->recent.lock);
	soda_lock_acquire(&p->lock);
	s.policy = p->guard.policy->name;
	s.nonsense = p->guard.nonsense;
	s.policy_replaced = p->guard.replaced;
	s.wanted = p->begun;
	s.unwanted = p->unwanted;
	s.unpaid = p->unpaid;
	s.limit = p->limit;
	s.always = p->always;
	s.bytes_ruled = p->bytes_ruled;
	soda_budget_ruled_given(&p->pool, taken_out(&p->ruled_given));
	soda_budget_window_look(&p->pool.window, clock_of(p));
	s.pool = p->pool;
	s.switched_on = p->switched_on;
	s.switched_off = p->switched_off;
	for (uint32_t id = 0; id < p->owners.used; id++) {
		const struct soda_owner *o = soda_owner_get(&p->owners, id);

		s.owners += o != NULL;
		s.owners_on += o && fetches(p, o);
		s.owners_ended += o && o->s.budget.ended;
	}
	soda_lock_release(&p->lock);
	*stats_p = s;
}

void soda_prefetch_each(struct soda_prefetch *p,
			void (*fn)(void *arg, const struct soda_owner_stats *owner), void *arg)
{
	for (uint32_t id = 0;; id++) {
		struct soda_owner_stats copy;
		struct soda_owner *o;
		bool end;

		soda_lock_acquire(&p->lock);
		end = id >= p->owners.used;
		o = soda_owner_get(&p->owners, id);
		if (o) {
			settle(p, o);
			copy = o->s;
			copy.on = fetches(p, o);
			copy.budget_left = soda_budget_left(&o->s.budget, &p->pool);
			copy.ghosts = o->ghost ? soda_ghost_count(o->ghost) : 0;
		}
		soda_lock_release(&p->lock);
		if (end)
			return;
		if (o)
			fn(arg, &copy);
	}
}
