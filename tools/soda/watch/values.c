/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/values.h"

#include <math.h>
#include <string.h>

static double number(const struct soda_top_sample *sample, const char *key, size_t n)
{
	const json_t *value = sample->counters ? json_object_getn(sample->counters, key, n) : NULL;

	return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double evaluate(const struct soda_top_sample *sample, const char *expr)
{
	double sum = 0, sign = 1;

	for (;;) {
		size_t n = strcspn(expr, "+-");

		sum += sign * number(sample, expr, n);
		if (!expr[n])
			return sum;
		sign = expr[n] == '+' ? 1 : -1;
		expr += n + 1;
	}
}

double soda_top_gauge(const struct soda_top_pair *pair, const char *expr)
{
	return evaluate(&pair->now, expr);
}

/* Whether one of the counters is less than before: then this is another instance. */
static bool fell(const struct soda_top_pair *pair, const char *expr)
{
	for (;; expr++) {
		size_t n = strcspn(expr, "+-");

		if (number(&pair->now, expr, n) < number(&pair->before, expr, n))
			return true;
		expr += n;
		if (!*expr)
			return false;
	}
}

double soda_top_growth(const struct soda_top_pair *pair, const char *expr)
{
	return fell(pair, expr) ? (double)NAN
				: evaluate(&pair->now, expr) - evaluate(&pair->before, expr);
}

double soda_top_rate(const struct soda_top_pair *pair, const char *expr)
{
	double ns = (double)(pair->now.at_ns - pair->before.at_ns);

	return ns > 0 ? soda_top_growth(pair, expr) * 1e9 / ns : (double)NAN;
}

double soda_top_ratio(const struct soda_top_pair *pair, const char *part, const char *whole)
{
	bool totals = !pair->before.counters;
	double of = totals ? soda_top_gauge(pair, whole) : soda_top_growth(pair, whole);
	double is = totals ? soda_top_gauge(pair, part)
			   : evaluate(&pair->now, part) - evaluate(&pair->before, part);

	return of > 0 ? is / of : (double)NAN;
}

bool soda_top_histogram(const struct soda_top_sample *sample, const char *key,
			struct soda_histogram *into)
{
	const json_t *object = json_object_get(sample->counters, key);
	const json_t *buckets = json_object_get(object, "buckets");
	size_t i;
	json_t *bucket;

	if (!json_is_array(buckets))
		return false;
	json_array_foreach(buckets, i, bucket)
	{
		json_int_t low = json_integer_value(json_array_get(bucket, 0));
		json_int_t n = json_integer_value(json_array_get(bucket, 1));

		if (low >= 0 && n > 0)
			soda_histogram_add(into, (uint64_t)low, (uint64_t)n);
	}
	return true;
}

bool soda_top_recorded(const struct soda_top_pair *pair, const char *key,
		       struct soda_histogram *into)
{
	static _Thread_local struct soda_histogram now, before;

	memset(&now, 0, sizeof(now));
	memset(&before, 0, sizeof(before));
	if (!soda_top_histogram(&pair->now, key, &now))
		return false;
	soda_top_histogram(&pair->before, key, &before);
	for (unsigned i = 0; i < SODA_HISTOGRAM_BUCKETS; i++) {
		uint64_t n = soda_histogram_bucket_count(&now, i);
		uint64_t old = soda_histogram_bucket_count(&before, i);

		if (n < old)
			return false;
		soda_histogram_add(into, soda_histogram_bucket_low(i), n - old);
	}
	return true;
}

const char *soda_top_text(const json_t *object, const char *key, const char *otherwise)
{
	const json_t *value = json_object_get(object, key);

	return json_is_string(value) ? json_string_value(value) : otherwise;
}
