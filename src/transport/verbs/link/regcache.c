/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of a daemon's memory, made when they are first used. See regcache.h. */
#include "transport/verbs/link/regcache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "transport/api/memory.h"
#include "transport/verbs/link/link.h"

/* A part's key on one device; mr NULL: it cannot be registered there. */
struct key {
	struct key *next;
	struct soda_regcache *cache;
	struct ibv_mr *mr;
};

static struct soda_regcache *caches; /* guarded by soda_memory_lock */

static void forget_all(struct soda_memory_part *part)
{
	struct key *k = part->keys, *next;

	for (; k; k = next) {
		next = k->next;
		soda_verbs_unregister(k->mr);
		free(k);
	}
	part->keys = NULL;
}

static void forget_one(struct soda_memory_part *part, void *cache)
{
	struct key **at = (struct key **)&part->keys, *k;

	while (*at && (*at)->cache != cache)
		at = &(*at)->next;
	k = *at;
	if (!k)
		return;
	*at = k->next;
	soda_verbs_unregister(k->mr);
	free(k);
}

static struct soda_regcache *make_locked(struct ibv_context *device)
{
	struct soda_regcache *r = calloc(1, sizeof(*r));

	if (r)
		r->pd = ibv_alloc_pd(device);
	if (!r || !r->pd) {
		free(r);
		return NULL;
	}
	r->next = caches;
	caches = r;
	return r;
}

int soda_regcache_get(struct ibv_context *device, struct soda_regcache **cache_p)
{
	struct soda_regcache *r;

	soda_memory_set_forget(forget_all);
	pthread_rwlock_wrlock(&soda_memory_lock);
	for (r = caches; r && r->pd->context != device;)
		r = r->next;
	if (!r)
		r = make_locked(device);
	if (r)
		r->refs++;
	pthread_rwlock_unlock(&soda_memory_lock);
	*cache_p = r;
	return r ? 0 : -ENOMEM;
}

void soda_regcache_put(struct soda_regcache *cache)
{
	struct soda_regcache **at = &caches;

	if (!cache)
		return;
	pthread_rwlock_wrlock(&soda_memory_lock);
	if (--cache->refs == 0) {
		soda_memory_each_locked(forget_one, cache);
		while (*at != cache)
			at = &(*at)->next;
		*at = cache->next;
		ibv_dealloc_pd(cache->pd);
		free(cache);
	}
	pthread_rwlock_unlock(&soda_memory_lock);
}

static struct key *find(const struct soda_memory_part *part, const struct soda_regcache *cache)
{
	struct key *k = part->keys;

	while (k && k->cache != cache)
		k = k->next;
	return k;
}

static struct key *make_key_locked(struct soda_memory_part *part, struct soda_regcache *cache)
{
	struct key *k = calloc(1, sizeof(*k));
	struct soda_why why;
	int ret;

	if (!k)
		return NULL;
	ret = soda_verbs_register(cache->pd, part->memory, part->bytes, IBV_ACCESS_LOCAL_WRITE,
				  &k->mr, &why);
	if (ret == -EFAULT) /* not ours to write to: data only leave from it */
		ret = soda_verbs_register(cache->pd, part->memory, part->bytes, 0, &k->mr, &why);
	if (ret < 0)
		soda_log_warning("data are copied that need not be: %s", why.text);
	k->cache = cache;
	k->next = part->keys;
	part->keys = k;
	return k;
}

bool soda_regcache_lkey(struct soda_regcache *cache, const void *memory, uint64_t bytes,
			uint32_t *lkey_p)
{
	struct soda_memory_part *part;
	struct key *k = NULL;
	bool known;

	pthread_rwlock_rdlock(&soda_memory_lock);
	part = soda_memory_find_locked(memory, bytes);
	if (part)
		k = find(part, cache);
	known = part && !k;
	if (k && k->mr)
		*lkey_p = k->mr->lkey;
	else
		k = NULL;
	pthread_rwlock_unlock(&soda_memory_lock);
	if (k || !known)
		return k != NULL;
	pthread_rwlock_wrlock(&soda_memory_lock);
	part = soda_memory_find_locked(memory, bytes);
	if (part)
		k = find(part, cache);
	if (part && !k)
		k = make_key_locked(part, cache);
	if (k && k->mr)
		*lkey_p = k->mr->lkey;
	known = k && k->mr;
	pthread_rwlock_unlock(&soda_memory_lock);
	return known;
}
