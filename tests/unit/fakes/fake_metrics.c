/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/fake_metrics.h"

#include "daemon/metrics_impl.h"

static void (*told)(void);
static unsigned times;

static void tell(void)
{
	times++;
	told();
}

static void number(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value)
{
	tell();
}

static void flag(struct soda_metrics *m, const struct soda_metric *metric, bool value)
{
	tell();
}

static void histogram(struct soda_metrics *m, const struct soda_metric *metric,
		      const struct soda_histogram *h)
{
}

static void text(struct soda_metrics *m, const char *key, const char *value)
{
	tell();
}

static void id(struct soda_metrics *m, const char *key, uint64_t value)
{
	tell();
}

static bool list(struct soda_metrics *m, const struct soda_metric_list *which)
{
	return true;
}

static bool item(struct soda_metrics *m)
{
	tell();
	return true;
}

static void end(struct soda_metrics *m)
{
	tell();
}

unsigned fake_metrics_walk(soda_metrics_walk *walk, void *arg, void (*said)(void))
{
	static const struct soda_metrics_ops ops = { .number = number,
						     .flag = flag,
						     .histogram = histogram,
						     .text = text,
						     .id = id,
						     .list = list,
						     .item = item,
						     .item_end = end,
						     .list_end = end };
	struct soda_metrics m = { .ops = &ops };

	told = said;
	times = 0;
	walk(arg, &m);
	return times;
}
