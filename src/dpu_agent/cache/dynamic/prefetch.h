/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dynamic cache as the agent uses it: reads are looked up and noted in the
 * recent list; prefetch workers take the list, ask the policy which entries to
 * have, and fetch those; the adaptive switch says for each owner whether they fetch at all, by the
 * model of the bandwidths (model.h), by the budget of bytes (budget.h), or by both.
 *
 *   soda_prefetch_read  -> lookup; recent list; a worker is woken where it matters
 *   worker              -> step: hit, predict, ghosts, model, budget; take: a slot for an entry
 *                          that is wanted and paid; ops->fill: the agent posts a READ, and says
 *                          soda_prefetch_filled when it is answered
 *
 * Half of the cache's slots is kept, in equal parts, for the tenants that have something open
 * (base/shares.h): an entry of a tenant that has no more than its part makes room for that tenant's
 * entries alone.  Anybody takes slots that are free.
 *
 * An owner is what entries belong to: a READ_ONLY file by (file id, generation), which
 * all its clients share, else a client's region.  Files stay when their last
 * region closes, for the next process, until their place in the table is needed.
 *
 * A *view* is the owner of an object of the node's store: the dynamic cache is that object, for the
 * programs that share it.  The policy, the model and the budget decide for it as for any owner, by
 * the requests of all those programs; but an entry has no slot and no memory here, what it lacks is
 * brought into the store, and the store says what programs have touched of that:
 *
 *   soda_prefetch_note  -> recent list; a worker is woken where it matters
 *   worker              -> step: ops->touched, news, predict, lacks, budget; take; ops->fill
 *
 * Threads: read, written, net and intra from any thread, without waiting for a
 * decision; open and close take the lock of the policy for a moment.
 */
#ifndef SODA_DPU_PREFETCH_H
#define SODA_DPU_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/shares.h"
#include "dpu_agent/cache/dynamic/budget.h"
#include "dpu_agent/cache/dynamic/dynamic_cache.h"
#include "dpu_agent/cache/dynamic/model.h"
#include "dpu_agent/cache/dynamic/recent_list.h"
#include "soda_cache_policy.h"

struct soda_prefetch;
struct soda_fill_server;

/* Two a server of a pool, and two that decide while all of those wait. */
enum { SODA_PREFETCH_WORKERS_MAX = 2 * SODA_MEMBERS_MAX + 2 };

/* Most fetches that wait for a worker, of each server; and most in all. */
enum { SODA_FILLS_QUEUED = 8, SODA_FILLS_MAX = 160 };

/* One entry to be fetched. */
struct soda_fill {
	uint8_t *memory;				 /* of the entry; NULL: of a view */
	uint64_t offset;				 /* of the entry in the owner */
	struct soda_cache_run runs[SODA_CACHE_RUNS_MAX]; /* what is to be read of it */
	uint32_t runs_n, bytes;				 /* in all */
	uint64_t read; /* bytes that the server may have sent; set before soda_prefetch_filled */
	uint32_t owner, slot;
	uint64_t owner_serial;
	/* prefetch.c's; under its lock until it is taken */
	struct soda_fill_server *server;
	bool busy, cancelled;
};

struct soda_prefetch_ops {
	/*
	 * READ the runs of the owner, each to its place in fill->memory.  Ends, now or later and
	 * from any thread, with soda_prefetch_filled, also when the owner is closed.
	 * May block: then each worker has one fill under way.
	 */
	void (*fill)(void *arg, struct soda_fill *fill);
	/*
	 * Of views; `view` is soda_prefetch_open_view's.  With the policy's lock held: no wait, no
	 * lock but leaves.  lacks: bytes of the range that are not there and not on their way.
	 * touched: where of what was brought ahead programs have first touched something since:
	 * up to max offsets.  news: what has happened since the last call, with that.
	 */
	uint64_t (*lacks)(void *view, uint64_t offset, uint64_t bytes);
	uint32_t (*touched)(void *view, uint64_t *offsets, uint32_t max);
	void (*news)(void *view, struct soda_budget_news *news_p);
	uint64_t (*now_ns)(void *arg); /* the budget's clock; NULL: soda_now_ns */
};

/* What must agree before anything is fetched for an owner. */
enum soda_prefetch_limit { SODA_LIMIT_BOTH, SODA_LIMIT_BUDGET, SODA_LIMIT_MODEL };

struct soda_prefetch_options {
	uint64_t cache_bytes;
	uint32_t entry_bytes;
	uint32_t max_owners;			/* 0: 16384 */
	const struct soda_cache_policy *policy; /* NULL: stream; outlives the prefetcher */
	uint64_t seed;				/* 0: 1 */
	enum soda_prefetch_limit limit;
	bool always; /* no adaptive switch, no limit: caching is on for all */
	/*
	 * So many fetches of one server are under way at a time, 0: any number.  A server that does
	 * not answer keeps so many workers and slots, and those of others are started and found.
	 */
	unsigned per_server;
};

struct soda_owner_name {
	bool file;	      /* a READ_ONLY file: shared */
	uint64_t id[2];	      /* (file id, generation), or (client id, region id) */
	uint16_t server;      /* of a file: the tag of the pool's member that has it */
	uint16_t at;	      /* the same of every owner; no part of what it is */
	uint64_t bytes;	      /* whole pages; parts of different length are different owners */
	uint32_t view_chunk;  /* of a view: the size of its chunks; 0: it is none */
	uint32_t view_user;   /* each user has a view of its own of a file, */
	uint32_t view_tenant; /* as each tenant that it is */
	/* in whose share of the cache its entries count; no part of what it is */
	struct soda_holder holder;
};

enum soda_owner_advice {
	SODA_OWNER_ADAPTIVE, /* the switch decides */
	SODA_OWNER_CACHED,   /* on, whatever the model says; the budget counts */
	SODA_OWNER_UNCACHED, /* never */
};

/* What the switch of one owner sees. */
struct soda_owner_stats {
	struct soda_owner_name name;
	enum soda_owner_advice advice;
	uint32_t regions;		    /* open now */
	uint64_t requests, hits, late_hits; /* since it was opened */
	uint64_t bytes_asked, bytes_hit, bytes_fetched;
	uint32_t ghosts;
	bool on; /* something is fetched for it now */
	struct soda_model model;
	struct soda_budget budget;
	uint64_t budget_left; /* bytes that it could buy now */
};

struct soda_prefetch_stats {
	struct soda_cache_counts cache;
	const char *policy;
	uint64_t nonsense; /* refused answers of the policy */
	bool policy_replaced;
	uint64_t recent_lost;	   /* requests that no policy saw */
	uint64_t wanted, unwanted; /* fetches begun; fetches not begun: too many, or no slot free */
	uint64_t net_bytes_per_s, intra_bytes_per_s;
	double ratio; /* R, or negative */
	enum soda_prefetch_limit limit;
	bool always;
	uint64_t unpaid; /* fetches not begun because the budget did not allow them */
	struct soda_budget_pool pool;
	uint64_t bytes_ruled; /* loaded into the static cache by rules */
	uint32_t owners, owners_on, owners_ended;
	uint64_t switched_on, switched_off;
};

/* No worker runs yet. 0, -EINVAL, -ENOMEM. */
int soda_prefetch_create(const struct soda_prefetch_options *opt,
			 const struct soda_prefetch_ops *ops, void *arg,
			 struct soda_prefetch **p_p);
/*
 * Start the least number of workers; more come, up to the most, while all of them wait for servers,
 * and end when they are not needed (workers.h).  0 or -EAGAIN.
 */
int soda_prefetch_start(struct soda_prefetch *p, unsigned least, unsigned most);
/* Begin no fetch, await those under way and the workers. A second call is a no-op. */
void soda_prefetch_stop(struct soda_prefetch *p);
/* After stop; no region is open, no reference left. NULL is a no-op. */
void soda_prefetch_destroy(struct soda_prefetch *p);
struct soda_cache *soda_prefetch_cache(struct soda_prefetch *p);

/* A region opens. *owner_p is the region's until close. -ENOSPC: too many owners; -ENOMEM; -EINVAL.
 */
int soda_prefetch_open(struct soda_prefetch *p, const struct soda_owner_name *name,
		       uint32_t *owner_p);
/*
 * The same of a view.  `view` is what ops are called with until the owner's
 * last region closes; all that open it meanwhile have the same one.
 */
int soda_prefetch_open_view(struct soda_prefetch *p, const struct soda_owner_name *name, void *view,
			    uint32_t *owner_p);
/* A region closes.  With the last close of an owner that is no file, and with `gone`, the owner's
 * entries are forgotten. */
void soda_prefetch_close(struct soda_prefetch *p, uint32_t owner, bool gone);
void soda_prefetch_advise(struct soda_prefetch *p, uint32_t owner, enum soda_owner_advice advice);

/* soda_cache_acquire, and the request is noted, with what the client has (NULL: not told). */
enum soda_cache_answer soda_prefetch_read(struct soda_prefetch *p, uint32_t owner, uint64_t offset,
					  uint32_t bytes,
					  const struct soda_recent_residency *residency,
					  struct soda_cache_waiter *waiter,
					  struct soda_cache_ref *ref_p);

/*
 * A program has asked for a part of a view: HIT: it was there; LATE: it is on its way; MISS: this
 * request brings it.
 */
void soda_prefetch_note(struct soda_prefetch *p, uint32_t owner, uint64_t offset, uint32_t bytes,
			enum soda_cache_answer answer);

/* The two bandwidths of the model: one request's bytes and how long they took. */
void soda_prefetch_net(struct soda_prefetch *p, uint64_t bytes, uint64_t ns);
void soda_prefetch_intra(struct soda_prefetch *p, uint64_t bytes, uint64_t ns);

/*
 * Of the static cache: so much was loaded for a rule, which no program asked for; so much of what
 * rules loaded was given to programs.
 */
void soda_prefetch_ruled(struct soda_prefetch *p, uint64_t bytes);
void soda_prefetch_ruled_given(struct soda_prefetch *p, uint64_t bytes);

/* The workers' parts; they also run without threads, in tests. */

/* Take the recent list in. */
void soda_prefetch_step(struct soda_prefetch *p);
/* The next fetch to do: the caller passes it to ops->fill. NULL: none is wanted now. */
struct soda_fill *soda_prefetch_take(struct soda_prefetch *p);
/*
 * Whether the fill's owner is there still, and not another one that has its id since: asked by who
 * holds a region of that id, so that it stays so.
 */
bool soda_prefetch_wanted(struct soda_prefetch *p, const struct soda_fill *fill);
/*
 * The fetch has ended; status as in soda_cache_fill_end.  -ECANCELED: nothing was asked of the
 * server.  What was paid for bytes that the server has not sent is paid back: all of them then, and
 * of a view, or where the fetch has failed, those that fill->read does not count.
 */
void soda_prefetch_filled(struct soda_prefetch *p, struct soda_fill *fill, int status);

void soda_prefetch_stats(struct soda_prefetch *p, struct soda_prefetch_stats *stats_p);
/* fn for each owner, with a copy of its state. */
void soda_prefetch_each(struct soda_prefetch *p,
			void (*fn)(void *arg, const struct soda_owner_stats *owner), void *arg);

#endif
