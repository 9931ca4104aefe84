/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dijkstra's algorithm; a vertex that is lowered goes into the heap again, old entries are skipped.
 * All in doubles: lengths of drawn weights are integers below 2^53.
 */
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct entry {
	double distance;
	uint32_t vertex;
};

struct heap {
	struct entry *entries; /* the children of i are 2i+1 and 2i+2 */
	uint64_t count, room;
};

static bool push(struct heap *h, struct entry e)
{
	uint64_t i = h->count;

	if (h->count == h->room) {
		uint64_t room = h->room ? 2 * h->room : 1024;
		void *larger = realloc(h->entries, room * sizeof(*h->entries));

		if (!larger)
			return false;
		h->entries = larger;
		h->room = room;
	}
	for (; i && h->entries[(i - 1) / 2].distance > e.distance; i = (i - 1) / 2)
		h->entries[i] = h->entries[(i - 1) / 2];
	h->entries[i] = e;
	h->count++;
	return true;
}

static struct entry pop(struct heap *h)
{
	struct entry first = h->entries[0], last = h->entries[--h->count];
	uint64_t i = 0, child;

	while ((child = 2 * i + 1) < h->count) {
		if (child + 1 < h->count &&
		    h->entries[child + 1].distance < h->entries[child].distance)
			child++;
		if (h->entries[child].distance >= last.distance)
			break;
		h->entries[i] = h->entries[child];
		i = child;
	}
	h->entries[i] = last;
	return first;
}

static bool relax(const struct graph *g, struct heap *h, struct entry from, double *distances)
{
	struct weights weights = weights_of(g->vertices);

	for (uint64_t e = csr_begin(&g->out, from.vertex); e < csr_end(&g->out, from.vertex); e++) {
		uint32_t v = g->out.targets[e];
		double distance = from.distance + (g->weighted ? g->out.weights[e]
							       : weight(weights, from.vertex, v));

		if (distance >= distances[v])
			continue;
		distances[v] = distance;
		if (!push(h, (struct entry){ distance, v }))
			return false;
	}
	return true;
}

static int search(const struct graph *g, uint32_t source, double *distances,
		  struct soda_graph_error *err)
{
	struct heap h = { 0 };
	bool enough = push(&h, (struct entry){ 0, source });

	for (uint64_t v = 0; v < g->vertices; v++)
		distances[v] = INFINITY;
	distances[source] = 0;
	while (enough && h.count) {
		struct entry e = pop(&h);

		if (e.distance == distances[e.vertex])
			enough = relax(g, &h, e, distances);
	}
	free(h.entries);
	return enough ? 0 : verify_out_of_memory(err);
}

/* A distance of the result; INFINITY: no path. */
static double distance_to(const struct graph *g, const void *result, uint64_t v)
{
	uint64_t drawn = ((const uint64_t *)result)[v];

	if (g->weighted)
		return ((const double *)result)[v];
	return drawn == UINT64_MAX ? INFINITY : (double)drawn;
}

int verify_bellman_ford_result(const struct graph *g, const struct app_params *params,
			       const void *result, struct soda_graph_error *err)
{
	double *expected = malloc(g->vertices * sizeof(*expected)), farthest = 0;
	int ret = expected ? search(g, params->source, expected, err) : verify_out_of_memory(err);

	for (uint64_t v = 0; v < g->vertices && !ret; v++) {
		double found = distance_to(g, result, v);

		if (found != expected[v])
			ret = soda_graph_fail(err, EBADMSG,
					      "bellman-ford: vertex %" PRIu64
					      " is %.17g away, expected %.17g",
					      v, found, expected[v]);
		if (isfinite(expected[v]) && expected[v] > farthest)
			farthest = expected[v];
	}
	free(expected);
	if (!ret)
		printf("bellman-ford: verified: the farthest is %.17g away\n", farthest);
	return ret;
}
