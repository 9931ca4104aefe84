/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics in the Prometheus text format.  All samples of one name must stand
 * together, but a walk meets them item by item: each name ("family") collects its
 * own lines, in the order of its first sample, and they are put together at the end.
 *
 * Source: prometheus.io/docs/instrumenting/exposition_formats.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/metrics_impl.h"

enum { FAMILIES_MAX = 512, LISTS_MAX = 16 };

struct buffer {
	FILE *file; /* open_memstream */
	char *text;
	size_t bytes;
};

struct family {
	char name[120];
	struct buffer lines;
};

struct level {
	char labels[256];   /* 'client="...",' for this item and those around it */
	struct buffer info; /* labels of the info metric */
	char part[24];	    /* part of the names: "client_" */
};

struct shown_list {
	const struct soda_metric_list *what;
	unsigned shown, left_out;
};

struct text_writer {
	struct soda_metrics m; /* first */
	const char *prefix;
	bool failed; /* no memory */
	struct family *families[FAMILIES_MAX];
	unsigned families_n;
	struct level levels[SODA_METRICS_DEPTH];
	struct shown_list lists[LISTS_MAX];
	unsigned lists_n;
	struct shown_list *open[SODA_METRICS_DEPTH]; /* [d]: the open list of level d */
};

static struct text_writer *writer_of(struct soda_metrics *m)
{
	return (struct text_writer *)m;
}

/* Buffers.  If there is no memory for one, soda_metrics_prometheus() fails at its end. */

static bool buffer_open(struct text_writer *w, struct buffer *b)
{
	b->text = NULL;
	b->file = open_memstream(&b->text, &b->bytes);
	if (!b->file)
		w->failed = true;
	return b->file;
}

static void buffer_close(struct text_writer *w, struct buffer *b)
{
	if (b->file && (ferror(b->file) | fclose(b->file)))
		w->failed = true;
	b->file = NULL;
}

static void buffer_free(struct text_writer *w, struct buffer *b)
{
	buffer_close(w, b);
	free(b->text);
	b->text = NULL;
}

/* Write a label's value, or, without quotes, a HELP text. */
static void put_escaped(FILE *out, const char *text, bool quotes)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '\\' || (*text == '"' && quotes))
			fprintf(out, "\\%c", *text);
		else
			putc(*text, out);
	}
}

/* Families */

static const char *suffix_of(enum soda_metric_unit unit)
{
	return unit == SODA_UNIT_NONE ? "" : unit == SODA_UNIT_BYTES ? "_bytes" : "_seconds";
}

static struct family *find(struct text_writer *w, const char *name)
{
	for (unsigned i = 0; i < w->families_n; i++)
		if (!strcmp(w->families[i]->name, name))
			return w->families[i];
	return NULL;
}

static struct family *family_open(struct text_writer *w, const char *name, const char *help,
				  const char *type)
{
	struct family *f = w->families_n < FAMILIES_MAX ? calloc(1, sizeof(*f)) : NULL;

	if (!f || !buffer_open(w, &f->lines)) {
		free(f);
		w->failed = true;
		return NULL;
	}
	snprintf(f->name, sizeof(f->name), "%s", name);
	w->families[w->families_n++] = f;
	fprintf(f->lines.file, "# HELP %s ", name);
	put_escaped(f->lines.file, help, false);
	fprintf(f->lines.file, "\n# TYPE %s %s\n", name, type);
	return f;
}

/* The family of a metric at this depth; its name is the same for all items. NULL: no memory. */
static struct family *family_of(struct soda_metrics *m, const struct soda_metric *metric,
				const char *type)
{
	struct text_writer *w = writer_of(m);
	bool total = metric->kind == SODA_METRIC_COUNTER && strcmp(type, "histogram");
	char stem[64], name[120];
	struct family *f;

	if (metric->name)
		snprintf(stem, sizeof(stem), "%s", metric->name);
	else
		soda_metric_stem(metric, stem, sizeof(stem));
	snprintf(name, sizeof(name), "%.20s_%.20s%.48s%s%s", w->prefix, w->levels[m->depth].part,
		 stem, suffix_of(metric->unit), total ? "_total" : "");
	f = find(w, name);
	return f ? f : family_open(w, name, metric->help, type);
}

/* Samples */

/* Write name[suffix]{labels[,le="..."]} and a space. */
static void put_series(struct soda_metrics *m, const struct family *f, const char *suffix,
		       const char *le)
{
	const char *labels = writer_of(m)->levels[m->depth].labels;
	FILE *out = f->lines.file;

	fprintf(out, "%s%s", f->name, suffix);
	if (le)
		fprintf(out, "{%sle=\"%s\"}", labels, le);
	else if (*labels)
		fprintf(out, "{%.*s}", (int)strlen(labels) - 1, labels);
	putc(' ', out);
}

/* Times in seconds, as Prometheus wants them, without rounding. */
static void format_value(char *out, size_t bytes, enum soda_metric_unit unit, uint64_t value)
{
	if (unit == SODA_UNIT_NS)
		snprintf(out, bytes, "%" PRIu64 ".%09" PRIu64, value / 1000000000,
			 value % 1000000000);
	else if (unit == SODA_UNIT_MS)
		snprintf(out, bytes, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
	else
		snprintf(out, bytes, "%" PRIu64, value);
}

static const char *type_of(const struct soda_metric *metric)
{
	return metric->kind == SODA_METRIC_COUNTER ? "counter" : "gauge";
}

static void number(struct soda_metrics *m, const struct soda_metric *metric, uint64_t value)
{
	struct family *f = family_of(m, metric, type_of(metric));
	char text[40];

	if (!f)
		return;
	format_value(text, sizeof(text), metric->unit, value);
	put_series(m, f, "", NULL);
	fprintf(f->lines.file, "%s\n", text);
}

static void real(struct soda_metrics *m, const struct soda_metric *metric, double value)
{
	struct family *f = family_of(m, metric, type_of(metric));

	if (!f)
		return;
	put_series(m, f, "", NULL);
	if (isfinite(value))
		fprintf(f->lines.file, "%.17g\n", value);
	else
		fputs(isnan(value) ? "NaN\n" : value > 0 ? "+Inf\n" : "-Inf\n", f->lines.file);
}

static void flag(struct soda_metrics *m, const struct soda_metric *metric, bool value)
{
	number(m, metric, value);
}

/*
 * Buckets at powers of two less one, which are exact: "le" includes its bound.
 * 1 us to 34 s, 4 KiB to 1 GiB, 0 to 32767 things.
 */
static void histogram(struct soda_metrics *m, const struct soda_metric *metric,
		      const struct soda_histogram *h)
{
	static const struct {
		unsigned first, last;
	} bits[] = { [SODA_UNIT_NONE] = { 0, 15 },
		     [SODA_UNIT_BYTES] = { 12, 30 },
		     [SODA_UNIT_NS] = { 10, 35 },
		     [SODA_UNIT_MS] = { 0, 20 } };
	struct family *f = family_of(m, metric, "histogram");
	uint64_t count = soda_histogram_count(h);
	char text[40];

	if (!f)
		return;
	for (unsigned at = bits[metric->unit].first; at <= bits[metric->unit].last; at++) {
		uint64_t bound = (uint64_t)1 << at;

		format_value(text, sizeof(text), metric->unit, bound - 1);
		put_series(m, f, "_bucket", text);
		fprintf(f->lines.file, "%" PRIu64 "\n", soda_histogram_count_below(h, bound));
	}
	put_series(m, f, "_bucket", "+Inf");
	fprintf(f->lines.file, "%" PRIu64 "\n", count);
	format_value(text, sizeof(text), metric->unit, soda_histogram_sum(h));
	put_series(m, f, "_sum", NULL);
	fprintf(f->lines.file, "%s\n", text);
	put_series(m, f, "_count", NULL);
	fprintf(f->lines.file, "%" PRIu64 "\n", count);
}

/* Labels, lists */

/* Make the item's id a label of all its samples. */
static void name_item(struct text_writer *w, unsigned depth, const char *value)
{
	struct buffer labels;
	char raw[48];

	if (!buffer_open(w, &labels))
		return;
	snprintf(raw, sizeof(raw), "%s", value);
	fprintf(labels.file, "%s%s=\"", w->levels[depth - 1].labels,
		w->open[depth - 1]->what->item);
	put_escaped(labels.file, raw, true);
	fputs("\",", labels.file);
	buffer_close(w, &labels);
	if (labels.text && labels.bytes < sizeof(w->levels[depth].labels))
		memcpy(w->levels[depth].labels, labels.text, labels.bytes + 1);
	else
		w->failed = true;
	free(labels.text);
}

static void text(struct soda_metrics *m, const char *key, const char *value)
{
	struct text_writer *w = writer_of(m);
	struct level *level = &w->levels[m->depth];

	if (m->depth && !strcmp(key, "id")) {
		name_item(w, m->depth, value);
		return;
	}
	if (!level->info.file && !buffer_open(w, &level->info))
		return;
	fprintf(level->info.file, "%s=\"", key);
	put_escaped(level->info.file, value, true);
	fputs("\",", level->info.file);
}

static void id(struct soda_metrics *m, const char *key, uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%" PRIu64, value);
	text(m, key, digits);
}

/* Write PREFIX_[ITEM_]info, with the item's texts and ids as labels. */
static void put_info(struct soda_metrics *m)
{
	static const struct soda_metric metric = { .key = "info",
						   .help = "what it is; always 1",
						   .kind = SODA_METRIC_GAUGE };
	struct text_writer *w = writer_of(m);
	struct level *level = &w->levels[m->depth];
	struct family *f;

	if (!level->info.file)
		return;
	buffer_close(w, &level->info);
	f = w->failed ? NULL : family_of(m, &metric, "gauge");
	if (f)
		fprintf(f->lines.file, "%s{%s%.*s} 1\n", f->name, level->labels,
			(int)level->info.bytes - 1, level->info.text);
	buffer_free(w, &level->info);
}

static bool list(struct soda_metrics *m, const struct soda_metric_list *what)
{
	struct text_writer *w = writer_of(m);
	unsigned i = 0;

	while (i < w->lists_n && strcmp(w->lists[i].what->key, what->key))
		i++;
	if (i == LISTS_MAX)
		return false;
	if (i == w->lists_n)
		w->lists[w->lists_n++] = (struct shown_list){ .what = what };
	w->open[m->depth] = &w->lists[i];
	return true;
}

static bool item(struct soda_metrics *m)
{
	struct text_writer *w = writer_of(m);
	struct shown_list *in = w->open[m->depth];
	struct level *level = &w->levels[m->depth + 1];

	if (in->shown == in->what->limit) {
		in->left_out++;
		return false;
	}
	in->shown++;
	*level = (struct level){ .labels = "" };
	snprintf(level->part, sizeof(level->part), "%.19s_", in->what->item);
	return true;
}

static void list_end(struct soda_metrics *m)
{
}

/* How many items of each list are not shown. */
static void put_left_out(struct text_writer *w)
{
	static const struct soda_metric metric = {
		.key = "items_left_out",
		.help = "items of a list that are not shown here, because there are too many",
		.kind = SODA_METRIC_GAUGE,
	};
	struct family *f = w->lists_n ? family_of(&w->m, &metric, "gauge") : NULL;

	for (unsigned i = 0; f && i < w->lists_n; i++)
		fprintf(f->lines.file, "%s{list=\"%s\"} %u\n", f->name, w->lists[i].what->item,
			w->lists[i].left_out);
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
	.item_end = put_info,
	.list_end = list_end,
};

/* Join all families into one text, and free them. */
static int join(struct text_writer *w, char **text_p, size_t *bytes_p)
{
	struct buffer all;
	bool opened = buffer_open(w, &all);

	for (unsigned i = 0; i < w->families_n; i++) {
		struct family *f = w->families[i];

		buffer_close(w, &f->lines);
		if (opened && !w->failed)
			fwrite(f->lines.text, 1, f->lines.bytes, all.file);
		buffer_free(w, &f->lines);
		free(f);
	}
	buffer_close(w, &all);
	if (w->failed) {
		free(all.text);
		return -ENOMEM;
	}
	*text_p = all.text;
	*bytes_p = all.bytes;
	return 0;
}

int soda_metrics_prometheus(soda_metrics_walk *walk, void *arg, const char *prefix, char **text_p,
			    size_t *bytes_p)
{
	struct text_writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->m.ops = &ops;
	w->prefix = prefix;
	walk(arg, &w->m);
	put_info(&w->m);
	put_left_out(w);
	r = join(w, text_p, bytes_p);
	free(w);
	return r;
}
