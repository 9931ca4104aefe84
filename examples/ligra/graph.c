/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph.h"

#include <errno.h>
#include <inttypes.h>
#include <zlib.h>

static const char *const part_names[PARTS] = {
	[PART_OUT_OFFSETS] = "out-offsets", [PART_OUT_TARGETS] = "out-targets",
	[PART_IN_OFFSETS] = "in-offsets",   [PART_IN_TARGETS] = "in-targets",
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
		return (g->vertices + 1) * sizeof(uint64_t);
	case PART_OUT_TARGETS:
	case PART_IN_TARGETS:
		return g->edges * sizeof(uint32_t);
	default:
		return g->labelled ? g->vertices * sizeof(uint32_t) : 0;
	}
}

/* In a symmetric graph an `in` part is another name of the `out` part. */
static bool is_alias(const struct graph *g, enum graph_part part)
{
	return g->symmetric && (part == PART_IN_OFFSETS || part == PART_IN_TARGETS);
}

void *graph_part(const struct graph *g, enum graph_part part)
{
	switch (part) {
	case PART_OUT_OFFSETS:
		return g->out.offsets;
	case PART_OUT_TARGETS:
		return g->out.targets;
	case PART_IN_OFFSETS:
		return g->in.offsets;
	case PART_IN_TARGETS:
		return g->in.targets;
	default:
		return g->labels;
	}
}

static void part_set(struct graph *g, enum graph_part part, void *object)
{
	bool offsets = part == PART_OUT_OFFSETS || part == PART_IN_OFFSETS;
	bool out = part == PART_OUT_OFFSETS || part == PART_OUT_TARGETS;

	if (part == PART_LABELS)
		g->labels = object;
	else if (offsets)
		*(out ? &g->out.offsets : &g->in.offsets) = object;
	else
		*(out ? &g->out.targets : &g->in.targets) = object;
	if (g->symmetric && out)
		g->in = g->out;
	g->out.vertices = g->in.vertices = g->vertices;
	g->out.edges = g->in.edges = g->edges;
}

int graph_part_alloc(struct graph *g, enum graph_part part, struct error *err)
{
	void *object;
	int ret;

	ret = mem_alloc(g->mem, graph_part_bytes(g, part), part_names[part], &object, err);
	if (!ret)
		part_set(g, part, object);
	return ret;
}

void graph_part_free(struct graph *g, enum graph_part part)
{
	if (is_alias(g, part))
		return;
	mem_free(g->mem, graph_part(g, part), graph_part_bytes(g, part));
	part_set(g, part, NULL);
}

void graph_keep(struct graph *g, unsigned parts)
{
	if (g->symmetric && (parts & PARTS_IN))
		parts |= PARTS_OUT;
	for (int part = 0; part < PARTS; part++)
		if (!(parts & PART_BIT(part)))
			graph_part_free(g, part);
}

void graph_destroy(struct graph *g)
{
	graph_keep(g, 0);
}

uint32_t graph_part_sum(const struct graph *g, enum graph_part part)
{
	return crc32_z(0, graph_part(g, part), graph_part_bytes(g, part));
}

int graph_check_sums(const struct graph *g, struct error *err)
{
	for (int part = 0; part < PARTS; part++) {
		uint32_t sum;

		if (is_alias(g, part) || !graph_part(g, part))
			continue;
		sum = graph_part_sum(g, part);
		if (sum != g->sum[part])
			return error_set(err, EBADMSG,
					 "%s has changed: checksum %08" PRIx32
					 ", it was loaded with %08" PRIx32,
					 part_names[part], sum, g->sum[part]);
	}
	return 0;
}

int graph_find(const struct graph *g, uint64_t label, uint32_t *vertex_p, struct error *err)
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
	return error_set(err, ENOENT, "the graph has no vertex %" PRIu64, label);
}

uint32_t graph_hub(const struct graph *g)
{
	uint64_t best = 0;

	for (uint64_t v = 1; v < g->vertices; v++)
		if (csr_degree(&g->out, v) > csr_degree(&g->out, best))
			best = v;
	return (uint32_t)best;
}

uint64_t csr_sum_up(uint64_t *offsets, uint64_t vertices)
{
	uint64_t sum = 0;

	for (uint64_t v = 0; v < vertices; v++) {
		sum += offsets[v];
		offsets[v] = sum;
	}
	offsets[vertices] = sum;
	return sum;
}
