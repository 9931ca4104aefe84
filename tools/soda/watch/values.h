/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbers out of two answers of a target, for `soda top` and `soda stat`: gauges, rates, ratios,
 * and percentiles of what happened between them.  A number that an answer lacks is NAN.
 */
#ifndef SODA_TOP_VALUES_H
#define SODA_TOP_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"

/* One answer: the object that holds the counters. */
struct soda_top_sample {
	json_t *counters; /* NULL: none */
	uint64_t at_ns;	  /* CLOCK_MONOTONIC */
};

/* Two answers; `before` may be empty: then ratios are those of the totals since the start. */
struct soda_top_pair {
	struct soda_top_sample before, now;
};

/* A number now.  expr: keys joined by + and -, "reads+writes"; NAN if one is not there. */
double soda_top_gauge(const struct soda_top_pair *pair, const char *expr);
/* How much it has grown between the two. NAN without both, or when the target has started anew. */
double soda_top_growth(const struct soda_top_pair *pair, const char *expr);
/* Growth a second. */
double soda_top_rate(const struct soda_top_pair *pair, const char *expr);
/* Growth of one in the growth of another; totals without `before`. NAN if nothing happened. */
double soda_top_ratio(const struct soda_top_pair *pair, const char *part, const char *whole);

/* The histogram `key` of an answer added to *into; false: there is none. */
bool soda_top_histogram(const struct soda_top_sample *sample, const char *key,
			struct soda_histogram *into);
/*
 * What was recorded between the two, or all of it without `before`, added to *into.
 * False: no such histogram, or the target has started anew.
 */
bool soda_top_recorded(const struct soda_top_pair *pair, const char *key,
		       struct soda_histogram *into);

/* A client of the list `client_list`: texts and numbers. */
const char *soda_top_text(const json_t *object, const char *key, const char *otherwise);

#endif
