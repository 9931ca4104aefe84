/* SPDX-License-Identifier: BSD-3-Clause */
/* Random graphs: edge i is a function of the parameters and of i. */
#include "graph/format/source.h"

#include <errno.h>
#include <stdlib.h>

struct random {
	struct soda_graph_source source;
	struct soda_graph_random params;
	uint64_t position;
	/* Upper ends of the quadrants a, b, c in [0, 2^32]. */
	uint64_t end_a, end_b, end_c;
};

#define STEP 0x9e3779b97f4a7c15u

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter to random bits. */
static inline uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t state_of(const struct random *r, uint64_t index)
{
	return mix(r->params.seed * STEP + index) + STEP;
}

/* Go down the adjacency matrix: at each level into one of its four quadrants. */
static struct soda_graph_edge rmat_edge(const struct random *r, uint64_t index)
{
	uint64_t state = state_of(r, index);
	struct soda_graph_edge e = { 0, 0 };

	for (unsigned level = 0; level < r->params.scale; level++) {
		uint32_t draw = (uint32_t)(mix(state) >> 32);

		state += STEP;
		e.from = e.from << 1 | (draw >= r->end_b);
		e.to = e.to << 1 | ((draw >= r->end_a && draw < r->end_b) || draw >= r->end_c);
	}
	return e;
}

static struct soda_graph_edge uniform_edge(const struct random *r, uint64_t index)
{
	uint64_t state = state_of(r, index), vertices = r->source.vertices;

	/* Vertices have 32 bits, draws 64: what the remainder favours is below 2^-32. */
	return (struct soda_graph_edge){ (uint32_t)(mix(state) % vertices),
					 (uint32_t)(mix(state + STEP) % vertices) };
}

static int random_rewind(struct soda_graph_source *source, struct soda_graph_error *err)
{
	((struct random *)source)->position = 0;
	return 0;
}

static long count_next(struct random *r, size_t max)
{
	uint64_t left = r->params.edges - r->position;

	return (long)(left < max ? left : max);
}

static long rmat_next(struct soda_graph_source *source, struct soda_graph_edge *edges, size_t max,
		      struct soda_graph_error *err)
{
	struct random *r = (struct random *)source;
	long count = count_next(r, max);

#pragma omp parallel for
	for (long i = 0; i < count; i++)
		edges[i] = rmat_edge(r, r->position + (uint64_t)i);
	r->position += (uint64_t)count;
	return count;
}

static long uniform_next(struct soda_graph_source *source, struct soda_graph_edge *edges,
			 size_t max, struct soda_graph_error *err)
{
	struct random *r = (struct random *)source;
	long count = count_next(r, max);

#pragma omp parallel for
	for (long i = 0; i < count; i++)
		edges[i] = uniform_edge(r, r->position + (uint64_t)i);
	r->position += (uint64_t)count;
	return count;
}

static double random_fraction(const struct soda_graph_source *source)
{
	const struct random *r = (const struct random *)source;

	return (double)r->position / (double)r->params.edges;
}

static void random_close(struct soda_graph_source *source)
{
	free(source);
}

static int open_random(const struct soda_graph_random *params, struct soda_graph_source kind,
		       struct soda_graph_source **source_p, struct soda_graph_error *err)
{
	const double range = 4294967296.0;
	struct random *r = malloc(sizeof(*r));

	if (!r)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", kind.format);
	kind.edges = params->edges;
	kind.fraction = random_fraction;
	kind.rewind = random_rewind;
	kind.close = random_close;
	*r = (struct random){
		.source = kind,
		.params = *params,
		.end_a = (uint64_t)(params->a * range),
		.end_b = (uint64_t)((params->a + params->b) * range),
		.end_c = (uint64_t)((params->a + params->b + params->c) * range),
	};
	*source_p = &r->source;
	return 0;
}

int soda_graph_rmat_open(const struct soda_graph_random *params,
			 struct soda_graph_source **source_p, struct soda_graph_error *err)
{
	struct soda_graph_source kind = { .format = "R-MAT", .next = rmat_next };

	if (params->scale < 1 || params->scale > 31)
		return soda_graph_fail(err, EINVAL, "R-MAT scale %u: expected 1 to 31",
				       params->scale);
	if (!params->edges)
		return soda_graph_fail(err, EINVAL, "R-MAT: expected at least one edge");
	if (!(params->a >= 0 && params->b >= 0 && params->c >= 0 &&
	      params->a + params->b + params->c <= 1))
		return soda_graph_fail(err, EINVAL,
				       "R-MAT probabilities %g, %g, %g: "
				       "expected none below 0 and a sum of at most 1",
				       params->a, params->b, params->c);
	kind.vertices = (uint64_t)1 << params->scale;
	return open_random(params, kind, source_p, err);
}

int soda_graph_uniform_open(const struct soda_graph_random *params,
			    struct soda_graph_source **source_p, struct soda_graph_error *err)
{
	struct soda_graph_source kind = { .format = "uniform", .next = uniform_next };

	kind.vertices = params->scale ? (uint64_t)1 << (params->scale & 63) : params->vertices;
	if (params->scale > 31 || !kind.vertices || kind.vertices > SODA_GRAPH_VERTICES_MAX)
		return soda_graph_fail(err, EINVAL,
				       "uniform graph: expected a scale from 1 to 31 or 1 to "
				       "4294967295 vertices");
	if (!params->edges)
		return soda_graph_fail(err, EINVAL, "uniform graph: expected at least one edge");
	return open_random(params, kind, source_p, err);
}
