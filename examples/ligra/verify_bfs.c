/* SPDX-License-Identifier: BSD-3-Clause */
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int verify_bfs_levels(const struct graph *g, uint32_t source, uint32_t *levels, struct error *err)
{
	uint32_t *queue = malloc(g->vertices * sizeof(*queue));
	uint64_t head = 0, tail = 0;

	if (!queue)
		return error_set(err, ENOMEM, "out of memory for the reference search");
	for (uint64_t v = 0; v < g->vertices; v++)
		levels[v] = LEVEL_NONE;
	levels[source] = 0;
	queue[tail++] = source;
	while (head < tail) {
		uint32_t u = queue[head++];

		for (uint64_t e = g->out.offsets[u]; e < g->out.offsets[u + 1]; e++) {
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
	uint64_t low = g->out.offsets[from], high = g->out.offsets[from + 1];

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
	       const uint32_t *parents, struct error *err)
{
	if (parents[source] != source)
		return error_set(err, EBADMSG,
				 "bfs: the source %" PRIu32 " has parent %" PRIu32
				 ", expected itself",
				 source, parents[source]);
	for (uint64_t v = 0; v < g->vertices; v++) {
		const char *fault;

		if (v == source)
			continue;
		fault = fault_of(g, levels, (uint32_t)v, parents[v]);
		if (fault)
			return error_set(err, EBADMSG,
					 "bfs: vertex %" PRIu64 ": its parent %" PRIu32 " %s", v,
					 parents[v], fault);
	}
	return 0;
}
