/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The caches as sessions use them: a READ is looked up in the static cache, then in the
 * dynamic one, before it is forwarded; fetches of the dynamic cache and loads of the
 * static one travel on channels of the session whose region they are for.
 *
 *   READ ARRIVED -> static: answered from its memory, or
 *                -> dynamic: HIT answered from the entry; LATE answered when the entry
 *                   has been filled, or forwarded when that fails; MISS forwarded
 *   WRITE        -> soda_caches_written when it is accepted and when it is on the server
 *
 * Locks: caches.lock after all of the session's; see also dynamic_cache.h.
 */
#ifndef SODA_DPU_AGENT_CACHE_H
#define SODA_DPU_AGENT_CACHE_H

#include "daemon/metrics.h"
#include "dpu_agent/cache/dynamic/prefetch.h"
#include "dpu_agent/cache/policy/plugin.h"
#include "dpu_agent/cache/static_cache.h"
#include "transport/api/service.h"

struct soda_dpu_options;
struct soda_session;
struct soda_paging_region;
struct soda_task;
struct soda_slot_hold;

enum { SODA_PREFETCH_WORKERS = 2 }; /* and channels of each session for them */

/* What a region has of the caches; part of struct soda_paging_region. */
struct soda_region_cache {
	struct soda_owner_name name;
	uint32_t owner;		    /* where owned */
	bool owned;		    /* the owner is its own until nothing holds the region */
	bool open;		    /* at the dynamic cache; set before requests find the region */
	_Atomic bool off;	    /* NO_CACHE */
	struct soda_static_set set; /* in the static cache */
	/* regions of the same owner; guarded by caches.lock */
	struct soda_session *session;
	struct soda_paging_region *next;
};

struct soda_caches {
	const struct soda_dpu_options *opt;
	struct soda_plugin plugin;
	struct soda_prefetch *dynamic; /* NULL: off */
	struct soda_static *statics;   /* NULL: off */
	struct soda_slot_hold *holds;  /* of each slot of the dynamic cache */
	_Atomic uint32_t turn;
	pthread_mutex_t lock;
	struct soda_paging_region **regions; /* by owner; guarded by lock */
	uint32_t owners;		     /* of that table; likewise */
};

/* Those that the options want.  0; -EINVAL: of the policy, or sizes; -ENOMEM; logged. */
int soda_caches_start(struct soda_caches *c, const struct soda_dpu_options *opt);
/* No fetch begins any more, those under way have ended. Sessions go on without. */
void soda_caches_stop(struct soda_caches *c);
/* No session is left. */
void soda_caches_destroy(struct soda_caches *c);

/* Whether sessions need channels for the caches. */
bool soda_caches_fetch(const struct soda_caches *c);

/* The session has a region more; before requests find it. */
void soda_caches_open(struct soda_session *s, struct soda_paging_region *r);
/* Before it is waited for that nothing holds the region: no fetch for it begins any more. */
void soda_caches_close(struct soda_session *s, struct soda_paging_region *r);
/*
 * After that, when nothing holds the region: a request that was about to look into the cache would
 * have found another client's entries there, had the owner's id been given out again.
 */
void soda_caches_free(struct soda_session *s, struct soda_paging_region *r);

/*
 * A checked READ.  HIT: *span_p is the answer, with its hold.  LATE: the task is
 * the cache's until it is answered, or forwarded (soda_forward_late).  MISS.
 */
enum soda_cache_answer soda_caches_read(struct soda_task *task, struct soda_span *span_p);
/* See "Coherence" in dynamic_cache.h. Any locks may be held. */
void soda_caches_written(struct soda_paging_region *r, uint64_t offset, uint64_t bytes);
/* Whether a WRITE is refused. */
bool soda_caches_frozen(const struct soda_paging_region *r, uint64_t offset, uint64_t bytes);
/* A READ was answered by the server after so long. */
void soda_caches_fetched(struct soda_caches *c, uint32_t bytes, uint64_t ns);

/*
 * SODA_MSG_ADVISE, for a region that is held and has no unwritten data.  shares: the reply may
 * carry memory.  -ENOTSUP: that cache is off; -EINVAL; errors of soda_static_add and remove.
 */
int soda_caches_advise(struct soda_session *s, struct soda_paging_region *r,
		       const struct soda_wire_advise *advise, bool shares,
		       struct soda_reply *reply);
/* Advice that the rules have for an object of this name (not terminated), or SODA_WIRE_NORMAL. */
uint8_t soda_caches_rule(struct soda_caches *c, const char *name, size_t bytes);

/* Part of soda_dpu_walk: the caches, and the list of what is cached for whom. */
void soda_caches_walk(struct soda_caches *c, struct soda_metrics *m);

#endif
