/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Betweenness centrality: each vertex's dependency on the shortest paths from
 * one source (Brandes, 2001).  Forward, shortest paths are counted level by
 * level; backward, with inverses[v] = 1 / paths[v],
 *	dependencies[u] = sum over successors v of (inverses[v] + dependencies[v])
 * which in the end are scaled: delta(u) = paths[u] * dependencies[u].
 */
#include "ligra/framework/app.h"
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

#include <errno.h>
#include <stdlib.h>

struct bc {
	double *paths;
	double *dependencies;
	uint8_t *visited;
	bool too_many; /* paths to some vertex, whose inverse would be no full double */
};

static inline bool count_update(struct bc *b, uint32_t s, uint32_t d)
{
	double before = b->paths[d];

	b->paths[d] = before + b->paths[s];
	return before == 0;
}

static inline bool count_update_atomic(struct bc *b, uint32_t s, uint32_t d)
{
	return add_double(&b->paths[d], b->paths[s]) == 0;
}

static inline bool gather_update(struct bc *b, uint32_t s, uint32_t d)
{
	b->dependencies[d] += b->dependencies[s];
	return false;
}

static inline bool gather_update_atomic(struct bc *b, uint32_t s, uint32_t d)
{
	add_double(&b->dependencies[d], b->dependencies[s]);
	return false;
}

static inline bool count_cond(const struct bc *b, uint32_t d)
{
	return !b->visited[d];
}

static inline bool gather_cond(const struct bc *b, uint32_t d)
{
	return !b->visited[d];
}

#define EDGE_MAP count
#define EDGE_STATE struct bc
#include "ligra/framework/edge_map.h"
#define EDGE_MAP gather
#define EDGE_STATE struct bc
#include "ligra/framework/edge_map.h"

static inline void visit(struct bc *b, uint32_t v)
{
	b->visited[v] = true;
	if (b->paths[v] > BC_PATHS_MAX)
		__atomic_store_n(&b->too_many, true, __ATOMIC_RELAXED);
}

/* Backward nothing flows to vertices that no path reaches. */
static inline void turn(struct bc *b, uint32_t v)
{
	b->visited[v] = b->paths[v] == 0;
}

static inline void settle(struct bc *b, uint32_t v)
{
	b->visited[v] = true;
	b->dependencies[v] += 1 / b->paths[v];
}

static inline void scale(struct bc *b, uint32_t v)
{
	if (b->paths[v] > 0)
		b->dependencies[v] = b->dependencies[v] * b->paths[v] - 1;
}

#define VERTEX_MAP visit
#define VERTEX_STATE struct bc
#include "ligra/framework/vertex_map.h"
#define VERTEX_MAP turn
#define VERTEX_STATE struct bc
#include "ligra/framework/vertex_map.h"
#define VERTEX_MAP settle
#define VERTEX_STATE struct bc
#include "ligra/framework/vertex_map.h"
#define VERTEX_MAP scale
#define VERTEX_STATE struct bc
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	uint64_t n = l->g->vertices;
	struct bc b = { .dependencies = result };
	struct vertex_subset vertices = subset_all(l), *levels = NULL, frontier;
	unsigned depth = 0;

	b.paths = ligra_array(l, n, sizeof(double), "paths");
	b.visited = ligra_array(l, n, sizeof(uint8_t), "visited");
	if (l->failed)
		return 0;
	b.paths[params->source] = 1;
	frontier = subset_single(l, params->source);
	while (frontier.size && ligra_grow(l, (void **)&levels, depth, sizeof(*levels))) {
		visit_vertex_map(&frontier, &b);
		if (b.too_many) {
			ligra_fail(l, ERANGE,
				   "bc: more than %.0e shortest paths lead to a "
				   "vertex %u steps from %u: they are counted as "
				   "doubles, which hold no more",
				   BC_PATHS_MAX, depth, params->source);
			break;
		}
		levels[depth++] = frontier;
		frontier = count_edge_map(l, &levels[depth - 1], &b, 0);
	}
	subset_free(&frontier);
	if (l->failed) {
		while (depth)
			subset_free(&levels[--depth]);
		free(levels);
		return 0;
	}
	for (uint64_t v = 0; v < n; v++)
		b.dependencies[v] = 0;
	turn_vertex_map(&vertices, &b);
	for (unsigned i = depth; i-- > 0; subset_free(&levels[i])) {
		settle_vertex_map(&levels[i], &b);
		gather_edge_map(l, &levels[i], &b, EDGE_TRANSPOSED | EDGE_NO_OUTPUT);
	}
	free(levels);
	scale_vertex_map(&vertices, &b);
	return depth;
}

const struct app app_bc = {
	.name = "bc",
	.summary = "betweenness centrality from one source",
	.run = run,
	.check = verify_bc_result,
	.entry_bytes = sizeof(double),
	.parts = PARTS_OUT | PARTS_IN,
	.source = true,
};
