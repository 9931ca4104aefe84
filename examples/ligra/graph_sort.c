/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph_sort.h"

static void transpose(const struct csr *from, struct csr *to, uint64_t vertices)
{
	for (uint64_t e = 0; e < from->offsets[vertices]; e++)
		to->offsets[from->targets[e]]++;
	csr_sum_up(to->offsets, vertices);
	for (uint64_t v = vertices; v-- > 0;)
		for (uint64_t e = from->offsets[v]; e < from->offsets[v + 1]; e++)
			to->targets[--to->offsets[from->targets[e]]] = (uint32_t)v;
}

/* Make the `in` parts, sorted, and the `out` parts from them again, sorted too. */
int graph_sort_directed(struct graph *g, struct error *err)
{
	int ret = graph_part_alloc(g, PART_IN_OFFSETS, err);

	if (!ret)
		ret = graph_part_alloc(g, PART_IN_TARGETS, err);
	if (ret)
		return ret;
	transpose(&g->out, &g->in, g->vertices);
	graph_keep(g, PARTS_IN | PART_BIT(PART_LABELS));
	ret = graph_part_alloc(g, PART_OUT_OFFSETS, err);
	if (!ret)
		ret = graph_part_alloc(g, PART_OUT_TARGETS, err);
	if (!ret)
		transpose(&g->in, &g->out, g->vertices);
	return ret;
}

/* Runs are sorted: move the first of equal targets up; returns the edges that stay. */
static uint64_t drop_repeats(struct csr *csr, uint64_t vertices)
{
	uint64_t kept = 0, begin = 0;

	for (uint64_t v = 0; v < vertices; v++) {
		uint64_t end = csr->offsets[v + 1];

		csr->offsets[v] = kept;
		for (uint64_t e = begin; e < end; e++)
			if (e == begin || csr->targets[e] != csr->targets[e - 1])
				csr->targets[kept++] = csr->targets[e];
		begin = end;
	}
	csr->offsets[vertices] = kept;
	return kept;
}

/* Both directions were placed, so that the transposed graph is the same one, sorted. */
int graph_sort_symmetric(struct graph *g, struct error *err)
{
	struct graph sorted = *g;
	uint64_t kept;
	int ret;

	sorted.out = (struct csr){ 0 };
	sorted.labels = NULL;
	ret = graph_part_alloc(&sorted, PART_OUT_OFFSETS, err);
	if (!ret)
		ret = graph_part_alloc(&sorted, PART_OUT_TARGETS, err);
	if (ret) {
		graph_destroy(&sorted);
		return ret;
	}
	transpose(&g->out, &sorted.out, g->vertices);
	kept = drop_repeats(&sorted.out, g->vertices);
	graph_keep(g, PART_BIT(PART_LABELS));
	/* Now of the final size. */
	g->edges = kept;
	g->symmetric = true;
	ret = graph_part_alloc(g, PART_OUT_OFFSETS, err);
	if (!ret)
		ret = graph_part_alloc(g, PART_OUT_TARGETS, err);
	if (!ret) {
		for (uint64_t v = 0; v <= g->vertices; v++)
			g->out.offsets[v] = sorted.out.offsets[v];
		for (uint64_t e = 0; e < kept; e++)
			g->out.targets[e] = sorted.out.targets[e];
	}
	graph_destroy(&sorted);
	return ret;
}
