/* SPDX-License-Identifier: BSD-3-Clause */
/* Owners come and go, and what is seen of all of it from outside. */
#include <errno.h>

#include "dpu_agent/cache/dynamic/prefetch_impl.h"

void soda_prefetch_show_mode(struct soda_prefetch *p, const struct soda_owner *o)
{
	uint8_t mode = SODA_MODE_GHOSTS;

	if (o->s.advice == SODA_OWNER_UNCACHED)
		mode = SODA_MODE_UNCACHED;
	else if (soda_prefetch_fetches(p, o))
		mode = SODA_MODE_ON;
	/* relaxed: a read that sees it late is looked up, or not, once more */
	atomic_store_explicit(&p->modes[o->id], mode, memory_order_relaxed);
}

void soda_prefetch_drop_ghost(struct soda_prefetch *p, struct soda_owner *o)
{
	if (!o->ghost)
		return;
	p->ghost_bytes -= soda_ghost_bytes(soda_cache_slots(p->cache), o->entries);
	soda_ghost_destroy(o->ghost);
	o->ghost = NULL;
}

void soda_prefetch_unwant_locked(struct soda_prefetch *p, uint32_t owner)
{
	for (uint32_t i = 0; i < p->queue_n; i++) {
		struct soda_fill *fill = p->queue[(p->queue_head + i) % SODA_FILLS_MAX];

		if (fill->owner == owner)
			fill->cancelled = true;
	}
	/* Who waits for them is not to wait longer. */
	if (p->queue_n)
		soda_prefetch_ring(p);
}

/* With the lock: what is begun after this is not of this owner. */
static void remove_locked(struct soda_prefetch *p, struct soda_owner *o)
{
	soda_prefetch_unwant_locked(p, o->id);
	soda_cache_forget(p->cache, o->id);
	soda_prefetch_drop_ghost(p, o);
	soda_owner_remove(&p->owners, o);
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
	if (!ret) {
		o->s.regions++;
		soda_prefetch_show_mode(p, o);
		*o_p = o;
	}
	return ret;
}

int soda_prefetch_open(struct soda_prefetch *p, const struct soda_owner_name *name,
		       uint32_t *owner_p)
{
	uint64_t size = soda_cache_entry_bytes(p->cache);
	struct soda_owner *o = NULL;
	int ret;

	if (!name->bytes || name->bytes > INT64_MAX)
		return -EINVAL;
	soda_lock_acquire(&p->lock);
	ret = open_locked(p, name, (name->bytes + size - 1) / size, &o);
	if (!ret)
		*owner_p = o->id;
	soda_lock_release(&p->lock);
	return ret;
}

void soda_prefetch_close(struct soda_prefetch *p, uint32_t owner, bool gone)
{
	struct soda_owner *o;

	soda_lock_acquire(&p->lock);
	o = soda_owner_get(&p->owners, owner);
	if (o && --o->s.regions == 0) {
		o->closed = ++p->owners.closings;
		soda_prefetch_unwant_locked(p, owner);
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
		soda_prefetch_show_mode(p, o);
		if (advice == SODA_OWNER_UNCACHED) {
			soda_prefetch_unwant_locked(p, owner);
			soda_cache_forget(p->cache, owner);
		}
	}
	soda_lock_release(&p->lock);
}

void soda_prefetch_stats(struct soda_prefetch *p, struct soda_prefetch_stats *stats_p)
{
	struct soda_prefetch_stats s = { .net_bytes_per_s = soda_rate_get(&p->link.net),
					 .intra_bytes_per_s = soda_rate_get(&p->link.intra),
					 .ratio = soda_link_ratio(&p->link) };

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
	s.switched_on = p->switched_on;
	s.switched_off = p->switched_off;
	for (uint32_t id = 0; id < p->owners.used; id++) {
		const struct soda_owner *o = soda_owner_get(&p->owners, id);

		s.owners += o != NULL;
		s.owners_on += o && soda_prefetch_fetches(p, o);
	}
	soda_lock_release(&p->lock);
	*stats_p = s;
}

void soda_prefetch_each(struct soda_prefetch *p,
			void (*fn)(void *arg, const struct soda_owner_stats *owner), void *arg)
{
	for (uint32_t id = 0;; id++) {
		struct soda_owner_stats copy;
		const struct soda_owner *o;
		bool end;

		soda_lock_acquire(&p->lock);
		end = id >= p->owners.used;
		o = soda_owner_get(&p->owners, id);
		if (o) {
			copy = o->s;
			copy.ghosts = o->ghost ? soda_ghost_count(o->ghost) : 0;
		}
		soda_lock_release(&p->lock);
		if (end)
			return;
		if (o)
			fn(arg, &copy);
	}
}
