/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bellman-Ford: distances[v] is the length of a shortest path from the source.  In a graph with
 * weights it is a double, INFINITY where there is no path.  Otherwise the weights are drawn
 * (verify/agreed.h), and it is a uint64_t, UINT64_MAX where there is none.
 *
 * Lengths are compared as uint64_t in both: doubles that are not negative have the order of their
 * bits.  A sum of doubles never falls where a part of it rises, so that the result does not depend
 * on the order of the updates.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

#include <math.h>

struct relax {
	uint64_t *distances;
	uint8_t *moved; /* in this round */
	bool weighted;	/* the graph is */
	struct weights weights;
};

union length {
	uint64_t bits;
	double number;
};

/* given: the edge's weight in a graph with weights */
static inline uint64_t length_through(struct relax *r, uint32_t s, uint32_t d, double given)
{
	union length length = { .bits = __atomic_load_n(&r->distances[s], __ATOMIC_RELAXED) };

	if (r->weighted)
		length.number += given;
	else
		length.bits += weight(r->weights, s, d);
	return length.bits;
}

static inline bool relax_update(struct relax *r, uint32_t s, uint32_t d, double given)
{
	uint64_t length = length_through(r, s, d, given);

	if (length >= r->distances[d])
		return false;
	__atomic_store_n(&r->distances[d], length, __ATOMIC_RELAXED);
	if (r->moved[d])
		return false;
	r->moved[d] = true;
	return true;
}

static inline bool relax_update_atomic(struct relax *r, uint32_t s, uint32_t d, double given)
{
	return lower_u64(&r->distances[d], length_through(r, s, d, given)) &&
	       !__atomic_exchange_n(&r->moved[d], true, __ATOMIC_RELAXED);
}

static inline bool relax_cond(const struct relax *r, uint32_t d)
{
	return true;
}

#define EDGE_WEIGHTED
#define EDGE_MAP relax
#define EDGE_STATE struct relax
#include "ligra/framework/edge_map.h"

static inline void unreached(struct relax *r, uint32_t v)
{
	static const union length infinity = { .number = INFINITY };

	r->distances[v] = r->weighted ? infinity.bits : UINT64_MAX;
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
	struct relax r = { .distances = result,
			   .weighted = l->g->weighted,
			   .weights = weights_of(l->g->vertices) };
	struct vertex_subset vertices = subset_all(l), frontier;
	unsigned rounds = 0;

	r.moved = ligra_array(l, l->g->vertices, sizeof(uint8_t), "moved");
	if (l->failed)
		return 0;
	unreached_vertex_map(&vertices, &r);
	r.distances[params->source] = 0; /* as a double, too */
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
	.parts = PARTS_OUT | PARTS_IN | PARTS_WEIGHTS,
	.source = true,
};
