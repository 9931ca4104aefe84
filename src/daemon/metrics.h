/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon's statistics.  The daemon has one function, the walk, which says every
 * statistic with its name to a writer; one writer makes JSON (SODA_MSG_STATS,
 * `soda stat`) of that, another the Prometheus text format.
 *
 *   walk:  number, number, text, histogram ...
 *          list "client_list" of "client"
 *            item  text "id", number ...  list ... list_end  item_end
 *          list_end
 *
 * JSON: an object with the keys as given, lists as arrays of objects.
 * Prometheus: PREFIX_[ITEM_]NAME[_UNIT][_total]{ITEM="id"}.  The name is the key
 * without its unit ("bytes_read", "cpu_ns"); times are in seconds there.  Texts and ids, which are
 * no measurements, become labels of PREFIX_[ITEM_]info.
 *
 * Threads: one thread makes a walk; the daemon guards what the walk reads.
 */
#ifndef SODA_DAEMON_METRICS_H
#define SODA_DAEMON_METRICS_H

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
	SODA_UNIT_NONE, /* counts of things, and ratios */
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

/* A list, and its bound for Prometheus, which remembers every item that it has read. */
struct soda_metric_list {
	const char *key;  /* in JSON */
	const char *item; /* in Prometheus: the label, and a part of the names */
	unsigned limit;	  /* items shown in all lists of this key; others are only counted */
};

/* A daemon's walk: says all statistics to m. */
typedef void soda_metrics_walk(void *arg, struct soda_metrics *m);

/* For walks.  Strings are copied; a text need not be UTF-8. */
void soda_metrics_number(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value);
void soda_metrics_real(struct soda_metrics *m, const struct soda_metric *metric, double value);
/* JSON: true or false; Prometheus: 1 or 0. */
void soda_metrics_flag(struct soda_metrics *m, const struct soda_metric *metric, bool value);
/* The same, without a struct soda_metric. */
void soda_metrics_say(struct soda_metrics *m, enum soda_metric_kind kind,
		      enum soda_metric_unit unit, const char *key, const char *help,
		      uint64_t value);
void soda_metrics_say_flag(struct soda_metrics *m, const char *key, const char *help, bool value);
void soda_metrics_say_real(struct soda_metrics *m, const char *key, const char *help, double value);
/* A gauge: a number of things, or of bytes. */
void soda_metrics_say_level(struct soda_metrics *m, const char *key, const char *help,
			    uint64_t value);
void soda_metrics_say_size(struct soda_metrics *m, const char *key, const char *help,
			   uint64_t value);
/*
 * h: a copy, to which no thread records meanwhile.  JSON: an object {count, sum, p50, p90, p99,
 * p999, max, with their unit, and buckets, [[lowest value, count], ...]} without empty buckets.
 */
void soda_metrics_histogram(struct soda_metrics *m, const struct soda_metric *metric,
			    const struct soda_histogram *h);
/*
 * A text, or a number, that identifies or describes something.  The first of an item must have the
 * key "id", and at most 47 bytes.
 */
void soda_metrics_text(struct soda_metrics *m, const char *key, const char *text);
void soda_metrics_id(struct soda_metrics *m, const char *key, uint64_t number);
/* An identity of `digits` hexadecimal digits, as a text. */
void soda_metrics_hex(struct soda_metrics *m, const char *key, uint64_t number, int digits);
void soda_metrics_list(struct soda_metrics *m, const struct soda_metric_list *list);
void soda_metrics_item(struct soda_metrics *m);
void soda_metrics_item_end(struct soda_metrics *m);
void soda_metrics_list_end(struct soda_metrics *m);

/* Say pid, uptime_ms and cpu_ns of the process. started_ns: soda_now_ns() at its start. */
void soda_metrics_process(struct soda_metrics *m, uint64_t started_ns);

/*
 * Write all statistics as JSON to out, not terminated.  If they do not fit, the innermost
 * lists are left out, then those around them.  Returns the length, or -ENOMEM.
 */
long soda_metrics_json(soda_metrics_walk *walk, void *arg, char *out, size_t bytes);
/*
 * All statistics in the Prometheus text format, version 0.0.4.  prefix: "soda_mem_server".
 * 0 or -ENOMEM; the caller frees the text, which is terminated.
 */
int soda_metrics_prometheus(soda_metrics_walk *walk, void *arg, const char *prefix, char **text_p,
			    size_t *bytes_p);

#endif
