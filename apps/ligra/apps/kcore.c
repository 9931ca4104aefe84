/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * K-core decomposition: cores[v] is the largest k such that v is in a subgraph
 * where every vertex has k neighbours or more.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/verify.h"

struct kcore {
	const struct csr *out;
	uint32_t *cores;
	uint32_t *degrees; /* to the vertices that are left */
	uint8_t *removed;
	uint32_t k;
};

static inline bool kcore_update(struct kcore *c, uint32_t s, uint32_t d)
{
	c->degrees[d]--;
	return false;
}

static inline bool kcore_update_atomic(struct kcore *c, uint32_t s, uint32_t d)
{
	__atomic_fetch_sub(&c->degrees[d], 1, __ATOMIC_RELAXED);
	return false;
}

static inline bool kcore_cond(const struct kcore *c, uint32_t d)
{
	return !c->removed[d];
}

#define EDGE_MAP kcore
#define EDGE_STATE struct kcore
#include "ligra/framework/edge_map.h"

static inline void count_edges(struct kcore *c, uint32_t v)
{
	c->degrees[v] = (uint32_t)csr_degree(c->out, v);
}

static inline bool peel(struct kcore *c, uint32_t v)
{
	if (c->degrees[v] >= c->k)
		return false;
	c->cores[v] = c->k - 1;
	c->removed[v] = true;
	return true;
}

static inline bool stay(struct kcore *c, uint32_t v)
{
	return !c->removed[v];
}

#define VERTEX_MAP count_edges
#define VERTEX_STATE struct kcore
#include "ligra/framework/vertex_map.h"
#define VERTEX_FILTER peel
#define VERTEX_STATE struct kcore
#include "ligra/framework/vertex_map.h"
#define VERTEX_FILTER stay
#define VERTEX_STATE struct kcore
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	uint64_t n = l->g->vertices;
	struct kcore c = { .out = &l->g->out, .cores = result };
	struct vertex_subset left = subset_all(l), peeled;

	c.degrees = ligra_array(l, n, sizeof(uint32_t), "degrees");
	c.removed = ligra_array(l, n, sizeof(uint8_t), "removed");
	if (l->failed)
		return 0;
	count_edges_vertex_map(&left, &c);
	for (c.k = 1; left.size && !l->failed; c.k++) {
		while ((peeled = peel_vertex_filter(l, &left, &c)).size) {
			kcore_edge_map(l, &peeled, &c, EDGE_NO_OUTPUT);
			subset_free(&peeled);
			subset_replace(&left, stay_vertex_filter(l, &left, &c));
		}
	}
	subset_free(&left);
	return c.k - 1;
}

const struct app app_kcore = {
	.name = "kcore",
	.summary = "k-core decomposition",
	.run = run,
	.check = verify_kcore_result,
	.entry_bytes = sizeof(uint32_t),
	.parts = PARTS_OUT | PARTS_IN,
	.symmetric_only = true,
};
