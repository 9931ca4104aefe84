/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int verify_bfs_levels(const struct graph *g, uint32_t source, uint32_t *levels,
		      struct soda_graph_error *err)
{
	uint32_t *queue = malloc(g->vertices * sizeof(*queue));
	uint64_t head = 0, tail = 0;

	if (!queue)
		return soda_graph_fail(err, ENOMEM, "out of memory for the reference search");
	for (uint64_t v = 0; v < g->vertices; v++)
		levels[v] = LEVEL_NONE;
	levels[source] = 0;
	queue[tail++] = source;
	while (head < tail) {
		uint32_t u = queue[head++];

		for (uint64_t e = csr_begin(&g->out, u); e < csr_end(&g->out, u); e++) {
			uint32_t v = g->out.targets[e];

			if (levels[v] != LEVEL_NONE)
				continue;
			levels[v] = levels[u] + 1;
			queue[tail++] = v;
		}
	}
	free(queue);
	return 0;
}

/* Targets are ascending. */
static bool has_edge(const struct graph *g, uint32_t from, uint32_t to)
{
	uint64_t low = csr_begin(&g->out, from), high = csr_end(&g->out, from);

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (g->out.targets[middle] == to)
			return true;
		if (g->out.targets[middle] < to)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* NULL, or what is wrong with the parent of v, which is not the source. */
static const char *fault_of(const struct graph *g, const uint32_t *levels, uint32_t v,
			    uint32_t parent)
{
	if (levels[v] == LEVEL_NONE)
		return parent == VERTEX_NONE ? NULL : "cannot be reached and must have none";
	if (parent == VERTEX_NONE)
		return "can be reached and must have one";
	if (parent >= g->vertices)
		return "is no vertex";
	if (!has_edge(g, parent, v))
		return "has no edge to it";
	if (levels[parent] == LEVEL_NONE || levels[parent] + 1 != levels[v])
		return "is not one level above it";
	return NULL;
}

int verify_bfs(const struct graph *g, uint32_t source, const uint32_t *levels,
	       const uint32_t *parents, struct soda_graph_error *err)
{
	if (parents[source] != source)
		return soda_graph_fail(err, EBADMSG,
				       "bfs: the source %" PRIu32 " has parent %" PRIu32
				       ", expected itself",
				       source, parents[source]);
	for (uint64_t v = 0; v < g->vertices; v++) {
		const char *fault;

		if (v == source)
			continue;
		fault = fault_of(g, levels, (uint32_t)v, parents[v]);
		if (fault)
			return soda_graph_fail(err, EBADMSG,
					       "bfs: vertex %" PRIu64 ": its parent %" PRIu32 " %s",
					       v, parents[v], fault);
	}
	return 0;
}

int verify_bfs_result(const struct graph *g, const struct app_params *params, const void *result,
		      struct soda_graph_error *err)
{
	uint32_t *levels = malloc(g->vertices * sizeof(*levels));
	uint64_t reached = 0;
	int ret;

	if (!levels)
		return verify_out_of_memory(err);
	ret = verify_bfs_levels(g, params->source, levels, err);
	if (!ret)
		ret = verify_bfs(g, params->source, levels, result, err);
	for (uint64_t v = 0; v < g->vertices && !ret; v++)
		reached += levels[v] != LEVEL_NONE;
	free(levels);
	if (!ret)
		printf("bfs: verified: %" PRIu64 " vertices reached, all on shortest paths\n",
		       reached);
	return ret;
}
