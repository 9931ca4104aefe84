/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/shares.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MORE = 16 };

uint64_t soda_shares_kept(uint64_t total, uint32_t of)
{
	if (!of || of > total)
		return 0;
	return total / 2 < of ? 1 : total / 2 / of;
}

uint64_t soda_shares_of(const struct soda_shares *shares, uint32_t number)
{
	return number < shares->n ? shares->taken[number] : 0;
}

bool soda_shares_owed(const struct soda_shares *shares, uint64_t total, struct soda_holder holder)
{
	return holder.number &&
	       soda_shares_of(shares, holder.number) < soda_shares_kept(total, holder.of);
}

/* How much is kept for others and not taken. */
static uint64_t kept_for_others(const struct soda_shares *shares, uint64_t total,
				struct soda_holder holder)
{
	uint64_t each = soda_shares_kept(total, holder.of), used = 0;
	uint64_t kept = holder.of ? each * (holder.of - 1) : 0;

	if (!holder.number || !kept)
		return 0;
	for (uint32_t i = 1; i < shares->n; i++)
		if (i != holder.number)
			used += shares->taken[i] < each ? shares->taken[i] : each;
	return used < kept ? kept - used : 0; /* a tenant that was removed may still have some */
}

bool soda_shares_room(const struct soda_shares *shares, uint64_t total, struct soda_holder holder,
		      uint64_t n, uint64_t back)
{
	uint64_t left = shares->all < total ? total - shares->all : 0;
	uint64_t kept = soda_shares_kept(total, holder.of);

	if (n > left)
		return false;
	if (holder.number && soda_shares_of(shares, holder.number) + n <= kept)
		return true;
	return left - n >= kept_for_others(shares, total, holder) + back;
}

uint64_t soda_shares_left(const struct soda_shares *shares, uint64_t total,
			  struct soda_holder holder)
{
	uint64_t left = shares->all < total ? total - shares->all : 0;
	uint64_t has = soda_shares_of(shares, holder.number), own = 0, common;
	uint64_t kept = soda_shares_kept(total, holder.of);
	uint64_t others = kept_for_others(shares, total, holder);

	if (holder.number && has < kept)
		own = kept - has < left ? kept - has : left;
	common = left > others ? left - others : 0;
	return own > common ? own : common;
}

int soda_shares_prepare(struct soda_shares *shares, uint32_t number)
{
	uint32_t n = number + MORE;
	uint64_t *taken;

	if (!number || number < shares->n)
		return 0;
	taken = realloc(shares->taken, n * sizeof(*taken));
	if (!taken)
		return -ENOMEM;
	memset(taken + shares->n, 0, (n - shares->n) * sizeof(*taken));
	shares->taken = taken;
	shares->n = n;
	return 0;
}

int soda_shares_take(struct soda_shares *shares, uint32_t number, uint64_t n)
{
	int ret = soda_shares_prepare(shares, number);

	if (ret)
		return ret;
	if (number)
		shares->taken[number] += n;
	shares->all += n;
	return 0;
}

void soda_shares_put(struct soda_shares *shares, uint32_t number, uint64_t n)
{
	if (number)
		shares->taken[number] -= n;
	shares->all -= n;
}

void soda_shares_free(struct soda_shares *shares)
{
	free(shares->taken);
	*shares = (struct soda_shares){ 0 };
}
