/* SPDX-License-Identifier: BSD-3-Clause */
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define DAMPING 0.85 /* on purpose not pagerank.h's */

static void push_all(const struct graph *g, const double *ranks, double *received)
{
	double stuck = 0, base;

	for (uint64_t v = 0; v < g->vertices; v++)
		received[v] = 0;
	for (uint64_t u = 0; u < g->vertices; u++) {
		uint64_t begin = g->out.offsets[u], end = g->out.offsets[u + 1];

		if (begin == end)
			stuck += ranks[u];
		for (uint64_t e = begin; e < end; e++)
			received[g->out.targets[e]] += ranks[u] / (double)(end - begin);
	}
	base = (1 - DAMPING + DAMPING * stuck) / (double)g->vertices;
	for (uint64_t v = 0; v < g->vertices; v++)
		received[v] = base + DAMPING * received[v];
}

int verify_pagerank_ranks(const struct graph *g, unsigned iterations, double *ranks,
			  struct error *err)
{
	double *received = malloc(g->vertices * sizeof(*received));

	if (!received)
		return error_set(err, ENOMEM, "out of memory for the reference ranks");
	for (uint64_t v = 0; v < g->vertices; v++)
		ranks[v] = 1.0 / (double)g->vertices;
	for (unsigned i = 0; i < iterations; i++) {
		push_all(g, ranks, received);
		for (uint64_t v = 0; v < g->vertices; v++)
			ranks[v] = received[v];
	}
	free(received);
	return 0;
}

int verify_pagerank(uint64_t vertices, const double *expected, const double *ranks, double *worst_p,
		    struct error *err)
{
	double sum = 0, worst = 0;

	for (uint64_t v = 0; v < vertices; v++) {
		double difference = fabs(ranks[v] - expected[v]) / fmax(ranks[v], expected[v]);

		/* Written so that NaN fails. */
		if (!(difference <= PAGERANK_TOLERANCE))
			return error_set(err, EBADMSG,
					 "pagerank: vertex %" PRIu64 " has rank %.17g"
					 ", expected %.17g",
					 v, ranks[v], expected[v]);
		worst = fmax(worst, difference);
		sum += ranks[v];
	}
	if (!(fabs(sum - 1) <= PAGERANK_TOLERANCE))
		return error_set(err, EBADMSG, "pagerank: the ranks sum to %.17g, expected 1", sum);
	*worst_p = worst;
	return 0;
}
