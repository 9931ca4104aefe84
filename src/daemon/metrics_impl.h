/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that a writer of statistics (JSON, Prometheus) has. For metrics*.c only. */
#ifndef SODA_DAEMON_METRICS_IMPL_H
#define SODA_DAEMON_METRICS_IMPL_H

#include "daemon/metrics.h"

enum { SODA_METRICS_DEPTH = 3 }; /* levels of lists in lists, with the top one */

struct soda_metrics_ops {
	void (*number)(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value);
	void (*real)(struct soda_metrics *m, const struct soda_metric *metric, double value);
	void (*flag)(struct soda_metrics *m, const struct soda_metric *metric, bool value);
	void (*histogram)(struct soda_metrics *m, const struct soda_metric *metric,
			  const struct soda_histogram *h);
	void (*text)(struct soda_metrics *m, const char *key, const char *text);
	void (*id)(struct soda_metrics *m, const char *key, uint64_t number);
	/* False: the writer declines the list, and none of its items is said. */
	bool (*list)(struct soda_metrics *m, const struct soda_metric_list *list);
	/* False: the writer declines the item. */
	bool (*item)(struct soda_metrics *m);
	void (*item_end)(struct soda_metrics *m);
	void (*list_end)(struct soda_metrics *m);
};

/* The first member of each writer. */
struct soda_metrics {
	const struct soda_metrics_ops *ops;
	unsigned depth;	  /* open items */
	unsigned skipped; /* open lists and items that the writer has declined */
};

/*
 * Write the metric's key without its unit: "bytes_read" and "read_bytes" -> "read", "bytes" ->
 * "size".
 */
void soda_metric_stem(const struct soda_metric *metric, char *out, size_t bytes);
/* Whether the text is UTF-8, as both formats require. */
bool soda_metrics_is_utf8(const char *text);

#endif
