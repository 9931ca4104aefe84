/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two writers of statistics implement. For metrics*.c only. */
#ifndef SODA_COMMON_METRICS_IMPL_H
#define SODA_COMMON_METRICS_IMPL_H

#include "daemon/metrics.h"

enum { SODA_METRICS_DEPTH = 3 }; /* lists in lists, the top counted */

struct soda_metrics_ops {
	void (*number)(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value);
	void (*real)(struct soda_metrics *m, const struct soda_metric *metric, double value);
	void (*flag)(struct soda_metrics *m, const struct soda_metric *metric, bool value);
	void (*histogram)(struct soda_metrics *m, const struct soda_metric *metric,
			  const struct soda_histogram *h);
	void (*text)(struct soda_metrics *m, const char *key, const char *text);
	void (*id)(struct soda_metrics *m, const char *key, uint64_t number);
	/* False: the list is not wanted; nothing of it comes. */
	bool (*list)(struct soda_metrics *m, const struct soda_metric_list *list);
	/* False: this item is not. */
	bool (*item)(struct soda_metrics *m);
	void (*item_end)(struct soda_metrics *m);
	void (*list_end)(struct soda_metrics *m);
};

/* The first member of each writer. */
struct soda_metrics {
	const struct soda_metrics_ops *ops;
	unsigned depth;	  /* items that are open */
	unsigned skipped; /* lists and items open that the writer does not want */
};

/* "soda_metric.key" without its unit into out: "bytes_read" and "read_bytes" -> "read", "bytes" ->
 * "size". */
void soda_metric_stem(const struct soda_metric *metric, char *out, size_t bytes);
/* Whether all of it is UTF-8: both formats want that. */
bool soda_metrics_is_utf8(const char *text);

#endif
