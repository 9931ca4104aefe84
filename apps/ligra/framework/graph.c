/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/framework/graph.h"

#include <errno.h>
#include <inttypes.h>

static const char *const part_names[PARTS] = {
	[PART_OUT_OFFSETS] = "out-offsets", [PART_OUT_TARGETS] = "out-targets",
	[PART_OUT_WEIGHTS] = "out-weights", [PART_IN_OFFSETS] = "in-offsets",
	[PART_IN_TARGETS] = "in-targets",   [PART_IN_WEIGHTS] = "in-weights",
	[PART_LABELS] = "labels",
};

const char *graph_part_name(enum graph_part part)
{
	return part_names[part];
}

size_t graph_part_bytes(const struct graph *g, enum graph_part part)
{
	switch (part) {
	case PART_OUT_OFFSETS:
	case PART_IN_OFFSETS:
		return g->vertices * sizeof(uint64_t);
	case PART_OUT_TARGETS:
	case PART_IN_TARGETS:
		return g->edges * sizeof(uint32_t);
	case PART_OUT_WEIGHTS:
	case PART_IN_WEIGHTS:
		return g->weighted ? g->edges * sizeof(double) : 0;
	default:
		return g->labelled ? g->vertices * sizeof(uint32_t) : 0;
	}
}

bool graph_part_is_alias(const struct graph *g, enum graph_part part)
{
	return g->symmetric && part >= PART_IN_OFFSETS && part <= PART_IN_WEIGHTS;
}

static const void *part_of(const struct graph *g, enum graph_part part)
{
	switch (part) {
	case PART_OUT_OFFSETS:
		return g->out.offsets;
	case PART_OUT_TARGETS:
		return g->out.targets;
	case PART_OUT_WEIGHTS:
		return g->out.weights;
	case PART_IN_OFFSETS:
		return g->in.offsets;
	case PART_IN_TARGETS:
		return g->in.targets;
	case PART_IN_WEIGHTS:
		return g->in.weights;
	default:
		return g->labels;
	}
}

void *graph_part(const struct graph *g, enum graph_part part)
{
	return (void *)part_of(g, part);
}

void graph_part_set(struct graph *g, enum graph_part part, void *object)
{
	bool out = part < PART_IN_OFFSETS;
	struct csr *csr = out ? &g->out : &g->in;

	if (part == PART_LABELS)
		g->labels = object;
	else if (part == PART_OUT_OFFSETS || part == PART_IN_OFFSETS)
		csr->offsets = object;
	else if (part == PART_OUT_TARGETS || part == PART_IN_TARGETS)
		csr->targets = object;
	else
		csr->weights = object;
	if (g->symmetric && out)
		g->in = g->out;
	g->out.vertices = g->in.vertices = g->vertices;
	g->out.edges = g->in.edges = g->edges;
}

void graph_part_free(struct graph *g, enum graph_part part)
{
	if (graph_part_is_alias(g, part))
		return;
	mem_free(g->mem, graph_part(g, part), graph_part_bytes(g, part));
	graph_part_set(g, part, NULL);
}

void graph_keep(struct graph *g, unsigned parts)
{
	if (g->symmetric && (parts & PARTS_IN))
		parts |= PARTS_OUT;
	if (g->symmetric && (parts & PARTS_WEIGHTS))
		parts |= PARTS_WEIGHTS;
	for (int part = 0; part < PARTS; part++)
		if (!(parts & PART_BIT(part)))
			graph_part_free(g, part);
}

void graph_destroy(struct graph *g)
{
	graph_keep(g, 0);
}

int graph_find(const struct graph *g, uint64_t label, uint32_t *vertex_p,
	       struct soda_graph_error *err)
{
	uint64_t low = 0, high = g->vertices;

	if (!g->labelled && label < g->vertices) {
		*vertex_p = (uint32_t)label;
		return 0;
	}
	while (g->labelled && low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (g->labels[middle] == label) {
			*vertex_p = (uint32_t)middle;
			return 0;
		}
		if (g->labels[middle] < label)
			low = middle + 1;
		else
			high = middle;
	}
	return soda_graph_fail(err, ENOENT, "the graph has no vertex %" PRIu64, label);
}

uint32_t graph_hub(const struct graph *g)
{
	uint64_t best = 0;

	for (uint64_t v = 1; v < g->vertices; v++)
		if (csr_degree(&g->out, v) > csr_degree(&g->out, best))
			best = v;
	return (uint32_t)best;
}
