/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/caches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/lock.h"
#include "base/log.h"
#include "dpu_agent/paging/fetch.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward.h"
#include "soda.h"
#include "transport/api/memory.h"

/* One of so many hits is timed, from its answer until it has been sent. */
enum { TIMED_ONE_IN = 64, OWNERS = 65536 };

/* Keeps an entry while an answer is sent from it. */
struct soda_slot_hold {
	struct soda_hold hold;
	struct soda_caches *caches;
	uint32_t slot;
};

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

/* Until the first hits have been timed: how fast memory is copied. */
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
 * Entries of the dynamic cache and ranges of the static one are fetched into their place and
 * answered from it without a copy. Best effort: else it is copied.
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
	static const struct soda_prefetch_ops ops = { .fill = soda_cache_fetch };
	struct soda_prefetch_options want = { .cache_bytes = opt->cache_bytes,
					      .entry_bytes = (uint32_t)opt->entry_bytes,
					      .max_owners = OWNERS,
					      .always = !opt->adaptive };
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
	c->regions = calloc(OWNERS, sizeof(struct soda_region *));
	if (!c->holds || !c->regions)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		c->holds[i] =
			(struct soda_slot_hold){ .hold.put = slot_put, .caches = c, .slot = i };
	estimate_intra(c);
	return soda_prefetch_start(c->dynamic, SODA_PREFETCH_WORKERS);
}

int soda_caches_start(struct soda_dpu *dpu)
{
	const struct soda_dpu_options *opt = dpu->opt;
	struct soda_caches *c = &dpu->caches;
	int ret = 0;

	*c = (struct soda_caches){ .dpu = dpu };
	pthread_mutex_init(&c->lock, NULL);
	if (opt->dynamic && !opt->base)
		ret = start_dynamic(c, opt);
	if (!ret && opt->statics && !opt->base)
		ret = soda_static_create(opt->static_bytes, tell_of_memory, &c->statics);
	if (ret) {
		soda_caches_stop(dpu);
		soda_caches_destroy(dpu);
	}
	return ret;
}

void soda_caches_stop(struct soda_dpu *dpu)
{
	if (dpu->caches.dynamic)
		soda_prefetch_stop(dpu->caches.dynamic);
}

void soda_caches_destroy(struct soda_dpu *dpu)
{
	struct soda_caches *c = &dpu->caches;

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

bool soda_caches_fetch(const struct soda_dpu *dpu)
{
	return dpu->caches.dynamic || dpu->caches.statics;
}

/* Regions. */

void soda_caches_open(struct soda_session *s, struct soda_region *r)
{
	struct soda_caches *c = &s->dpu->caches;
	struct soda_region_cache *rc = &r->cache;
	bool shared = r->flags & SODA_READ_ONLY && r->file_id;

	rc->session = s;
	rc->name = (struct soda_owner_name){ .file = shared, .bytes = r->mr.bytes };
	rc->name.id[0] = shared ? r->file_id : s->hello.client_id;
	rc->name.id[1] = shared ? r->generation : r->mr.region_id;
	if (!c->dynamic || soda_prefetch_open(c->dynamic, &rc->name, &rc->owner))
		return; /* not cached: no error for the client */
	pthread_mutex_lock(&c->lock);
	rc->next = c->regions[rc->owner];
	c->regions[rc->owner] = r;
	rc->open = rc->owned = true;
	pthread_mutex_unlock(&c->lock);
}

void soda_caches_close(struct soda_session *s, struct soda_region *r)
{
	struct soda_caches *c = &s->dpu->caches;
	struct soda_region **link;

	if (c->statics)
		soda_static_clear(c->statics, &r->cache.set);
	if (!r->cache.open)
		return;
	pthread_mutex_lock(&c->lock);
	link = &c->regions[r->cache.owner];
	while (*link != r)
		link = &(*link)->cache.next;
	*link = r->cache.next;
	r->cache.open = false;
	pthread_mutex_unlock(&c->lock);
}

void soda_caches_free(struct soda_session *s, struct soda_region *r)
{
	if (r->cache.owned)
		soda_prefetch_close(s->dpu->caches.dynamic, r->cache.owner, false);
	r->cache.owned = false;
}

/* The data path. */

static void answer_late(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	struct soda_task *task =
		(struct soda_task *)((char *)w - offsetof(struct soda_task, waiter));
	struct soda_caches *c = &task->session->dpu->caches;
	struct soda_span span = { .offset = task->rq->offset, .bytes = task->rq->bytes };

	if (!status) {
		span.memory = (uint8_t *)ref->memory;
		span.hold = hold_slot(c, ref->slot, span.bytes);
	}
	soda_forward_late(task, status ? NULL : &span);
}

enum soda_cache_answer soda_caches_read(struct soda_task *task, struct soda_span *span_p)
{
	struct soda_caches *c = &task->session->dpu->caches;
	struct soda_region *r = task->region;
	const struct soda_request *rq = task->rq;
	struct soda_recent_has has = { rq->has, rq->offset, task->session->hello.chunk_bytes };
	struct soda_static_range *range;
	enum soda_cache_answer answer;
	struct soda_cache_ref ref;

	*span_p = (struct soda_span){ .offset = rq->offset, .bytes = rq->bytes };
	if (c->statics) {
		span_p->memory = (uint8_t *)soda_static_acquire(c->statics, &r->cache.set,
								rq->offset, rq->bytes, &range);
		if (span_p->memory) {
			span_p->hold = soda_static_hold(range);
			return SODA_CACHE_HIT;
		}
	}
	if (!r->cache.open || atomic_load_explicit(&r->cache.off, memory_order_relaxed))
		return SODA_CACHE_MISS;
	task->waiter.done = answer_late;
	answer = soda_prefetch_read(c->dynamic, r->cache.owner, rq->offset, rq->bytes,
				    rq->told ? &has : NULL, &task->waiter, &ref);
	if (answer == SODA_CACHE_HIT) {
		span_p->memory = (uint8_t *)ref.memory;
		span_p->hold = hold_slot(c, ref.slot, rq->bytes);
	}
	return answer;
}

void soda_caches_written(struct soda_region *r, uint64_t offset, uint64_t bytes)
{
	if (r->cache.open)
		soda_cache_written(soda_prefetch_cache(r->cache.session->dpu->caches.dynamic),
				   r->cache.owner, offset, bytes);
}

bool soda_caches_frozen(const struct soda_region *r, uint64_t offset, uint64_t bytes)
{
	struct soda_caches *c = &r->cache.session->dpu->caches;

	return c->statics && soda_static_frozen(c->statics, &r->cache.set, offset, bytes);
}

void soda_caches_fetched(struct soda_dpu *dpu, uint32_t bytes, uint64_t ns)
{
	if (dpu->caches.dynamic)
		soda_prefetch_net(dpu->caches.dynamic, bytes, ns);
}

/* Advice. */

static int refuse(struct soda_why *why, int err, const char *text)
{
	snprintf(why->text, sizeof(why->text), "%s", text);
	return err;
}

static int make_static(struct soda_session *s, struct soda_region *r,
		       const struct soda_wire_advise *a, bool shares, struct soda_reply *reply)
{
	struct soda_caches *c = &s->dpu->caches;
	struct soda_static_range *range;
	struct soda_wire_advised got;
	struct soda_loader loader = { .session = s, .region = r };
	int ret;

	if (!c->statics)
		return refuse(&reply->why, -ENOTSUP, "the agent's static cache is switched off");
	ret = soda_static_add(c->statics, &r->cache.set, &r->cache.name, a->offset, a->bytes,
			      soda_cache_load, &loader, &range, &reply->why);
	if (ret || !shares)
		return ret;
	soda_static_share(range, &reply->share);
	got = (struct soda_wire_advised){ reply->share.offset, reply->share.bytes };
	soda_wire_put_advised(reply->body, &got);
	reply->bytes = SODA_WIRE_ADVISED_BYTES;
	return 0;
}

static int end_static(struct soda_session *s, struct soda_region *r,
		      const struct soda_wire_advise *a, struct soda_why *why)
{
	struct soda_caches *c = &s->dpu->caches;
	int ret =
		c->statics ? soda_static_remove(c->statics, &r->cache.set, a->offset, a->bytes) : 0;

	if (ret == -EBUSY)
		return refuse(why, ret,
			      "a part of the range is in the static cache together with"
			      " what lies outside of it");
	return ret < 0 ? ret : 0;
}

int soda_caches_advise(struct soda_session *s, struct soda_region *r,
		       const struct soda_wire_advise *a, bool shares, struct soda_reply *reply)
{
	struct soda_caches *c = &s->dpu->caches;
	int ret;

	if (!a->bytes || a->offset % SODA_WIRE_PAGE || a->bytes % SODA_WIRE_PAGE ||
	    a->offset > r->mr.bytes || a->bytes > r->mr.bytes - a->offset)
		return refuse(&reply->why, -EINVAL, "no whole pages of the region");
	if (a->advice == SODA_STATIC_CACHE)
		return make_static(s, r, a, shares, reply);
	if (a->advice == SODA_NORMAL)
		return end_static(s, r, a, &reply->why);
	if (a->advice != SODA_DYNAMIC_CACHE && a->advice != SODA_NO_CACHE)
		return refuse(&reply->why, -EINVAL, "no caching advice");
	if (a->advice == SODA_DYNAMIC_CACHE && !r->cache.open)
		return refuse(&reply->why, -ENOTSUP, "the agent's dynamic cache is switched off");
	ret = end_static(s, r, a, &reply->why);
	if (ret)
		return ret;
	atomic_store(&r->cache.off, a->advice == SODA_NO_CACHE);
	if (a->advice == SODA_DYNAMIC_CACHE)
		soda_prefetch_advise(c->dynamic, r->cache.owner, SODA_OWNER_CACHED);
	return 0;
}

uint8_t soda_caches_rule(struct soda_dpu *dpu, const char *name, size_t bytes)
{
	char text[SODA_WIRE_MAX_NAME + 1];

	if (!dpu->caches.statics || bytes > SODA_WIRE_MAX_NAME)
		return SODA_NORMAL;
	memcpy(text, name, bytes);
	text[bytes] = '\0';
	return soda_static_rule(dpu->opt->static_rule, text) ? SODA_STATIC_CACHE : SODA_NORMAL;
}
