/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/allotment.h"

void soda_allotment_init(struct soda_allotment *a, uint64_t total)
{
	*a = (struct soda_allotment){ .total = total };
	pthread_mutex_init(&a->lock, NULL);
}

void soda_allotment_destroy(struct soda_allotment *a)
{
	pthread_mutex_lock(&a->lock);
	if (!a->shares.all)
		soda_shares_free(&a->shares);
	pthread_mutex_unlock(&a->lock);
}

int soda_allotment_prepare(struct soda_allotment *a, uint32_t tenant)
{
	int ret;

	pthread_mutex_lock(&a->lock);
	ret = soda_shares_prepare(&a->shares, tenant);
	pthread_mutex_unlock(&a->lock);
	return ret;
}

void soda_allotment_count(struct soda_allotment *a, uint32_t tenant, int64_t bytes)
{
	atomic_fetch_add_explicit(&a->taken, (uint64_t)bytes, memory_order_relaxed);
	if (!tenant)
		return;
	pthread_mutex_lock(&a->lock);
	if (bytes < 0)
		soda_shares_put(&a->shares, tenant, (uint64_t)-bytes);
	else
		soda_shares_take(&a->shares, tenant, (uint64_t)bytes); /* prepared */
	pthread_mutex_unlock(&a->lock);
}

/* The rest of what is kept for the tenant is its own, whatever others have. */
static uint64_t left_locked(const struct soda_allotment *a, struct soda_holder holder)
{
	uint64_t left = soda_shares_left(&a->shares, a->total, holder);
	uint64_t kept = soda_shares_kept(a->total, holder.of);
	uint64_t has = soda_shares_of(&a->shares, holder.number);

	return has < kept && kept - has > left ? kept - has : left;
}

uint64_t soda_allotment_left(struct soda_allotment *a, struct soda_holder holder)
{
	uint64_t taken, left;

	if (!holder.number) {
		taken = atomic_load_explicit(&a->taken, memory_order_relaxed);
		return taken < a->total ? a->total - taken : 0;
	}
	pthread_mutex_lock(&a->lock);
	left = left_locked(a, holder);
	pthread_mutex_unlock(&a->lock);
	return left;
}
