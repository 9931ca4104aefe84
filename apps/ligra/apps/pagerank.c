/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PageRank by power iteration, as Ligra computes it: what vertices without
 * out-edges hold is lost, and a repeated edge counts as often as it is there.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/verify.h"

#include <math.h>

#define DAMPING 0.85

struct pagerank {
	const struct csr *out;
	double *ranks;
	double *next;
	double *shares; /* rank / out-degree: what each out-edge carries */
	double base;
};

static inline bool pagerank_update(struct pagerank *p, uint32_t s, uint32_t d)
{
	p->next[d] += p->shares[s];
	return true;
}

static inline bool pagerank_update_atomic(struct pagerank *p, uint32_t s, uint32_t d)
{
	add_double(&p->next[d], p->shares[s]);
	return true;
}

static inline bool pagerank_cond(const struct pagerank *p, uint32_t d)
{
	return true;
}

#define EDGE_MAP pagerank
#define EDGE_STATE struct pagerank
#include "ligra/framework/edge_map.h"

static inline void share(struct pagerank *p, uint32_t v)
{
	uint64_t degree = csr_degree(p->out, v);

	p->shares[v] = degree ? p->ranks[v] / (double)degree : 0;
	p->next[v] = 0;
}

#define VERTEX_MAP share
#define VERTEX_STATE struct pagerank
#include "ligra/framework/vertex_map.h"

/* Returns by how much the ranks moved. */
static double finish(struct pagerank *p)
{
	uint64_t vertices = p->out->vertices;
	double moved = 0;

#pragma omp parallel for reduction(+ : moved) schedule(static)
	for (uint64_t v = 0; v < vertices; v++) {
		double rank = p->base + DAMPING * p->next[v];

		moved += fabs(rank - p->ranks[v]);
		p->ranks[v] = rank;
	}
	return moved;
}

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	uint64_t n = l->g->vertices;
	struct pagerank p = { .out = &l->g->out,
			      .ranks = result,
			      .base = (1 - DAMPING) / (double)n };
	struct vertex_subset frontier = subset_all(l);
	unsigned done = 0;

	p.next = ligra_array(l, n, sizeof(double), "next-ranks");
	p.shares = ligra_array(l, n, sizeof(double), "shares");
	if (l->failed)
		return 0;
	for (uint64_t v = 0; v < n; v++)
		p.ranks[v] = 1.0 / (double)n;
	while (done < params->iterations) {
		done++;
		share_vertex_map(&frontier, &p);
		pagerank_edge_map(l, &frontier, &p, EDGE_NO_OUTPUT);
		if (finish(&p) < params->epsilon)
			break;
	}
	return done;
}

const struct app app_pagerank = {
	.name = "pagerank",
	.summary = "PageRank",
	.run = run,
	.check = verify_pagerank_result,
	.entry_bytes = sizeof(double),
	.parts = PARTS_IN | PART_BIT(PART_OUT_OFFSETS),
};
