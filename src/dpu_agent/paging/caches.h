/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How paging uses the static and the dynamic cache.  A READ is looked up in the static cache, then
 * in the dynamic one, before it is forwarded.  Fetches of the dynamic cache and loads of the static
 * one travel on channels of a session that has the region.
 *
 *   READ   -> static:  answered out of its memory, or
 *          -> dynamic: HIT: answered out of the entry; LATE: answered when the entry has been
 *             filled, or forwarded if that fails; MISS: forwarded
 *   WRITE  -> soda_caches_written when it is accepted and when it is on the server
 *
 * Locks: session->lock may be taken while caches.lock is held, not the other way round.
 */
#ifndef SODA_DPU_AGENT_CACHE_H
#define SODA_DPU_AGENT_CACHE_H

#include "daemon/metrics.h"
#include "dpu_agent/cache/dynamic/prefetch.h"
#include "dpu_agent/cache/policy/plugin.h"
#include "dpu_agent/cache/static_cache.h"
#include "dpu_agent/store/node_store.h"
#include "transport/api/service.h"

struct soda_dpu_options;
struct soda_session;
struct soda_paging_region;
struct soda_task;
struct soda_slot_hold;

/* Fetches of a server that are under way at a time, and channels of each session for them. */
enum { SODA_PREFETCH_WORKERS = 2 };

/* A region's state in the caches; part of struct soda_paging_region. */
struct soda_region_cache {
	struct soda_owner_name name;
	uint32_t owner;	    /* where owned */
	bool owned;	    /* the owner is its own until nothing holds the region */
	bool open;	    /* at the dynamic cache; set before requests find the region */
	_Atomic bool off;   /* NO_CACHE */
	_Atomic bool ruled; /* a rule, not its program, wants it in the static cache */
	/* the view of its object of the node's store; set before requests find that object */
	uint32_t view;		    /* its owner, where viewed */
	bool viewed, closed;	    /* guarded by caches.lock; closed: no view is opened any more */
	struct soda_static_set set; /* in the static cache */
	/* regions of the same owner; guarded by caches.lock */
	struct soda_session *session;
	struct soda_paging_region *next, *next_view;
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

/* Start the caches that the options want.  0; -EINVAL: a bad policy or size; -ENOMEM; logged. */
int soda_caches_start(struct soda_caches *c, const struct soda_dpu_options *opt);
/* When this returns no fetch is under way, and none begins any more. Sessions go on. */
void soda_caches_stop(struct soda_caches *c);
/* When no session is left. */
void soda_caches_destroy(struct soda_caches *c);

/* Whether sessions need channels for the caches. */
bool soda_caches_fetch(const struct soda_caches *c);

/* Before requests find the session's new region. */
void soda_caches_open(struct soda_session *s, struct soda_paging_region *r);
/* The region is going: no fetch for it begins any more. Before the wait for its last hold. */
void soda_caches_close(struct soda_session *s, struct soda_paging_region *r);
/*
 * After soda_caches_close, when nothing holds the region: give back the owner's id.  Not earlier,
 * because a request that still held the region could find another client's entries under that id.
 */
void soda_caches_free(struct soda_session *s, struct soda_paging_region *r);

/*
 * The region has joined an object of the node's store, and leaves that after soda_caches_free: what
 * is read ahead of it goes there.  Before requests find the object.  as: whose reader the region
 * is, which need not be itself.
 */
void soda_caches_view(struct soda_session *s, struct soda_paging_region *r,
		      struct soda_node_object *o, const struct soda_owner_name *as);
/* The view's owner, for a region that is held and has joined; SODA_CACHE_NONE: nobody looks. */
uint32_t soda_caches_view_of(const struct soda_paging_region *r);
/* A program has asked for a chunk of that view; one that has gone since does no harm. */
void soda_caches_note(struct soda_caches *c, uint32_t view, uint64_t offset, uint32_t bytes,
		      enum soda_node_answer answer);

/*
 * Look a READ up whose range is inside the region.  HIT: *span_p is the answer, with its hold.
 * LATE: the task waits for an entry, and soda_forward_late() ends it.  MISS: neither cache has it.
 */
enum soda_cache_answer soda_caches_read(struct soda_task *task, struct soda_span *span_p);
/*
 * The range was, or is about to be, changed at the server: entries lose the range's old bytes
 * ("Coherence" in dynamic_cache.h). Any locks may be held.
 */
void soda_caches_written(struct soda_paging_region *r, uint64_t offset, uint64_t bytes);
/* Whether a WRITE of the range is refused, because a part is in the static cache. */
bool soda_caches_frozen(const struct soda_paging_region *r, uint64_t offset, uint64_t bytes);
/* The server took ns to answer a READ: for the estimate of the network's bandwidth. */
void soda_caches_fetched(struct soda_caches *c, uint32_t bytes, uint64_t ns);

/*
 * Carry out SODA_MSG_ADVISE, for a region that is held and has no unwritten data.  shares: the
 * reply may carry shared memory.  What is to be static of a region that has joined the node's store
 * is pinned there.  0; -ENOTSUP: that cache is off; -EINVAL; errors of soda_static_add and
 * soda_static_remove, soda_paging_store_pin and soda_paging_store_unpin.
 */
int soda_caches_advise(struct soda_session *s, struct soda_paging_region *r,
		       const struct soda_wire_advise *advise, bool shares,
		       struct soda_reply *reply);
/*
 * READ [offset, + bytes) of a region that is held, for its program or a rule, and wait for that:
 * counted as a load of the static cache, where what is read goes to the node's store, too.  0 or
 * the connection's error.
 */
int soda_caches_load(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
		     uint8_t *memory, uint64_t bytes);
/*
 * The same ahead of all programs: counted as what the dynamic cache reads.  *moved_p grows by the
 * bytes that the server may have sent.
 */
int soda_caches_load_ahead(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
			   uint8_t *memory, uint32_t bytes, uint64_t *moved_p);
/* What the options advise for an object of this name (not terminated), or SODA_WIRE_NORMAL. */
uint8_t soda_caches_rule(struct soda_caches *c, const char *name, size_t bytes);

/* Part of soda_dpu_walk: the caches' metrics, and the list of owners. */
void soda_caches_walk(struct soda_caches *c, struct soda_metrics *m);

#endif
