/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of a daemon's memory, made when they are first used. See reach.h. */
#include "transport/verbs/link/regcache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "transport/api/memory.h"
#include "transport/verbs/link/link.h"

/* A part's key on one device; mr NULL: it cannot be registered there. */
struct key {
	struct key *next;
	struct soda_verbs_reach *reach;
	struct ibv_mr *mr;
};

static struct soda_verbs_reach *reaches; /* guarded by soda_memory_lock */

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

static void forget_one(struct soda_memory_part *part, void *reach)
{
	struct key **at = (struct key **)&part->keys, *k;

	while (*at && (*at)->reach != reach)
		at = &(*at)->next;
	k = *at;
	if (!k)
		return;
	*at = k->next;
	soda_verbs_unregister(k->mr);
	free(k);
}

static struct soda_verbs_reach *make_locked(struct ibv_context *device)
{
	struct soda_verbs_reach *r = calloc(1, sizeof(*r));

	if (r)
		r->pd = ibv_alloc_pd(device);
	if (!r || !r->pd) {
		free(r);
		return NULL;
	}
	r->next = reaches;
	reaches = r;
	return r;
}

int soda_verbs_reach_get(struct ibv_context *device, struct soda_verbs_reach **reach_p)
{
	struct soda_verbs_reach *r;

	soda_memory_set_forget(forget_all);
	pthread_rwlock_wrlock(&soda_memory_lock);
	for (r = reaches; r && r->pd->context != device;)
		r = r->next;
	if (!r)
		r = make_locked(device);
	if (r)
		r->refs++;
	pthread_rwlock_unlock(&soda_memory_lock);
	*reach_p = r;
	return r ? 0 : -ENOMEM;
}

void soda_verbs_reach_put(struct soda_verbs_reach *reach)
{
	struct soda_verbs_reach **at = &reaches;

	if (!reach)
		return;
	pthread_rwlock_wrlock(&soda_memory_lock);
	if (--reach->refs == 0) {
		soda_memory_each_locked(forget_one, reach);
		while (*at != reach)
			at = &(*at)->next;
		*at = reach->next;
		ibv_dealloc_pd(reach->pd);
		free(reach);
	}
	pthread_rwlock_unlock(&soda_memory_lock);
}

static struct key *find(const struct soda_memory_part *part, const struct soda_verbs_reach *reach)
{
	struct key *k = part->keys;

	while (k && k->reach != reach)
		k = k->next;
	return k;
}

static struct key *make_key_locked(struct soda_memory_part *part, struct soda_verbs_reach *reach)
{
	struct key *k = calloc(1, sizeof(*k));
	struct soda_why why;
	int ret;

	if (!k)
		return NULL;
	ret = soda_verbs_register(reach->pd, part->memory, part->bytes, IBV_ACCESS_LOCAL_WRITE,
				  &k->mr, &why);
	if (ret == -EFAULT) /* not ours to write to: data only leave from it */
		ret = soda_verbs_register(reach->pd, part->memory, part->bytes, 0, &k->mr, &why);
	if (ret < 0)
		soda_log_warning("data are copied that need not be: %s", why.text);
	k->reach = reach;
	k->next = part->keys;
	part->keys = k;
	return k;
}

bool soda_verbs_reach_key(struct soda_verbs_reach *reach, const void *memory, uint64_t bytes,
			  uint32_t *lkey_p)
{
	struct soda_memory_part *part;
	struct key *k = NULL;
	bool known;

	pthread_rwlock_rdlock(&soda_memory_lock);
	part = soda_memory_find_locked(memory, bytes);
	if (part)
		k = find(part, reach);
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
		k = find(part, reach);
	if (part && !k)
		k = make_key_locked(part, reach);
	if (k && k->mr)
		*lkey_p = k->mr->lkey;
	known = k && k->mr;
	pthread_rwlock_unlock(&soda_memory_lock);
	return known;
}
