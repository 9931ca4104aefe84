/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/source.h"
#include "graph/format/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct adjacency {
	struct soda_graph_source source;
	struct soda_graph_text *text;
	uint64_t *offsets; /* vertices + 1 */
	uint64_t read;	   /* targets of this pass */
	uint32_t vertex;   /* whose target is next */
	/* The same file once more, at the weight of the next target; NULL: not asked for. */
	struct soda_graph_text *at_weights;
};

static int read_number(struct soda_graph_text *t, const char *expected, uint64_t most,
		       uint64_t *value_p, struct soda_graph_error *err)
{
	int ret;

	soda_graph_text_skip_space(t);
	ret = soda_graph_text_number(t, expected, most, value_p, err);
	if (!ret && soda_graph_text_peek(t) > ' ')
		ret = soda_graph_text_unexpected(t, "the end of the number", err);
	return ret;
}

static int read_header(struct soda_graph_text *t, bool *weighted_p, uint64_t *vertices_p,
		       uint64_t *edges_p, struct soda_graph_error *err)
{
	char word[32];
	int ret;

	soda_graph_text_word(t, word, sizeof(word));
	*weighted_p = !strcmp(word, "WeightedAdjacencyGraph");
	if (!*weighted_p && strcmp(word, "AdjacencyGraph") != 0)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": expected 'AdjacencyGraph' or "
				       "'WeightedAdjacencyGraph', found '%s'",
				       t->path, t->line, word);
	ret = read_number(t, "the number of vertices", SODA_GRAPH_VERTICES_MAX, vertices_p, err);
	if (!ret)
		ret = read_number(t, "the number of edges", UINT64_MAX / 64, edges_p, err);
	if (!ret && !*vertices_p)
		ret = soda_graph_fail(err, EINVAL, "%s:%" PRIu64 ": expected vertices, found 0",
				      t->path, t->line);
	return ret;
}

/* The first is 0, none is below the one before, none beyond the edges. */
static int read_offsets(struct adjacency *a, struct soda_graph_error *err)
{
	struct soda_graph_text *t = a->text;
	uint64_t last = 0;
	int ret = 0;

	for (uint64_t v = 0; v < a->source.vertices; v++) {
		ret = read_number(t, "an offset", a->source.edges, &a->offsets[v], err);
		if (ret)
			return ret;
		if (a->offsets[v] < last || (!v && a->offsets[v]))
			return soda_graph_fail(err, EINVAL,
					       "%s:%" PRIu64 ": expected an offset of %s %" PRIu64
					       ", found %" PRIu64,
					       t->path, t->line, v ? "at least" : "exactly", last,
					       a->offsets[v]);
		last = a->offsets[v];
	}
	a->offsets[a->source.vertices] = a->source.edges;
	return ret;
}

/* Put at_weights to the first weight. */
static int find_weights(struct adjacency *a, struct soda_graph_error *err)
{
	uint64_t vertices = 0, edges = 0, unused;
	bool weighted;
	int ret = a->at_weights ? 0 : soda_graph_text_open(a->text->path, &a->at_weights, err);

	if (!ret)
		ret = soda_graph_text_rewind(a->at_weights, err);
	if (!ret)
		ret = read_header(a->at_weights, &weighted, &vertices, &edges, err);
	if (!ret && (!weighted || vertices != a->source.vertices || edges != a->source.edges))
		return soda_graph_fail(err, ESTALE, "%s: changed while it was read", a->text->path);
	for (uint64_t i = 0; i < vertices + edges && !ret; i++)
		ret = read_number(a->at_weights, "an offset or a target", UINT64_MAX, &unused, err);
	return ret;
}

static int adjacency_rewind(struct soda_graph_source *source, struct soda_graph_error *err)
{
	struct adjacency *a = (struct adjacency *)source;
	uint64_t vertices, edges;
	bool weighted;
	int ret = soda_graph_text_rewind(a->text, err);

	a->read = a->vertex = 0;
	if (!ret)
		ret = read_header(a->text, &weighted, &vertices, &edges, err);
	if (!ret && weighted && !source->weights)
		ret = soda_graph_fail(err, EINVAL,
				      "%s:1: expected 'AdjacencyGraph', found "
				      "'WeightedAdjacencyGraph', which is read where its weights "
				      "are asked for (--weights)",
				      a->text->path);
	if (ret)
		return ret;
	source->vertices = vertices;
	source->edges = edges;
	/* The file may say any number: memory is taken for what its size allows. */
	if (vertices > 1032 * (uint64_t)a->text->opened_as.st_size)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": cut off: %" PRIu64
				       " vertices need more than the file's %lld bytes",
				       a->text->path, a->text->line, vertices,
				       (long long)a->text->opened_as.st_size);
	if (!a->offsets)
		a->offsets = malloc((vertices + 1) * sizeof(*a->offsets));
	if (!a->offsets)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory for %" PRIu64 " offsets",
				       a->text->path, vertices);
	ret = read_offsets(a, err);
	return ret || !source->weights ? ret : find_weights(a, err);
}

static int expect_end(struct soda_graph_text *t, struct soda_graph_error *err)
{
	soda_graph_text_skip_space(t);
	if (soda_graph_text_peek(t) == SODA_GRAPH_TEXT_END)
		return 0;
	return soda_graph_text_unexpected(t, "the end of the file after the last edge", err);
}

static int next_weight(struct adjacency *a, double *weight_p, struct soda_graph_error *err)
{
	soda_graph_text_skip_space(a->at_weights);
	return soda_graph_text_weight(a->at_weights, weight_p, err);
}

static long adjacency_next(struct soda_graph_source *source, struct soda_graph_edge *edges,
			   size_t max, struct soda_graph_error *err)
{
	struct adjacency *a = (struct adjacency *)source;
	size_t count = 0;
	uint64_t target;
	int ret;

	for (; count < max && a->read < source->edges; count++, a->read++) {
		ret = read_number(a->text, "a target", source->vertices - 1, &target, err);
		if (!ret && source->weights)
			ret = next_weight(a, &source->weights[count], err);
		if (ret)
			return ret;
		while (a->read >= a->offsets[a->vertex + 1])
			a->vertex++;
		edges[count] = (struct soda_graph_edge){ a->vertex, (uint32_t)target };
	}
	if (count)
		return (long)count;
	return expect_end(source->weights ? a->at_weights : a->text, err);
}

static double adjacency_fraction(const struct soda_graph_source *source)
{
	return soda_graph_text_fraction(((const struct adjacency *)source)->text);
}

static void adjacency_close(struct soda_graph_source *source)
{
	struct adjacency *a = (struct adjacency *)source;

	if (a->at_weights)
		soda_graph_text_close(a->at_weights);
	soda_graph_text_close(a->text);
	free(a->offsets);
	free(a);
}

int soda_graph_adjacency_open(const char *path, struct soda_graph_source **source_p,
			      struct soda_graph_error *err)
{
	struct soda_graph_text *text;
	struct adjacency *a;
	int ret = soda_graph_text_open(path, &text, err);

	if (ret)
		return ret;
	a = calloc(1, sizeof(*a));
	if (!a) {
		soda_graph_text_close(text);
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	}
	a->text = text;
	a->source = (struct soda_graph_source){ .format = "Ligra text",
						.fraction = adjacency_fraction,
						.rewind = adjacency_rewind,
						.next = adjacency_next,
						.close = adjacency_close };
	/* The number of vertices must be known before the first pass. */
	ret = soda_graph_text_rewind(text, err);
	if (!ret)
		ret = read_header(text, &a->source.weighable, &a->source.vertices, &a->source.edges,
				  err);
	if (ret) {
		adjacency_close(&a->source);
		return ret;
	}
	*source_p = &a->source;
	return 0;
}
