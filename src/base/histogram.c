/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/histogram.h"

#define SUBS (1u << SODA_HISTOGRAM_SUB_BITS)

static uint64_t get(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static void add(_Atomic uint64_t *word, uint64_t n)
{
	atomic_fetch_add_explicit(word, n, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *max, uint64_t value)
{
	uint64_t now = get(max);

	while (now < value && !atomic_compare_exchange_weak_explicit(
				      max, &now, value, memory_order_relaxed, memory_order_relaxed))
		;
}

unsigned soda_histogram_bucket(uint64_t value)
{
	unsigned octave;

	if (value < SUBS)
		return (unsigned)value;
	if (value >> SODA_HISTOGRAM_TOP_BITS)
		return SODA_HISTOGRAM_BUCKETS - 1;
	octave = 63 - (unsigned)__builtin_clzll(value) - SODA_HISTOGRAM_SUB_BITS;
	/* value >> octave is SUBS and more: its highest bit adds the octave that is missing */
	return octave * SUBS + (unsigned)(value >> octave);
}

static uint64_t bucket_width(unsigned bucket)
{
	return bucket < 2 * SUBS ? 1 : (uint64_t)1 << (bucket / SUBS - 1);
}

uint64_t soda_histogram_bucket_low(unsigned bucket)
{
	return bucket < SUBS ? bucket : (SUBS + bucket % SUBS) * bucket_width(bucket);
}

uint64_t soda_histogram_bucket_count(const struct soda_histogram *h, unsigned bucket)
{
	return get(&h->counts[bucket]);
}

void soda_histogram_add(struct soda_histogram *h, uint64_t value, uint64_t n)
{
	if (!n)
		return;
	add(&h->counts[soda_histogram_bucket(value)], n);
	add(&h->sum, value * n);
	raise_to(&h->max, value);
}

void soda_histogram_record(struct soda_histogram *h, uint64_t value)
{
	soda_histogram_add(h, value, 1);
}

void soda_histogram_merge(struct soda_histogram *into, const struct soda_histogram *from)
{
	for (unsigned i = 0; i < SODA_HISTOGRAM_BUCKETS; i++) {
		uint64_t n = get(&from->counts[i]);

		if (n)
			add(&into->counts[i], n);
	}
	add(&into->sum, get(&from->sum));
	raise_to(&into->max, get(&from->max));
}

static uint64_t count_first(const struct soda_histogram *h, unsigned buckets)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < buckets; i++)
		n += get(&h->counts[i]);
	return n;
}

uint64_t soda_histogram_count(const struct soda_histogram *h)
{
	return count_first(h, SODA_HISTOGRAM_BUCKETS);
}

uint64_t soda_histogram_count_below(const struct soda_histogram *h, uint64_t limit)
{
	return count_first(h, limit >> SODA_HISTOGRAM_TOP_BITS ? SODA_HISTOGRAM_BUCKETS
							       : soda_histogram_bucket(limit));
}

uint64_t soda_histogram_sum(const struct soda_histogram *h)
{
	return get(&h->sum);
}

uint64_t soda_histogram_max(const struct soda_histogram *h)
{
	return get(&h->max);
}

/* The middle of a bucket, at most the maximum. */
static uint64_t bucket_middle(const struct soda_histogram *h, unsigned bucket)
{
	uint64_t middle = soda_histogram_bucket_low(bucket) + bucket_width(bucket) / 2;
	uint64_t max = get(&h->max);

	return middle < max ? middle : max;
}

uint64_t soda_histogram_percentile(const struct soda_histogram *h, double percent)
{
	uint64_t n = soda_histogram_count(h), seen = 0, rank;
	double wanted = percent / 100 * (double)n;

	if (!n)
		return 0;
	if (percent >= 100)
		return get(&h->max);
	rank = wanted > 1 ? (uint64_t)wanted : 1;
	rank += (double)rank < wanted; /* rounded up */
	for (unsigned i = 0; i < SODA_HISTOGRAM_BUCKETS; i++) {
		seen += get(&h->counts[i]);
		if (seen >= rank)
			return bucket_middle(h, i);
	}
	return get(&h->max);
}
