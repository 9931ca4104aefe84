/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts how often each value was recorded, such as how long requests took.  Log-linear: values
 * below 16 have a bucket each, every power of two above has 16 of equal width, so that a value that
 * is read back is within 1/32 of the one that was recorded.  Fixed size, nothing is allocated;
 * zeroed memory is an empty histogram.
 *
 * Recording is lock-free and async-signal-safe, any number of threads at once.
 * Threads that record often should have a histogram each, as they would share cache lines,
 * and merge them to read.  Readers may run beside recorders.
 *
 * Invariant, at rest: the counts of the buckets add up to the number of records.
 *
 * Source: the bucket layout is that of HdrHistogram (Gil Tene).
 */
#ifndef SODA_BASE_HISTOGRAM_H
#define SODA_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	SODA_HISTOGRAM_SUB_BITS = 4,
	SODA_HISTOGRAM_TOP_BITS = 42, /* values from 2^42 on share the last bucket: 73 minutes */
	SODA_HISTOGRAM_BUCKETS = (SODA_HISTOGRAM_TOP_BITS - SODA_HISTOGRAM_SUB_BITS + 1)
				 << SODA_HISTOGRAM_SUB_BITS,
};

struct soda_histogram { /* all: atomic, relaxed; no order between them is promised */
	_Atomic uint64_t counts[SODA_HISTOGRAM_BUCKETS];
	_Atomic uint64_t sum; /* of the exact values */
	_Atomic uint64_t max;
};

/* One value, usually nanoseconds. Any thread, async-signal-safe. */
void soda_histogram_record(struct soda_histogram *h, uint64_t value);
/* The same value n times. Any thread, async-signal-safe. */
void soda_histogram_add(struct soda_histogram *h, uint64_t value, uint64_t n);
/* Add all of `from` to `into`. Any thread; `from` may be recorded to meanwhile. */
void soda_histogram_merge(struct soda_histogram *into, const struct soda_histogram *from);

/* How many values there are. */
uint64_t soda_histogram_count(const struct soda_histogram *h);
/* How many of them are below `limit`: exact where that is a power of two, and less than 2^42. */
uint64_t soda_histogram_count_below(const struct soda_histogram *h, uint64_t limit);
uint64_t soda_histogram_sum(const struct soda_histogram *h);
uint64_t soda_histogram_max(const struct soda_histogram *h);
/*
 * The value that `percent` of all values do not exceed, within 1/32, never above
 * the maximum.  percent from 0 (the least) to 100 (the maximum, exactly); 0 if
 * nothing was recorded.
 */
uint64_t soda_histogram_percentile(const struct soda_histogram *h, double percent);

/* The bucket that a value falls into, and the lowest value of a bucket. */
unsigned soda_histogram_bucket(uint64_t value);
uint64_t soda_histogram_bucket_low(unsigned bucket);
uint64_t soda_histogram_bucket_count(const struct soda_histogram *h, unsigned bucket);

#endif
