/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connected components by label propagation: ids[v] becomes the smallest
 * vertex of v's component.  Those of a directed graph are its weakly
 * connected ones: labels travel along the edges and against them.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/verify.h"

struct components {
	uint32_t *ids;
	uint32_t *before; /* this round */
};

static inline bool components_update(struct components *c, uint32_t s, uint32_t d)
{
	uint32_t id = __atomic_load_n(&c->ids[s], __ATOMIC_RELAXED), was = c->ids[d];

	if (id >= was)
		return false;
	__atomic_store_n(&c->ids[d], id, __ATOMIC_RELAXED);
	return was == c->before[d];
}

static inline bool components_update_atomic(struct components *c, uint32_t s, uint32_t d)
{
	uint32_t id = __atomic_load_n(&c->ids[s], __ATOMIC_RELAXED), was;

	return lower_u32(&c->ids[d], id, &was) && was == c->before[d];
}

static inline bool components_cond(const struct components *c, uint32_t d)
{
	return true;
}

#define EDGE_MAP components
#define EDGE_STATE struct components
#include "ligra/framework/edge_map.h"

static inline void number(struct components *c, uint32_t v)
{
	c->ids[v] = v;
}

static inline void remember(struct components *c, uint32_t v)
{
	c->before[v] = c->ids[v];
}

#define VERTEX_MAP number
#define VERTEX_STATE struct components
#include "ligra/framework/vertex_map.h"
#define VERTEX_MAP remember
#define VERTEX_STATE struct components
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	struct components c = { .ids = result };
	struct vertex_subset frontier = subset_all(l);
	unsigned rounds = 0;

	c.before = ligra_array(l, l->g->vertices, sizeof(uint32_t), "ids-before");
	if (l->failed)
		return 0;
	number_vertex_map(&frontier, &c);
	for (; frontier.size; rounds++) {
		struct vertex_subset next, against = subset_none(l);

		remember_vertex_map(&frontier, &c);
		next = components_edge_map(l, &frontier, &c, 0);
		if (!l->g->symmetric)
			against = components_edge_map(l, &frontier, &c, EDGE_TRANSPOSED);
		subset_replace(&frontier, subset_join(l, &next, &against));
	}
	subset_free(&frontier);
	return rounds;
}

const struct app app_components = {
	.name = "components",
	.summary = "connected components",
	.run = run,
	.check = verify_components_result,
	.entry_bytes = sizeof(uint32_t),
	.parts = PARTS_OUT | PARTS_IN,
};
