/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Count degrees, turn them into the ends of the vertices' runs, and put each
 * edge at the end of what is left of its run, which moves every offset from
 * the run's end to its begin.
 */
#include "graph_build.h"

#include "graph_sort.h"
#include "idmap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BATCH 65536

struct build {
	struct edge_source *source;
	bool symmetric;
	struct idmap ids; /* empty where the source's ids are vertices */
	struct edge *batch;
	struct graph *g;
	uint64_t placed; /* edges, atomic */
	bool overrun;	 /* more edges came than were counted; atomic */
};

/* What a pass does with each batch, whose ids are vertices (in the first pass: ids). */
typedef int (*batch_fn)(struct build *b, long count, struct error *err);

static int learn_ids(struct build *b, long count, struct error *err)
{
	int ret = 0;

	for (long i = 0; i < count && !ret; i++) {
		ret = idmap_add(&b->ids, b->batch[i].from, err);
		if (!ret)
			ret = idmap_add(&b->ids, b->batch[i].to, err);
	}
	return ret;
}

static int stale(struct error *err)
{
	return error_set(err, ESTALE, "the edges changed while they were read");
}

static int number(struct build *b, long count, struct error *err)
{
	bool unknown = false;

	if (b->source->vertices)
		return 0;
	for (long i = 0; i < count; i++) {
		struct edge *e = &b->batch[i];

		e->from = idmap_vertex(&b->ids, e->from);
		e->to = idmap_vertex(&b->ids, e->to);
		unknown |= e->from == VERTEX_NONE || e->to == VERTEX_NONE;
	}
	return unknown ? stale(err) : 0;
}

static int count_edges(struct build *b, long count, struct error *err)
{
	uint64_t *degrees = b->g->out.offsets;
	int ret = number(b, count, err);

	if (ret)
		return ret;
#pragma omp parallel for
	for (long i = 0; i < count; i++) {
		struct edge e = b->batch[i];

		if (b->symmetric && e.from == e.to)
			continue;
		__atomic_fetch_add(&degrees[e.from], 1, __ATOMIC_RELAXED);
		if (b->symmetric)
			__atomic_fetch_add(&degrees[e.to], 1, __ATOMIC_RELAXED);
	}
	return 0;
}

static void place(struct build *b, uint32_t from, uint32_t to)
{
	uint64_t end = __atomic_fetch_sub(&b->g->out.offsets[from], 1, __ATOMIC_RELAXED);

	/* end is 0 or beyond only where the source breaks its word. */
	if (end - 1 < b->g->edges)
		b->g->out.targets[end - 1] = to;
	else
		__atomic_store_n(&b->overrun, true, __ATOMIC_RELAXED);
}

static int place_edges(struct build *b, long count, struct error *err)
{
	uint64_t placed = 0;
	int ret = number(b, count, err);

	if (ret)
		return ret;
#pragma omp parallel for reduction(+ : placed)
	for (long i = 0; i < count; i++) {
		struct edge e = b->batch[i];

		if (b->symmetric && e.from == e.to)
			continue;
		place(b, e.from, e.to);
		placed++;
		if (b->symmetric) {
			place(b, e.to, e.from);
			placed++;
		}
	}
	b->placed += placed;
	return b->overrun ? stale(err) : 0;
}

static int pass(struct build *b, batch_fn fn, struct error *err)
{
	long count;
	int ret = b->source->rewind(b->source, err);

	while (!ret) {
		count = b->source->next(b->source, b->batch, BATCH, err);
		if (count <= 0)
			return (int)count;
		ret = fn(b, count, err);
	}
	return ret;
}

static int number_vertices(struct build *b, struct error *err)
{
	struct graph *g = b->g;
	int ret;

	g->vertices = b->source->vertices;
	if (g->vertices)
		return 0;
	ret = idmap_create(&b->ids, err);
	if (!ret)
		ret = pass(b, learn_ids, err);
	if (!ret)
		ret = idmap_finish(&b->ids, err);
	if (ret)
		return ret;
	g->vertices = b->ids.count;
	g->labelled = idmap_vertex(&b->ids, (uint32_t)(g->vertices - 1)) != g->vertices - 1;
	if (!g->labelled)
		return 0;
	ret = graph_part_alloc(g, PART_LABELS, err);
	if (!ret)
		idmap_labels(&b->ids, g->labels);
	return ret;
}

static int read_edges(struct build *b, struct error *err)
{
	struct graph *g = b->g;
	int ret = graph_part_alloc(g, PART_OUT_OFFSETS, err);

	if (!ret)
		ret = pass(b, count_edges, err);
	if (ret)
		return ret;
	g->edges = csr_sum_up(g->out.offsets, g->vertices);
	ret = graph_part_alloc(g, PART_OUT_TARGETS, err);
	if (!ret)
		ret = pass(b, place_edges, err);
	if (!ret && b->placed != g->edges)
		ret = stale(err);
	return ret;
}

static void note_sums(struct graph *g)
{
	for (int part = 0; part < PARTS; part++)
		if (graph_part(g, part))
			g->sum[part] = graph_part_sum(g, part);
}

int graph_build(struct edge_source *source, bool symmetric, struct mem *mem, struct graph *g_p,
		struct error *err)
{
	struct graph g = { .mem = mem };
	struct build b = { .source = source, .symmetric = symmetric, .g = &g };
	int ret;

	b.batch = malloc(BATCH * sizeof(*b.batch));
	if (!b.batch)
		return error_set(err, ENOMEM, "out of memory for a batch of edges");
	ret = number_vertices(&b, err);
	if (!ret)
		ret = read_edges(&b, err);
	idmap_destroy(&b.ids);
	free(b.batch);
	if (!ret)
		ret = symmetric ? graph_sort_symmetric(&g, err) : graph_sort_directed(&g, err);
	if (ret) {
		graph_destroy(&g);
		return ret;
	}
	note_sums(&g);
	*g_p = g;
	return 0;
}
