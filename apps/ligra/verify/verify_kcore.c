/* SPDX-License-Identifier: BSD-3-Clause */
/* Vertices in buckets by degree, the smallest first (Batagelj and Zaversnik, 2003). */
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct buckets {
	uint32_t *degrees;
	uint32_t *order;    /* the vertices by degree */
	uint32_t *position; /* of a vertex in `order` */
	uint64_t *begin;    /* where each degree begins in `order` */
	uint32_t largest;
};

static int allocate(struct buckets *b, const struct graph *g, struct soda_graph_error *err)
{
	for (uint64_t v = 0; v < g->vertices; v++)
		if (csr_degree(&g->out, v) > b->largest)
			b->largest = (uint32_t)csr_degree(&g->out, v);
	b->degrees = malloc(g->vertices * sizeof(*b->degrees));
	b->order = malloc(g->vertices * sizeof(*b->order));
	b->position = malloc(g->vertices * sizeof(*b->position));
	b->begin = calloc((uint64_t)b->largest + 2, sizeof(*b->begin));
	return b->degrees && b->order && b->position && b->begin ? 0 : verify_out_of_memory(err);
}

static void fill(struct buckets *b, const struct graph *g)
{
	for (uint64_t v = 0; v < g->vertices; v++) {
		b->degrees[v] = (uint32_t)csr_degree(&g->out, v);
		b->begin[b->degrees[v] + 1]++;
	}
	for (uint64_t d = 0; d <= b->largest; d++)
		b->begin[d + 1] += b->begin[d];
	for (uint64_t v = 0; v < g->vertices; v++) {
		b->position[v] = (uint32_t)b->begin[b->degrees[v]]++;
		b->order[b->position[v]] = (uint32_t)v;
	}
	for (uint64_t d = b->largest; d > 0; d--)
		b->begin[d] = b->begin[d - 1];
	b->begin[0] = 0;
}

/*
 * Lower the degree of v by one: v changes places with the first vertex of its bucket, and the
 * bucket then begins behind it.
 */
static void lower(struct buckets *b, uint32_t v)
{
	uint64_t first = b->begin[b->degrees[v]]++;
	uint32_t other = b->order[first];

	b->order[b->position[v]] = other;
	b->position[other] = b->position[v];
	b->order[first] = v;
	b->position[v] = (uint32_t)first;
	b->degrees[v]--;
}

/* Afterwards a vertex's degree is its core. */
static void peel(struct buckets *b, const struct graph *g)
{
	for (uint64_t i = 0; i < g->vertices; i++) {
		uint32_t u = b->order[i];

		for (uint64_t e = csr_begin(&g->out, u); e < csr_end(&g->out, u); e++)
			if (b->degrees[g->out.targets[e]] > b->degrees[u])
				lower(b, g->out.targets[e]);
	}
}

int verify_kcore_result(const struct graph *g, const struct app_params *params, const void *result,
			struct soda_graph_error *err)
{
	const uint32_t *cores = result;
	struct buckets b = { 0 };
	uint32_t largest = 0;
	int ret = allocate(&b, g, err);

	if (!ret) {
		fill(&b, g);
		peel(&b, g);
	}
	for (uint64_t v = 0; v < g->vertices && !ret; v++) {
		if (cores[v] != b.degrees[v])
			ret = soda_graph_fail(err, EBADMSG,
					      "kcore: vertex %" PRIu64 " has core %" PRIu32
					      ", expected %" PRIu32,
					      v, cores[v], b.degrees[v]);
		if (cores[v] > largest)
			largest = cores[v];
	}
	free(b.degrees);
	free(b.order);
	free(b.position);
	free(b.begin);
	if (!ret)
		printf("kcore: verified: the largest core is %" PRIu32 "\n", largest);
	return ret;
}
