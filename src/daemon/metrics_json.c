/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics as JSON. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "daemon/metrics_impl.h"

struct json_writer {
	struct soda_metrics m; /* first */
	unsigned levels;       /* levels of lists that are written */
	json_t *objects[SODA_METRICS_DEPTH];
	json_t *lists[SODA_METRICS_DEPTH]; /* [d]: the open list in objects[d]; borrowed */
};

static struct json_writer *writer_of(struct soda_metrics *m)
{
	return (struct json_writer *)m;
}

static json_t *object(struct soda_metrics *m)
{
	return writer_of(m)->objects[m->depth];
}

static json_t *integer(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static void number(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value)
{
	json_object_set_new(object(m), metric->key, integer(value));
}

static void real(struct soda_metrics *m, const struct soda_metric *metric, double value)
{
	json_t *json = json_real(value); /* NULL: not finite */

	json_object_set_new(object(m), metric->key, json ? json : json_null());
}

static void flag(struct soda_metrics *m, const struct soda_metric *metric, bool value)
{
	json_object_set_new(object(m), metric->key, json_boolean(value));
}

static void text(struct soda_metrics *m, const char *key, const char *value)
{
	json_object_set_new(object(m), key, json_string(value));
}

static void id(struct soda_metrics *m, const char *key, uint64_t value)
{
	json_object_set_new(object(m), key, integer(value));
}

static json_t *buckets(const struct soda_histogram *h)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < SODA_HISTOGRAM_BUCKETS; i++) {
		uint64_t n = soda_histogram_bucket_count(h, i);

		if (n)
			json_array_append_new(list, json_pack("[o,o]",
							      integer(soda_histogram_bucket_low(i)),
							      integer(n)));
	}
	return list;
}

static void histogram(struct soda_metrics *m, const struct soda_metric *metric,
		      const struct soda_histogram *h)
{
	static const char *const units[] = { "", "_bytes", "_ns", "_ms" };
	static const struct {
		const char *name;
		double percent;
	} points[] = { { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p999", 99.9 } };
	json_t *to = json_object();
	char key[64];

	json_object_set_new(to, "count", integer(soda_histogram_count(h)));
	snprintf(key, sizeof(key), "sum%s", units[metric->unit]);
	json_object_set_new(to, key, integer(soda_histogram_sum(h)));
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		snprintf(key, sizeof(key), "%s%s", points[i].name, units[metric->unit]);
		json_object_set_new(to, key,
				    integer(soda_histogram_percentile(h, points[i].percent)));
	}
	snprintf(key, sizeof(key), "max%s", units[metric->unit]);
	json_object_set_new(to, key, integer(soda_histogram_max(h)));
	json_object_set_new(to, "buckets", buckets(h));
	soda_metric_stem(metric, key, sizeof(key));
	json_object_set_new(object(m), key, to);
}

static bool list(struct soda_metrics *m, const struct soda_metric_list *what)
{
	struct json_writer *w = writer_of(m);

	if (m->depth >= w->levels)
		return false;
	w->lists[m->depth] = json_array();
	return !json_object_set_new(object(m), what->key, w->lists[m->depth]);
}

static bool item(struct soda_metrics *m)
{
	struct json_writer *w = writer_of(m);

	w->objects[m->depth + 1] = json_object();
	return !json_array_append_new(w->lists[m->depth], w->objects[m->depth + 1]);
}

static void end(struct soda_metrics *m)
{
}

static const struct soda_metrics_ops ops = {
	.number = number,
	.real = real,
	.flag = flag,
	.histogram = histogram,
	.text = text,
	.id = id,
	.list = list,
	.item = item,
	.item_end = end,
	.list_end = end,
};

long soda_metrics_json(soda_metrics_walk *walk, void *arg, char *out, size_t bytes)
{
	size_t n = bytes + 1;

	for (int levels = SODA_METRICS_DEPTH - 1; levels >= 0 && n > bytes; levels--) {
		struct json_writer w = { .m.ops = &ops, .levels = (unsigned)levels };

		w.objects[0] = json_object();
		walk(arg, &w.m);
		n = json_dumpb(w.objects[0], out, bytes, JSON_COMPACT);
		json_decref(w.objects[0]);
	}
	return n && n <= bytes ? (long)n : -ENOMEM;
}
