/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/source.h"
#include "graph/format/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct snap {
	struct soda_graph_source source;
	struct soda_graph_text *text;
	uint64_t edges; /* of this pass */
};

static int read_id(struct soda_graph_text *t, const char *expected, uint32_t *id_p,
		   struct soda_graph_error *err)
{
	uint64_t id;
	int ret = soda_graph_text_number(t, expected, UINT32_MAX, &id, err);

	if (!ret)
		*id_p = (uint32_t)id;
	return ret;
}

/* Read the end of a line whose edge has no weight. */
static int read_end(struct soda_graph_text *t, struct soda_graph_error *err)
{
	int ret = soda_graph_text_end_line(t, "the end of the line after two ids", err);
	size_t length;
	int c;

	if (!ret)
		return 0;
	c = soda_graph_text_peek(t);
	length = strlen(err->text);
	if (c >= '0' && c <= '9')
		snprintf(err->text + length, sizeof(err->text) - length,
			 " (--weights reads a third number as a weight)");
	return ret;
}

/* Read what stands after the two ids of a line; weight_p: NULL: nothing may stand there. */
static int read_rest(struct soda_graph_text *t, double *weight_p, struct soda_graph_error *err)
{
	int c = soda_graph_text_peek(t), ret;

	if (!weight_p)
		return read_end(t, err);
	if (c > ' ')
		return soda_graph_text_unexpected(t, "a blank and a weight", err);
	soda_graph_text_skip_blanks(t);
	ret = soda_graph_text_weight(t, weight_p, err);
	return ret ? ret : soda_graph_text_end_line(t, "the end of the line after a weight", err);
}

/* Read one line. 1: an edge; 0: the line has none; -EINVAL. */
static int read_line(struct soda_graph_text *t, struct soda_graph_edge *e, double *weight_p,
		     struct soda_graph_error *err)
{
	int c, ret;

	soda_graph_text_skip_blanks(t);
	c = soda_graph_text_peek(t);
	if (c == '#' || c == '%') {
		soda_graph_text_skip_line(t);
	} else if (c != '\n' && c != '\r' && c != SODA_GRAPH_TEXT_END) {
		ret = read_id(t, "a vertex id", &e->from, err);
		if (ret)
			return ret;
		c = soda_graph_text_peek(t);
		if (c != ' ' && c != '\t')
			return soda_graph_text_unexpected(t, "a blank and a second vertex id", err);
		soda_graph_text_skip_blanks(t);
		ret = read_id(t, "a second vertex id", &e->to, err);
		if (ret)
			return ret;
		ret = read_rest(t, weight_p, err);
		return ret ? ret : 1;
	}
	return soda_graph_text_end_line(t, "the end of the line", err);
}

static long snap_next(struct soda_graph_source *source, struct soda_graph_edge *edges, size_t max,
		      struct soda_graph_error *err)
{
	struct snap *s = (struct snap *)source;
	size_t count = 0;

	while (count < max && soda_graph_text_peek(s->text) != SODA_GRAPH_TEXT_END) {
		double *weight = source->weights ? &source->weights[count] : NULL;
		int ret = read_line(s->text, &edges[count], weight, err);

		if (ret < 0)
			return ret;
		count += (size_t)ret;
	}
	s->edges += count;
	if (!s->edges)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": expected edges (two vertex ids a "
				       "line), found none",
				       s->text->path, s->text->line);
	return (long)count;
}

static int snap_rewind(struct soda_graph_source *source, struct soda_graph_error *err)
{
	struct snap *s = (struct snap *)source;

	s->edges = 0;
	return soda_graph_text_rewind(s->text, err);
}

static double snap_fraction(const struct soda_graph_source *source)
{
	return soda_graph_text_fraction(((const struct snap *)source)->text);
}

static void snap_close(struct soda_graph_source *source)
{
	struct snap *s = (struct snap *)source;

	soda_graph_text_close(s->text);
	free(s);
}

int soda_graph_snap_open(const char *path, struct soda_graph_source **source_p,
			 struct soda_graph_error *err)
{
	struct soda_graph_text *text;
	struct snap *s;
	int ret = soda_graph_text_open(path, &text, err);

	if (ret)
		return ret;
	s = calloc(1, sizeof(*s));
	if (!s) {
		soda_graph_text_close(text);
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	}
	s->source = (struct soda_graph_source){ .format = "edge list",
						.weighable = true,
						.fraction = snap_fraction,
						.rewind = snap_rewind,
						.next = snap_next,
						.close = snap_close };
	s->text = text;
	*source_p = &s->source;
	return 0;
}
