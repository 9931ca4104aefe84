/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Radii: an estimate of each vertex's eccentricity, by breadth-first searches
 * from 64 vertices at once, a bit for each.  radii[v] is the largest distance
 * from those that reach v, VERTEX_NONE where none does.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

struct radii {
	uint64_t *visited; /* the searches that were here before this round */
	uint64_t *next;	   /* and after it */
	uint32_t *radii;
	uint32_t round;
};

static inline bool radii_update(struct radii *r, uint32_t s, uint32_t d)
{
	uint64_t reach = r->visited[s] | r->visited[d];

	if (reach == r->visited[d])
		return false;
	r->next[d] |= reach;
	if (r->radii[d] == r->round)
		return false;
	r->radii[d] = r->round;
	return true;
}

static inline bool radii_update_atomic(struct radii *r, uint32_t s, uint32_t d)
{
	uint64_t reach = r->visited[s] | r->visited[d];
	uint32_t before;

	if (reach == r->visited[d])
		return false;
	__atomic_fetch_or(&r->next[d], reach, __ATOMIC_RELAXED);
	before = __atomic_load_n(&r->radii[d], __ATOMIC_RELAXED);
	return before != r->round && claim_u32(&r->radii[d], before, r->round);
}

static inline bool radii_cond(const struct radii *r, uint32_t d)
{
	return true;
}

#define EDGE_MAP radii
#define EDGE_STATE struct radii
#include "ligra/framework/edge_map.h"

static inline void unreached(struct radii *r, uint32_t v)
{
	r->radii[v] = VERTEX_NONE;
}

static inline void advance(struct radii *r, uint32_t v)
{
	r->visited[v] = r->next[v];
}

#define VERTEX_MAP unreached
#define VERTEX_STATE struct radii
#include "ligra/framework/vertex_map.h"
#define VERTEX_MAP advance
#define VERTEX_STATE struct radii
#include "ligra/framework/vertex_map.h"

static struct vertex_subset begin(struct ligra *l, struct radii *r)
{
	struct vertex_subset vertices = subset_all(l), frontier = subset_bitmap(l);
	uint32_t samples[RADII_SAMPLES];
	unsigned count = radii_samples(l->g->vertices, samples);

	if (!frontier.bits)
		return frontier;
	unreached_vertex_map(&vertices, r);
	for (unsigned i = 0; i < count; i++) {
		uint32_t v = samples[i];

		r->visited[v] = r->next[v] = (uint64_t)1 << i;
		r->radii[v] = 0;
		frontier.bits[v / 64] |= (uint64_t)1 << v % 64;
	}
	frontier.size = count;
	return frontier;
}

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	uint64_t n = l->g->vertices;
	struct radii r = { .radii = result };
	struct vertex_subset frontier;

	r.visited = ligra_array(l, n, sizeof(uint64_t), "visited");
	r.next = ligra_array(l, n, sizeof(uint64_t), "next-visited");
	if (l->failed)
		return 0;
	frontier = begin(l, &r);
	while (frontier.size) {
		r.round++;
		subset_replace(&frontier, radii_edge_map(l, &frontier, &r, 0));
		advance_vertex_map(&frontier, &r);
	}
	subset_free(&frontier);
	return r.round;
}

const struct app app_radii = {
	.name = "radii",
	.summary = "an estimate of each vertex's eccentricity",
	.run = run,
	.check = verify_radii_result,
	.entry_bytes = sizeof(uint32_t),
	.parts = PARTS_OUT | PARTS_IN,
};
