/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon's statistics, said once.  The daemon writes one function that walks
 * over what it knows and names it; the same walk becomes JSON (SODA_MSG_STATS,
 * `soda stat`) or the Prometheus text format.
 *
 *   walk:  number, number, text, histogram ...
 *          list "client_list" of "client"
 *            item  text "id", number ...  list ... list_end  item_end
 *          list_end
 *
 * JSON: an object with the keys as given, lists as arrays of objects.
 * Prometheus: PREFIX_[ITEM_]NAME[_UNIT][_total]{ITEM="id"}.  The name is the key
 * without its unit ("bytes_read", "cpu_ns"); times are in seconds there.  What is
 * no measurement (text, id) becomes a label of PREFIX_[ITEM_]info.
 *
 * Threads: a walk is one thread's; what it reads is the daemon's to guard.
 */
#ifndef SODA_COMMON_METRICS_H
#define SODA_COMMON_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"

struct soda_metrics;

enum soda_metric_kind {
	SODA_METRIC_COUNTER, /* only grows */
	SODA_METRIC_GAUGE,
};

enum soda_metric_unit {
	SODA_UNIT_NONE, /* things counted, and ratios */
	SODA_UNIT_BYTES,
	SODA_UNIT_NS,
	SODA_UNIT_MS,
};

struct soda_metric {
	const char *key;  /* [a-z][a-z0-9_]*, with its unit */
	const char *name; /* Prometheus, without unit and "_total"; NULL: from the key */
	const char *help; /* a phrase, no full stop */
	enum soda_metric_kind kind;
	enum soda_metric_unit unit;
};

/* How a list is bounded where every item costs its reader for ever (Prometheus). */
struct soda_metric_list {
	const char *key;  /* in JSON */
	const char *item; /* the label, and part of the names */
	unsigned limit;	  /* items shown in all lists of this key; what is left out is counted */
};

/* The daemon's: says all that it knows to m. */
typedef void soda_metrics_walk(void *arg, struct soda_metrics *m);

/* Called by the walk.  Strings are copied; text may be anything, also not UTF-8. */
void soda_metrics_number(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value);
void soda_metrics_real(struct soda_metrics *m, const struct soda_metric *metric, double value);
/* JSON: true or false; Prometheus: 1 or 0. */
void soda_metrics_flag(struct soda_metrics *m, const struct soda_metric *metric, bool value);
/* The same, for what has no struct of its own. */
void soda_metrics_say(struct soda_metrics *m, enum soda_metric_kind kind,
		      enum soda_metric_unit unit, const char *key, const char *help,
		      uint64_t value);
void soda_metrics_say_flag(struct soda_metrics *m, const char *key, const char *help, bool value);
void soda_metrics_say_real(struct soda_metrics *m, const char *key, const char *help, double value);
/* A gauge of things, of bytes. */
void soda_metrics_say_level(struct soda_metrics *m, const char *key, const char *help,
			    uint64_t value);
void soda_metrics_say_size(struct soda_metrics *m, const char *key, const char *help,
			   uint64_t value);
/*
 * h: nobody records to it meanwhile (a merged copy).  JSON: an object {count, sum, p50, p90, p99,
 * p999, max, with their unit, and buckets, [[lowest value, count], ...]} without the empty ones.
 */
void soda_metrics_histogram(struct soda_metrics *m, const struct soda_metric *metric,
			    const struct soda_histogram *h);
/*
 * What identifies or describes.  The first of an item must have the key "id" and
 * have at most 47 bytes.
 */
void soda_metrics_text(struct soda_metrics *m, const char *key, const char *text);
void soda_metrics_id(struct soda_metrics *m, const char *key, uint64_t number);
/* An identity of `digits` hexadecimal digits, as a text. */
void soda_metrics_hex(struct soda_metrics *m, const char *key, uint64_t number, int digits);
void soda_metrics_list(struct soda_metrics *m, const struct soda_metric_list *list);
void soda_metrics_item(struct soda_metrics *m);
void soda_metrics_item_end(struct soda_metrics *m);
void soda_metrics_list_end(struct soda_metrics *m);

/* What every daemon says of its process: pid, uptime_ms, cpu_ns. started_ns: by soda_now_ns(). */
void soda_metrics_process(struct soda_metrics *m, uint64_t started_ns);

/*
 * All as JSON text into out, not terminated.  Where it does not fit, the innermost
 * lists are left out, and then those around them.  The length, or -ENOMEM.
 */
long soda_metrics_json(soda_metrics_walk *walk, void *arg, char *out, size_t bytes);
/*
 * All in the Prometheus text format, version 0.0.4.  prefix: "soda_mem_server".
 * 0 or -ENOMEM; the text, terminated, is the caller's to free.
 */
int soda_metrics_prometheus(soda_metrics_walk *walk, void *arg, const char *prefix, char **text_p,
			    size_t *bytes_p);

#endif
