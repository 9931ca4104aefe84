/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/caches.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/paging.h"
#include "transport/api/memory.h"

/* An entry is asked for in parts of so much, so that READs that wait for the first need not wait
 * for the last. */
#define PART_BYTES (256u << 10)

enum {
	PARTS_MAX = SODA_CACHE_ENTRY_MAX / PART_BYTES + SODA_CACHE_RUNS_MAX,
	TIMED_ONE_IN =
		64, /* one of so many hits is timed, from its answer until it has been sent */
	OWNERS = 65536,
	OWNERS_SHOWN = 64,
};

/* Keeps a slot's entry while an answer is sent out of it. */
struct soda_slot_hold {
	struct soda_hold hold;
	struct soda_caches *caches;
	uint32_t slot;
};

/* The same, and says how long that took. */
struct timed_hold {
	struct soda_hold hold;
	struct soda_caches *caches;
	uint64_t start_ns;
	uint32_t slot, bytes;
};

static void slot_put(struct soda_hold *hold)
{
	struct soda_slot_hold *h = (struct soda_slot_hold *)hold;

	soda_cache_release(soda_prefetch_cache(h->caches->dynamic), h->slot);
}

static void timed_put(struct soda_hold *hold)
{
	struct timed_hold *h = (struct timed_hold *)hold;

	soda_prefetch_intra(h->caches->dynamic, h->bytes, soda_now_ns() - h->start_ns);
	soda_cache_release(soda_prefetch_cache(h->caches->dynamic), h->slot);
	free(h);
}

static struct soda_hold *hold_slot(struct soda_caches *c, uint32_t slot, uint32_t bytes)
{
	uint32_t turn = atomic_fetch_add_explicit(&c->turn, 1, memory_order_relaxed);
	struct timed_hold *h = turn % TIMED_ONE_IN ? NULL : malloc(sizeof(*h));

	if (!h)
		return &c->holds[slot].hold;
	*h = (struct timed_hold){ .hold.put = timed_put,
				  .caches = c,
				  .start_ns = soda_now_ns(),
				  .slot = slot,
				  .bytes = bytes };
	return &h->hold;
}

/* READs of the caches from the server */

/* Where a range of the static cache is loaded from: the argument `source` of load(). */
struct soda_loader {
	struct soda_session *session;
	struct soda_paging_region *region; /* held */
};

/* Transfers that a thread waits for together, and how they ended. */
struct cache_reads {
	struct soda_transfer transfer[PARTS_MAX];
	unsigned n, ended;
	struct soda_cache *cache;     /* of an entry; else NULL */
	const struct soda_fill *fill; /* its; with that */
	uint64_t refused;	      /* bytes of those that the server has answered without data */
	int status;		      /* of the first that failed */
};

static void ended(struct soda_transfer *t, int status)
{
	struct cache_reads *a = t->arg;

	a->ended++;
	/* With the channel's lock: done() may answer READs, and open their sessions' gates. */
	if (!status && a->cache)
		soda_cache_fill_part(a->cache, a->fill->slot,
				     (uint32_t)(t->offset - a->fill->offset), t->bytes);
	if (status && !soda_connection_lost(status))
		a->refused += t->bytes;
	if (status && !a->status)
		a->status = status;
}

/*
 * Lock one of the session's channels for the caches: there are two, so that one fetch can be under
 * way while another one's data is taken in.
 */
static struct soda_channel *choose(struct soda_session *s)
{
	struct soda_channel *c =
		&soda_pager(s)->channels[soda_pager(s)->channels_n - SODA_PREFETCH_WORKERS];

	for (int i = 0; i < SODA_PREFETCH_WORKERS; i++)
		if (pthread_mutex_trylock(&c[i].lock) == 0)
			return &c[i];
	pthread_mutex_lock(&c->lock);
	return c;
}

/* Bytes that the server may have sent: of what was posted, and not answered by an error. */
static uint64_t moved(const struct cache_reads *a)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < a->n; i++)
		if (a->transfer[i].posted_ns)
			bytes += a->transfer[i].bytes;
	return bytes - a->refused;
}

/* One transfer more, of [offset, + bytes) of a region that is held. */
static void add_read(struct cache_reads *a, struct soda_session *s, struct soda_paging_region *r,
		     uint64_t offset, uint8_t *memory, uint32_t bytes)
{
	a->transfer[a->n++] = (struct soda_transfer){ .session = s,
						      .region = r,
						      .offset = offset,
						      .bytes = bytes,
						      .memory = memory,
						      .ended = ended,
						      .arg = a };
}

/* Post them and wait.  *moved_p (may be NULL) grows by the bytes that the server may have sent. */
static int read_all(struct soda_session *s, struct cache_reads *a, uint64_t *moved_p)
{
	int ret = soda_forward_await(choose(s), a->transfer, a->n);

	if (moved_p)
		*moved_p += moved(a);
	if (a->status)
		return a->status;
	return ret < 0 ? ret : a->ended == a->n ? 0 : -ENOTCONN;
}

/* READ a range of a region that is held, and wait for it. */
static int read_now(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
		    uint8_t *memory, uint32_t bytes, uint64_t *moved_p)
{
	struct cache_reads a = { .n = 0 };

	add_read(&a, s, r, offset, memory, bytes);
	return read_all(s, &a, moved_p);
}

static struct soda_paging_region *next_of(const struct soda_paging_region *r, bool view)
{
	return view ? r->cache.next_view : r->cache.next;
}

/* A region of the owner whose session is up, with a hold, and a reference on the session. */
static struct soda_paging_region *find_region(struct soda_caches *c, uint32_t owner, bool view)
{
	struct soda_paging_region *r;

	pthread_mutex_lock(&c->lock);
	for (r = c->regions[owner]; r; r = next_of(r, view)) {
		struct soda_session *s = r->cache.session;
		bool up;

		pthread_mutex_lock(&s->lock);
		up = s->up;
		if (up) {
			r->holds++;
			soda_session_ref(s);
		}
		pthread_mutex_unlock(&s->lock);
		if (up)
			break;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* The entry's runs, in parts that are posted together; each is told to the cache when it is here.
 */
static int read_entry(struct soda_caches *c, struct soda_session *s, struct soda_paging_region *r,
		      struct soda_fill *fill)
{
	struct cache_reads a = { .cache = soda_prefetch_cache(c->dynamic), .fill = fill };

	for (uint32_t i = 0; i < fill->runs_n; i++) {
		const struct soda_cache_run *run = &fill->runs[i];

		for (uint32_t done = 0, part; done < run->bytes; done += part) {
			part = run->bytes - done < PART_BYTES ? run->bytes - done : PART_BYTES;
			add_read(&a, s, r, fill->offset + run->at + done,
				 fill->memory + run->at + done, part);
		}
	}
	soda_count_add(SODA_COUNT_net_prefetch, a.n);
	soda_count_add(SODA_COUNT_net_prefetch_bytes, fill->bytes);
	return read_all(s, &a, &fill->read);
}

static void fetch(void *arg, struct soda_fill *fill)
{
	bool view = !fill->memory;
	struct soda_caches *c = arg;
	struct soda_paging_region *r = find_region(c, fill->owner, view);
	struct soda_session *s;
	int ret;

	if (!r) { /* no connection: nothing was asked of the server */
		soda_prefetch_filled(c->dynamic, fill, -ECANCELED);
		return;
	}
	s = r->cache.session;
	if (!soda_prefetch_wanted(c->dynamic, fill))
		ret = -ECANCELED;
	else
		ret = view ? soda_paging_store_ahead(s, r, fill) : read_entry(c, s, r, fill);
	pthread_mutex_lock(&s->lock);
	soda_region_unhold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
	soda_prefetch_filled(c->dynamic, fill, ret);
	soda_session_put(s);
}

/* A rule of the operator's has wanted the range, not the program: the budget counts that. */
static void count_ruled(struct soda_session *s, struct soda_paging_region *r, uint32_t bytes)
{
	struct soda_caches *c = &soda_paging(s)->caches;

	if (c->dynamic && atomic_load_explicit(&r->cache.ruled, memory_order_relaxed))
		soda_prefetch_ruled(c->dynamic, bytes);
}

int soda_caches_load(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
		     uint8_t *memory, uint64_t bytes)
{
	int ret = 0;

	while (bytes && ret == 0) {
		uint32_t part = bytes < SODA_WIRE_MAX_DATA ? (uint32_t)bytes : SODA_WIRE_MAX_DATA;

		soda_count_add(SODA_COUNT_net_preload, 1);
		soda_count_add(SODA_COUNT_net_preload_bytes, part);
		count_ruled(s, r, part);
		ret = read_now(s, r, offset, memory, part, NULL);
		offset += part;
		memory += part;
		bytes -= part;
	}
	return ret;
}

int soda_caches_load_ahead(struct soda_session *s, struct soda_paging_region *r, uint64_t offset,
			   uint8_t *memory, uint32_t bytes, uint64_t *moved_p)
{
	soda_count_add(SODA_COUNT_net_prefetch, 1);
	soda_count_add(SODA_COUNT_net_prefetch_bytes, bytes);
	return read_now(s, r, offset, memory, bytes, moved_p);
}

static int load(void *source, uint64_t offset, uint8_t *memory, uint64_t bytes)
{
	const struct soda_loader *l = source;

	return soda_caches_load(l->session, l->region, offset, memory, bytes);
}

/* Start, end */

/* Until hits have been timed, a copy in memory is the estimate of the bandwidth to programs. */
static void estimate_intra(struct soda_caches *c)
{
	uint32_t entry = soda_cache_entry_bytes(soda_prefetch_cache(c->dynamic));
	uint64_t bytes, start;
	uint8_t *arena = soda_cache_arena(soda_prefetch_cache(c->dynamic), &bytes);

	memset(arena, 1, entry);
	start = soda_now_ns();
	memcpy(arena + entry, arena, entry);
	soda_prefetch_intra(c->dynamic, entry, soda_now_ns() - start);
}

/*
 * Tell the transport of memory of the caches, or that it goes, so that data is received into it and
 * sent out of it without a copy.  If the transport cannot use it, it copies.
 */
static void tell_of_memory(void *memory, uint64_t bytes, bool there)
{
	if (there)
		soda_memory_add(memory, bytes);
	else
		soda_memory_remove(memory, bytes);
}

static void tell_of_arena(struct soda_caches *c, bool there)
{
	uint64_t bytes;
	uint8_t *arena = soda_cache_arena(soda_prefetch_cache(c->dynamic), &bytes);

	tell_of_memory(arena, bytes, there);
}

static int start_dynamic(struct soda_caches *c, const struct soda_dpu_options *opt)
{
	static const struct soda_prefetch_ops ops = { .fill = fetch,
						      .lacks = soda_view_lacks,
						      .touched = soda_view_touched,
						      .news = soda_view_news };
	struct soda_prefetch_options want = { .cache_bytes = opt->cache_bytes,
					      .entry_bytes = (uint32_t)opt->entry_bytes,
					      .max_owners = OWNERS,
					      .limit = (enum soda_prefetch_limit)opt->limit,
					      .always = !opt->adaptive,
					      .per_server = SODA_PREFETCH_WORKERS };
	struct soda_why why;
	uint32_t slots;
	int ret = soda_plugin_open(opt->policy_dir, opt->policy, &c->plugin, &why);

	if (ret) {
		soda_log_error("--policy: %s", why.text);
		return ret;
	}
	want.policy = c->plugin.policy;
	if (getrandom(&want.seed, sizeof(want.seed), 0) != sizeof(want.seed))
		return -EIO;
	ret = soda_prefetch_create(&want, &ops, c, &c->dynamic);
	if (ret) {
		soda_log_error(
			"dynamic cache of %llu bytes, entries of %llu: %s: --entry-bytes is a"
			" power of two from 64 KiB to 4 MiB, and two must fit",
			(unsigned long long)opt->cache_bytes, (unsigned long long)opt->entry_bytes,
			soda_strerror(ret));
		return ret;
	}
	tell_of_arena(c, true);
	slots = soda_cache_slots(soda_prefetch_cache(c->dynamic));
	c->holds = calloc(slots, sizeof(*c->holds));
	c->regions = calloc(OWNERS, sizeof(struct soda_paging_region *));
	if (!c->holds || !c->regions)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		c->holds[i] =
			(struct soda_slot_hold){ .hold.put = slot_put, .caches = c, .slot = i };
	estimate_intra(c);
	return soda_prefetch_start(c->dynamic, 2 * SODA_PREFETCH_WORKERS,
				   SODA_PREFETCH_WORKERS_MAX);
}

int soda_caches_start(struct soda_caches *c, const struct soda_dpu_options *opt)
{
	int ret = 0;

	*c = (struct soda_caches){ .opt = opt };
	pthread_mutex_init(&c->lock, NULL);
	if (opt->dynamic && !opt->base)
		ret = start_dynamic(c, opt);
	if (!ret && opt->statics && !opt->base)
		ret = soda_static_create(opt->static_bytes, tell_of_memory, &c->statics);
	if (ret) {
		soda_caches_stop(c);
		soda_caches_destroy(c);
	}
	return ret;
}

void soda_caches_stop(struct soda_caches *c)
{
	if (c->dynamic)
		soda_prefetch_stop(c->dynamic);
}

void soda_caches_destroy(struct soda_caches *c)
{
	if (c->dynamic)
		tell_of_arena(c, false);
	soda_prefetch_destroy(c->dynamic);
	soda_static_destroy(c->statics);
	soda_plugin_close(&c->plugin);
	free(c->holds);
	free(c->regions);
	pthread_mutex_destroy(&c->lock);
	*c = (struct soda_caches){ 0 };
}

bool soda_caches_fetch(const struct soda_caches *c)
{
	return c->dynamic || c->statics;
}

/* Regions. */

void soda_caches_open(struct soda_session *s, struct soda_paging_region *r)
{
	struct soda_caches *c = &soda_paging(s)->caches;
	struct soda_region_cache *rc = &r->cache;
	bool shared = r->flags & SODA_WIRE_READ_ONLY && r->file_id;

	rc->session = s;
	rc->name = (struct soda_owner_name){ .file = shared, .bytes = r->bytes };
	rc->name.id[0] = shared ? r->file_id : soda_pager(s)->server.hello.client_id;
	rc->name.id[1] = shared ? r->generation : r->mr.region_id;
	rc->name.server = shared ? soda_session_member(s) : 0;
	rc->name.at = soda_session_member(s);
	rc->name.holder = soda_tenant_holder(s->all->tenants, s->tenant);
	if (!c->dynamic || soda_prefetch_open(c->dynamic, &rc->name, &rc->owner))
		return; /* not cached: no error for the client */
	pthread_mutex_lock(&c->lock);
	rc->next = c->regions[rc->owner];
	c->regions[rc->owner] = r;
	rc->open = rc->owned = true;
	pthread_mutex_unlock(&c->lock);
}

void soda_caches_view(struct soda_session *s, struct soda_paging_region *r,
		      struct soda_node_object *o, const struct soda_owner_name *as)
{
	struct soda_caches *c = &soda_paging(s)->caches;
	struct soda_region_cache *rc = &r->cache;
	struct soda_owner_name name = *as;

	name.view_chunk = soda_node_chunk_bytes(o);
	name.view_user = s->info.uid;
	name.view_tenant = s->info.tenant;
	if (!c->dynamic || soda_prefetch_open_view(c->dynamic, &name, o, &rc->view))
		return; /* nothing is read ahead of it: no error for the client */
	pthread_mutex_lock(&c->lock);
	rc->viewed = !rc->closed;
	if (rc->viewed) {
		rc->next_view = c->regions[rc->view];
		c->regions[rc->view] = r;
	}
	pthread_mutex_unlock(&c->lock);
	if (!rc->viewed)
		soda_prefetch_close(c->dynamic, rc->view, false);
}

static void unlink_region_locked(struct soda_caches *c, struct soda_paging_region *r)
{
	struct soda_paging_region **link = &c->regions[r->cache.owner];

	while (*link != r)
		link = &(*link)->cache.next;
	*link = r->cache.next;
}

static void unlink_view_locked(struct soda_caches *c, struct soda_paging_region *r)
{
	struct soda_paging_region **link = &c->regions[r->cache.view];

	while (*link != r)
		link = &(*link)->cache.next_view;
	*link = r->cache.next_view;
}

void soda_caches_close(struct soda_session *s, struct soda_paging_region *r)
{
	struct soda_caches *c = &soda_paging(s)->caches;

	if (c->statics)
		soda_static_clear(c->statics, &r->cache.set);
	pthread_mutex_lock(&c->lock);
	if (r->cache.open)
		unlink_region_locked(c, r);
	if (r->cache.viewed && !r->cache.closed)
		unlink_view_locked(c, r);
	r->cache.open = false;
	r->cache.closed = true;
	pthread_mutex_unlock(&c->lock);
}

void soda_caches_free(struct soda_session *s, struct soda_paging_region *r)
{
	if (r->cache.owned)
		soda_prefetch_close(soda_paging(s)->caches.dynamic, r->cache.owner, false);
	if (r->cache.viewed)
		soda_prefetch_close(soda_paging(s)->caches.dynamic, r->cache.view, false);
	r->cache.owned = r->cache.viewed = false;
}

/* The data path. */

static void answer_late(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	struct soda_task *task =
		(struct soda_task *)((char *)w - offsetof(struct soda_task, waiter));
	struct soda_caches *c = &soda_paging(task->session)->caches;
	struct soda_span span = { .offset = task->rq->offset, .bytes = task->rq->bytes };

	if (!status) {
		span.memory = (uint8_t *)ref->memory;
		span.hold = hold_slot(c, ref->slot, span.bytes);
	}
	soda_forward_late(task, status ? NULL : &span);
}

enum soda_cache_answer soda_caches_read(struct soda_task *task, struct soda_span *span_p)
{
	struct soda_caches *c = &soda_paging(task->session)->caches;
	struct soda_paging_region *r = task->region;
	const struct soda_request *rq = task->rq;
	struct soda_recent_residency residency = {
		rq->residency, rq->offset, soda_pager(task->session)->server.hello.chunk_bytes
	};
	struct soda_static_range *range;
	enum soda_cache_answer answer;
	struct soda_cache_ref ref;

	*span_p = (struct soda_span){ .offset = rq->offset, .bytes = rq->bytes };
	if (c->statics) {
		span_p->memory = (uint8_t *)soda_static_acquire(c->statics, &r->cache.set,
								rq->offset, rq->bytes, &range);
		if (span_p->memory) {
			span_p->hold = soda_static_hold(range);
			if (c->dynamic &&
			    atomic_load_explicit(&r->cache.ruled, memory_order_relaxed))
				soda_prefetch_ruled_given(c->dynamic, rq->bytes);
			return SODA_CACHE_HIT;
		}
	}
	if (!r->cache.open || atomic_load_explicit(&r->cache.off, memory_order_relaxed))
		return SODA_CACHE_MISS;
	task->waiter.done = answer_late;
	answer = soda_prefetch_read(c->dynamic, r->cache.owner, rq->offset, rq->bytes,
				    rq->told ? &residency : NULL, &task->waiter, &ref);
	if (answer == SODA_CACHE_HIT) {
		span_p->memory = (uint8_t *)ref.memory;
		span_p->hold = hold_slot(c, ref.slot, rq->bytes);
	}
	return answer;
}

uint32_t soda_caches_view_of(const struct soda_paging_region *r)
{
	const struct soda_region_cache *rc = &r->cache;

	return soda_paging_store_has(r) && rc->viewed &&
			       !atomic_load_explicit(&rc->off, memory_order_relaxed)
		       ? rc->view
		       : SODA_CACHE_NONE;
}

void soda_caches_note(struct soda_caches *c, uint32_t view, uint64_t offset, uint32_t bytes,
		      enum soda_node_answer answer)
{
	static const enum soda_cache_answer answers[] = { [SODA_NODE_READY] = SODA_CACHE_HIT,
							  [SODA_NODE_WAITS] = SODA_CACHE_LATE,
							  [SODA_NODE_FILL] = SODA_CACHE_MISS };

	if (view != SODA_CACHE_NONE)
		soda_prefetch_note(c->dynamic, view, offset, bytes, answers[answer]);
}

void soda_caches_written(struct soda_paging_region *r, uint64_t offset, uint64_t bytes)
{
	if (r->cache.open)
		soda_cache_written(
			soda_prefetch_cache(soda_paging(r->cache.session)->caches.dynamic),
			r->cache.owner, offset, bytes);
}

bool soda_caches_frozen(const struct soda_paging_region *r, uint64_t offset, uint64_t bytes)
{
	struct soda_caches *c = &soda_paging(r->cache.session)->caches;

	return c->statics && soda_static_frozen(c->statics, &r->cache.set, offset, bytes);
}

void soda_caches_fetched(struct soda_caches *c, uint32_t bytes, uint64_t ns)
{
	if (c->dynamic)
		soda_prefetch_net(c->dynamic, bytes, ns);
}

/* Advice. */

static int refuse(struct soda_why *why, int err, const char *text)
{
	snprintf(why->text, sizeof(why->text), "%s", text);
	return err;
}

static int make_static(struct soda_session *s, struct soda_paging_region *r,
		       const struct soda_wire_advise *a, bool shares, struct soda_reply *reply)
{
	struct soda_caches *c = &soda_paging(s)->caches;
	struct soda_static_range *range;
	struct soda_wire_advised got;
	struct soda_loader loader = { .session = s, .region = r };
	int ret;

	if (!c->statics)
		return refuse(&reply->why, -ENOTSUP, "the agent's static cache is switched off");
	if (soda_paging_store_has(r))
		return soda_paging_store_pin(s, r, a, &reply->why);
	ret = soda_static_add(c->statics, &r->cache.set, &r->cache.name, a->offset, a->bytes, load,
			      &loader, &range, &reply->why);
	if (ret || !shares)
		return ret;
	soda_static_share(range, &reply->share);
	got = (struct soda_wire_advised){ reply->share.offset, reply->share.bytes };
	soda_wire_put_advised(reply->body, &got);
	reply->bytes = SODA_WIRE_ADVISED_BYTES;
	return 0;
}

static int end_static(struct soda_session *s, struct soda_paging_region *r,
		      const struct soda_wire_advise *a, struct soda_why *why)
{
	struct soda_caches *c = &soda_paging(s)->caches;
	int ret =
		c->statics ? soda_static_remove(c->statics, &r->cache.set, a->offset, a->bytes) : 0;

	if (ret >= 0)
		ret = soda_paging_store_unpin(r, a);
	if (ret == -EBUSY)
		return refuse(why, ret,
			      "a part of the range is in the static cache together with"
			      " what lies outside of it");
	return ret < 0 ? ret : 0;
}

int soda_caches_advise(struct soda_session *s, struct soda_paging_region *r,
		       const struct soda_wire_advise *a, bool shares, struct soda_reply *reply)
{
	struct soda_caches *c = &soda_paging(s)->caches;
	uint32_t view;
	int ret;

	if (!a->bytes || a->offset % SODA_WIRE_PAGE || a->bytes % SODA_WIRE_PAGE ||
	    a->offset > r->bytes || a->bytes > r->bytes - a->offset)
		return refuse(&reply->why, -EINVAL, "no whole pages of the region");
	if (a->advice == SODA_WIRE_STATIC_CACHE)
		return make_static(s, r, a, shares, reply);
	if (a->advice == SODA_WIRE_NORMAL)
		return end_static(s, r, a, &reply->why);
	if (a->advice != SODA_WIRE_DYNAMIC_CACHE && a->advice != SODA_WIRE_NO_CACHE)
		return refuse(&reply->why, -EINVAL, "no caching advice");
	if (a->advice == SODA_WIRE_DYNAMIC_CACHE && !r->cache.open)
		return refuse(&reply->why, -ENOTSUP, "the agent's dynamic cache is switched off");
	ret = end_static(s, r, a, &reply->why);
	if (ret)
		return ret;
	atomic_store(&r->cache.off, a->advice == SODA_WIRE_NO_CACHE);
	if (a->advice == SODA_WIRE_DYNAMIC_CACHE) {
		view = soda_caches_view_of(r);
		soda_prefetch_advise(c->dynamic, view != SODA_CACHE_NONE ? view : r->cache.owner,
				     SODA_OWNER_CACHED);
	}
	return 0;
}

uint8_t soda_caches_rule(struct soda_caches *c, const char *name, size_t bytes)
{
	char text[SODA_WIRE_MAX_NAME + 1];

	if (!c->statics || bytes > SODA_WIRE_MAX_NAME)
		return SODA_WIRE_NORMAL;
	memcpy(text, name, bytes);
	text[bytes] = '\0';
	return soda_static_rule(c->opt->static_rule, text) ? SODA_WIRE_STATIC_CACHE
							   : SODA_WIRE_NORMAL;
}

/* Statistics */

static void count(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_NONE, key, help, value);
}

static void count_bytes(struct soda_metrics *m, const char *key, const char *help, uint64_t value)
{
	soda_metrics_say(m, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, key, help, value);
}

static void walk_counts(struct soda_metrics *m, const struct soda_cache_counts *n)
{
	count(m, "cache_hits", "requests that the dynamic cache had", n->hits);
	count(m, "cache_late_hits", "requests that waited for a fetch under way", n->late_hits);
	count(m, "cache_misses", "requests that it did not have", n->misses);
	count_bytes(m, "cache_hit_bytes", "data of hits", n->bytes_hit);
	count_bytes(m, "cache_late_hit_bytes", "data of late hits", n->bytes_late);
	count_bytes(m, "cache_miss_bytes", "data of misses", n->bytes_missed);
	count(m, "cache_bypassed", "requests that span entries, which are never cached",
	      n->bypassed);
	count(m, "cache_fills", "fetches for the dynamic cache that ended", n->fills);
	count(m, "cache_fills_failed", "of them, failed ones", n->fills_failed);
	count_bytes(m, "cache_filled_bytes", "data fetched for the dynamic cache", n->bytes_filled);
	count(m, "cache_evictions", "entries that made room for others", n->evictions);
	count(m, "cache_useless", "entries that went without having met a request", n->useless);
	count_bytes(m, "cache_useless_bytes", "data that was fetched and never asked for",
		    n->bytes_useless);
	count(m, "cache_writes", "writes that met an entry", n->writes);
	soda_metrics_say_level(m, "cache_entries", "entries now", n->entries);
}

/* The switch with its inputs: see model.h. */
static void walk_model(struct soda_metrics *m, const struct soda_model *model)
{
	soda_metrics_say_flag(m, "model_on", "whether the model of the bandwidths is for caching",
			      model->on);
	soda_metrics_say_real(m, "hit_rate", "mean share of hits, of ghosts while off",
			      model->hit_rate);
	soda_metrics_say_real(m, "waste", "mean share that was fetched and not asked for",
			      model->waste);
	soda_metrics_say_real(m, "gain", "what is compared with the threshold", model->gain);
	soda_metrics_say_real(m, "threshold", "bandwidth of the network in that of the node",
			      model->ratio);
	count(m, "switched_on", "times the model switched the cache on", model->switched_on);
	count(m, "switched_off", "times the model switched the cache off", model->switched_off);
}

/* See budget.h. */
static void walk_budget(struct soda_metrics *m, const struct soda_owner_stats *o)
{
	const struct soda_budget *b = &o->budget;

	soda_metrics_say_flag(m, "budget_ended", "whether the budget lets nothing be fetched ahead",
			      b->ended);
	soda_metrics_say_size(m, "budget_left_bytes", "what may be fetched ahead now",
			      o->budget_left);
	soda_metrics_say_size(m, "budget_lent_bytes", "of pool and reserve, not repaid yet",
			      b->lent + b->lent_reserve);
	soda_metrics_say_size(m, "budget_trust_bytes", "most that it may owe the reserve",
			      b->trust / SODA_BUDGET_TRUST_USED);
	soda_metrics_say_size(m, "budget_hold_bytes", "demand from the last end to the next try",
			      b->hold);
	count(m, "budget_ends", "times the budget ended it", b->ends);
	count_bytes(m, "used_bytes", "of what was fetched ahead, asked for since", b->used);
	count_bytes(m, "wasted_bytes", "of what was fetched ahead, dropped unused", b->unused);
	soda_metrics_say_real(m, "surplus",
			      "fetched ahead less given from the cache, in demand, lately",
			      soda_budget_surplus(&b->window.all));
}

static void walk_owner(void *arg, const struct soda_owner_stats *o)
{
	static const char *const advice[] = { "adaptive", "cached", "uncached" };
	struct soda_metrics *m = arg;
	char id[96]; /* parts of different length are different owners */
	int n = snprintf(id, sizeof(id), "%llx.%llx.%llx", (unsigned long long)o->name.id[0],
			 (unsigned long long)o->name.id[1],
			 (unsigned long long)o->name.bytes >> 12);

	if (o->name.view_chunk)
		n += snprintf(id + n, sizeof(id) - (size_t)n, ".%u.%x", o->name.view_user,
			      o->name.view_chunk >> 12);
	if (o->name.view_tenant)
		snprintf(id + n, sizeof(id) - (size_t)n, ".%u", o->name.view_tenant);
	soda_metrics_item(m);
	soda_metrics_text(m, "id", id);
	soda_metrics_text(m, "kind",
			  o->name.view_chunk ? "store"
			  : o->name.file     ? "file"
					     : "region");
	soda_metrics_hex(m, o->name.file ? "file_id" : "client_id", o->name.id[0], 16);
	soda_metrics_hex(m, o->name.file ? "generation" : "region_id", o->name.id[1], 16);
	soda_metrics_text(m, "advice", advice[o->advice]);
	soda_metrics_say_size(m, "bytes", "size of what is cached", o->name.bytes);
	soda_metrics_say_level(m, "regions", "regions open", o->regions);
	count(m, "requests", "requests since it was opened", o->requests);
	count(m, "hits", "of them, hits", o->hits);
	count(m, "late_hits", "of them, hits that waited", o->late_hits);
	count_bytes(m, "asked_bytes", "data asked for", o->bytes_asked);
	count_bytes(m, "hit_bytes", "of it, data of hits", o->bytes_hit);
	count_bytes(m, "prefetched_bytes", "data fetched ahead", o->bytes_fetched);
	soda_metrics_say_level(m, "ghosts", "entries that are remembered and not held", o->ghosts);
	soda_metrics_say_flag(m, "on", "whether the dynamic cache fetches for this owner", o->on);
	walk_model(m, &o->model);
	walk_budget(m, o);
	soda_metrics_item_end(m);
}

static void walk_pool(struct soda_metrics *m, const struct soda_prefetch_stats *s)
{
	static const char *const limits[] = { "both", "budget", "model" };

	soda_metrics_text(m, "cache_limit", s->always ? "none" : limits[s->limit]);
	count(m, "cache_prefetches_unpaid", "fetches not begun: over the budget", s->unpaid);
	soda_metrics_say_size(m, "cache_budget_pool_bytes", "what the pool can lend to owners",
			      s->pool.bytes);
	soda_metrics_say_size(m, "cache_budget_reserve_bytes",
			      "what the reserve can lend to owners of which little is wasted",
			      s->pool.reserve);
	soda_metrics_say_size(m, "cache_budget_owed_bytes",
			      "what the pool owes for what rules loaded", s->pool.owed);
	soda_metrics_say_real(m, "cache_surplus",
			      "fetched ahead less given from the cache, in demand, lately",
			      soda_budget_surplus(&s->pool.window.all));
	soda_metrics_say_level(m, "cache_owners_ended", "files and regions that the budget ended",
			       s->owners_ended);
	count(m, "cache_budget_ends", "times the budget ended one", s->pool.ends);
	count_bytes(m, "cache_ruled_bytes", "data loaded into the static cache by rules",
		    s->bytes_ruled);
}

static void walk_dynamic(struct soda_metrics *m, struct soda_prefetch *p)
{
	static const struct soda_metric_list owners = { "cache_owner_list", "owner", OWNERS_SHOWN };
	struct soda_prefetch_stats s;

	soda_prefetch_stats(p, &s);
	soda_metrics_text(m, "cache_policy", s.policy);
	soda_metrics_say_flag(m, "cache_policy_replaced",
			      "whether a policy that misbehaved was replaced", s.policy_replaced);
	count(m, "cache_policy_nonsense", "answers of the policy that were refused", s.nonsense);
	walk_counts(m, &s.cache);
	count(m, "cache_recent_lost", "requests that no policy saw", s.recent_lost);
	count(m, "cache_prefetches", "fetches begun", s.wanted);
	count(m, "cache_prefetches_dropped", "fetches not begun: too many, or no room", s.unwanted);
	soda_metrics_say_level(m, "cache_net_bytes_per_s", "bandwidth to the server as measured",
			       s.net_bytes_per_s);
	soda_metrics_say_level(m, "cache_intra_bytes_per_s", "bandwidth to programs as measured",
			       s.intra_bytes_per_s);
	soda_metrics_say_real(m, "cache_ratio", "the first in the second; negative: not known yet",
			      s.ratio);
	soda_metrics_say_level(m, "cache_owners", "files and regions that could be cached",
			       s.owners);
	soda_metrics_say_level(m, "cache_owners_on", "of them, those that are", s.owners_on);
	count(m, "cache_switched_on", "times the model switched one on", s.switched_on);
	count(m, "cache_switched_off", "times the model switched one off", s.switched_off);
	walk_pool(m, &s);
	soda_metrics_list(m, &owners);
	soda_prefetch_each(p, walk_owner, m);
	soda_metrics_list_end(m);
}

static void walk_static(struct soda_metrics *m, struct soda_static *cache)
{
	struct soda_static_stats s;

	soda_static_stats(cache, &s);
	soda_metrics_say_size(m, "static_capacity_bytes", "size of the static cache", s.capacity);
	soda_metrics_say_size(m, "static_used_bytes", "of it, in use", s.used);
	soda_metrics_say_level(m, "static_ranges", "ranges in the static cache", s.ranges);
	count_bytes(m, "static_loaded_bytes", "data loaded into the static cache", s.bytes_loaded);
	count(m, "static_loads_failed", "loads that failed", s.loads_failed);
	count(m, "static_refused", "ranges refused, for want of room", s.refused);
	count(m, "static_shared", "ranges that were there already", s.shared);
	count(m, "static_hits", "requests answered from the static cache by the agent", s.hits);
	count_bytes(m, "static_hit_bytes", "data of them", s.bytes_hit);
}

void soda_caches_walk(struct soda_caches *c, struct soda_metrics *m)
{
	soda_metrics_say_flag(m, "dynamic", "whether there is a dynamic cache", c->dynamic);
	soda_metrics_say_flag(m, "static", "whether there is a static cache", c->statics);
	if (c->dynamic)
		walk_dynamic(m, c->dynamic);
	if (c->statics)
		walk_static(m, c->statics);
}
