/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Breadth-first search: parents[v] is the vertex that v was reached from, the
 * source is its own parent, and VERTEX_NONE was not reached.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/verify.h"

struct bfs {
	uint32_t *parents;
};

static inline bool bfs_update(struct bfs *b, uint32_t s, uint32_t d)
{
	b->parents[d] = s;
	return true;
}

static inline bool bfs_update_atomic(struct bfs *b, uint32_t s, uint32_t d)
{
	return claim_u32(&b->parents[d], VERTEX_NONE, s);
}

static inline bool bfs_cond(const struct bfs *b, uint32_t d)
{
	return b->parents[d] == VERTEX_NONE;
}

#define EDGE_MAP bfs
#define EDGE_STATE struct bfs
#include "ligra/framework/edge_map.h"

static inline void unreached(struct bfs *b, uint32_t v)
{
	b->parents[v] = VERTEX_NONE;
}

#define VERTEX_MAP unreached
#define VERTEX_STATE struct bfs
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	struct bfs b = { .parents = result };
	struct vertex_subset vertices = subset_all(l), frontier;
	unsigned rounds = 0;

	unreached_vertex_map(&vertices, &b);
	b.parents[params->source] = params->source;
	frontier = subset_single(l, params->source);
	for (; frontier.size; rounds++)
		subset_replace(&frontier, bfs_edge_map(l, &frontier, &b, 0));
	subset_free(&frontier);
	return rounds;
}

const struct app app_bfs = {
	.name = "bfs",
	.summary = "breadth-first search",
	.run = run,
	.check = verify_bfs_result,
	.entry_bytes = sizeof(uint32_t),
	.parts = PARTS_OUT | PARTS_IN,
	.source = true,
};
