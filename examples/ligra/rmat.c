/* SPDX-License-Identifier: BSD-3-Clause */
#include "edge_source.h"

#include <errno.h>
#include <stdlib.h>

struct rmat {
	struct edge_source source;
	struct rmat_params params;
	uint64_t position;
	/* Upper ends of the quadrants a, b, c in [0, 2^32]. */
	uint64_t end_a, end_b, end_c;
};

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter to random bits. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* Go down the adjacency matrix: at each level into one of its four quadrants. */
static struct edge rmat_edge(const struct rmat *r, uint64_t index)
{
	const uint64_t step = 0x9e3779b97f4a7c15u;
	uint64_t state = mix(r->params.seed * step + index) + step;
	struct edge e = { 0, 0 };

	for (unsigned level = 0; level < r->params.scale; level++) {
		uint32_t draw = (uint32_t)(mix(state) >> 32);

		state += step;
		e.from = e.from << 1 | (draw >= r->end_b);
		e.to = e.to << 1 | ((draw >= r->end_a && draw < r->end_b) || draw >= r->end_c);
	}
	return e;
}

static int rmat_rewind(struct edge_source *source, struct error *err)
{
	((struct rmat *)source)->position = 0;
	return 0;
}

static long rmat_next(struct edge_source *source, struct edge *edges, size_t max, struct error *err)
{
	struct rmat *r = (struct rmat *)source;
	uint64_t left = r->params.edges - r->position;
	long count = (long)(left < max ? left : max);

#pragma omp parallel for
	for (long i = 0; i < count; i++)
		edges[i] = rmat_edge(r, r->position + (uint64_t)i);
	r->position += (uint64_t)count;
	return count;
}

static void rmat_close(struct edge_source *source)
{
	free(source);
}

int rmat_open(const struct rmat_params *params, struct edge_source **source_p, struct error *err)
{
	const double range = 4294967296.0;
	struct rmat *r;

	if (params->scale < 1 || params->scale > 31)
		return error_set(err, EINVAL, "R-MAT scale %u: expected 1 to 31", params->scale);
	if (!params->edges)
		return error_set(err, EINVAL, "R-MAT: expected at least one edge");
	if (!(params->a >= 0 && params->b >= 0 && params->c >= 0 &&
	      params->a + params->b + params->c <= 1))
		return error_set(err, EINVAL,
				 "R-MAT probabilities %g, %g, %g: "
				 "expected none below 0 and a sum of at most 1",
				 params->a, params->b, params->c);
	r = malloc(sizeof(*r));
	if (!r)
		return error_set(err, ENOMEM, "R-MAT: out of memory");
	*r = (struct rmat){
		.source = { .vertices = (uint64_t)1 << params->scale,
			    .rewind = rmat_rewind,
			    .next = rmat_next,
			    .close = rmat_close },
		.params = *params,
		.end_a = (uint64_t)(params->a * range),
		.end_b = (uint64_t)((params->a + params->b) * range),
		.end_c = (uint64_t)((params->a + params->b + params->c) * range),
	};
	*source_p = &r->source;
	return 0;
}
