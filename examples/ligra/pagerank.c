/* SPDX-License-Identifier: BSD-3-Clause */
#include "pagerank.h"

#include <math.h>
#include <omp.h>

/* The vertices are cut into this many runs of equal edges for each thread. */
#define CUTS_PER_THREAD 8

struct pagerank {
	const struct graph *g;
	double *ranks;
	double *shares; /* rank / out-degree: what each out-edge carries */
	unsigned cuts;
};

/* Prepare the shares; returns the sum of the ranks that no edge carries on. */
static double share_out(struct pagerank *p)
{
	const struct csr *out = &p->g->out;
	double stuck = 0;

#pragma omp parallel for reduction(+ : stuck) schedule(static)
	for (uint64_t v = 0; v < p->g->vertices; v++) {
		uint64_t degree = csr_degree(out, v);

		if (degree)
			p->shares[v] = p->ranks[v] / (double)degree;
		else
			stuck += p->ranks[v];
	}
	return stuck;
}

static inline double pull(const struct pagerank *p, uint64_t v)
{
	const struct csr *in = &p->g->in;
	double sum = 0;

	for (uint64_t e = in->offsets[v]; e < in->offsets[v + 1]; e++)
		sum += p->shares[in->targets[e]];
	return sum;
}

/* Returns by how much the ranks moved, in sum. */
static double iterate(struct pagerank *p)
{
	double n = (double)p->g->vertices;
	double base = (1 - PAGERANK_DAMPING + PAGERANK_DAMPING * share_out(p)) / n;
	double moved = 0;

#pragma omp parallel for reduction(+ : moved) schedule(dynamic, 1)
	for (unsigned i = 0; i < p->cuts; i++) {
		uint64_t end = csr_cut(&p->g->in, p->g->vertices, i + 1, p->cuts);

		for (uint64_t v = csr_cut(&p->g->in, p->g->vertices, i, p->cuts); v < end; v++) {
			double rank = base + PAGERANK_DAMPING * pull(p, v);

			moved += fabs(rank - p->ranks[v]);
			p->ranks[v] = rank;
		}
	}
	return moved;
}

int pagerank_run(const struct graph *g, const struct pagerank_params *params, double *ranks,
		 struct error *err)
{
	struct pagerank p = { .g = g, .ranks = ranks };
	size_t bytes = g->vertices * sizeof(double);
	void *shares;
	unsigned done = 0;
	int ret = mem_alloc(g->mem, bytes, "pagerank-shares", &shares, err);

	if (ret)
		return ret;
	p.shares = shares;
	p.cuts = CUTS_PER_THREAD * (unsigned)omp_get_max_threads();
	mem_advise(g->mem, g->in.targets, graph_part_bytes(g, PART_IN_TARGETS), SODA_SEQUENTIAL);
	for (uint64_t v = 0; v < g->vertices; v++)
		ranks[v] = 1.0 / (double)g->vertices;
	while (done < params->iterations) {
		done++;
		if (iterate(&p) < params->epsilon)
			break;
	}
	mem_free(g->mem, shares, bytes);
	return (int)done;
}
