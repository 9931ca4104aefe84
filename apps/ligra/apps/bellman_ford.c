/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bellman-Ford: distances[v] is the length of a shortest path from the source,
 * UINT64_MAX where there is none.  Weights: weight.h.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

struct relax {
	uint64_t *distances;
	uint8_t *moved; /* in this round */
	struct weights weights;
};

static inline uint64_t length_through(struct relax *r, uint32_t s, uint32_t d)
{
	return __atomic_load_n(&r->distances[s], __ATOMIC_RELAXED) + weight(r->weights, s, d);
}

static inline bool relax_update(struct relax *r, uint32_t s, uint32_t d)
{
	uint64_t length = length_through(r, s, d);

	if (length >= r->distances[d])
		return false;
	__atomic_store_n(&r->distances[d], length, __ATOMIC_RELAXED);
	if (r->moved[d])
		return false;
	r->moved[d] = true;
	return true;
}

static inline bool relax_update_atomic(struct relax *r, uint32_t s, uint32_t d)
{
	return lower_u64(&r->distances[d], length_through(r, s, d)) &&
	       !__atomic_exchange_n(&r->moved[d], true, __ATOMIC_RELAXED);
}

static inline bool relax_cond(const struct relax *r, uint32_t d)
{
	return true;
}

#define EDGE_MAP relax
#define EDGE_STATE struct relax
#include "ligra/framework/edge_map.h"

static inline void unreached(struct relax *r, uint32_t v)
{
	r->distances[v] = UINT64_MAX;
}

static inline void settle(struct relax *r, uint32_t v)
{
	r->moved[v] = false;
}

#define VERTEX_MAP unreached
#define VERTEX_STATE struct relax
#include "ligra/framework/vertex_map.h"
#define VERTEX_MAP settle
#define VERTEX_STATE struct relax
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	struct relax r = { .distances = result, .weights = weights_of(l->g->vertices) };
	struct vertex_subset vertices = subset_all(l), frontier;
	unsigned rounds = 0;

	r.moved = ligra_array(l, l->g->vertices, sizeof(uint8_t), "moved");
	if (l->failed)
		return 0;
	unreached_vertex_map(&vertices, &r);
	r.distances[params->source] = 0;
	frontier = subset_single(l, params->source);
	for (; frontier.size; rounds++) {
		subset_replace(&frontier, relax_edge_map(l, &frontier, &r, 0));
		settle_vertex_map(&frontier, &r);
	}
	subset_free(&frontier);
	return rounds;
}

const struct app app_bellman_ford = {
	.name = "bellman-ford",
	.summary = "shortest paths from one source, edges weighted",
	.run = run,
	.check = verify_bellman_ford_result,
	.entry_bytes = sizeof(uint64_t),
	.parts = PARTS_OUT | PARTS_IN,
	.source = true,
};
