/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DAMPING 0.85 /* on purpose not the application's */

static void push_all(const struct graph *g, const double *ranks, double *received)
{
	for (uint64_t v = 0; v < g->vertices; v++)
		received[v] = 0;
	for (uint64_t u = 0; u < g->vertices; u++) {
		uint64_t begin = csr_begin(&g->out, u), end = csr_end(&g->out, u);

		for (uint64_t e = begin; e < end; e++)
			received[g->out.targets[e]] += ranks[u] / (double)(end - begin);
	}
	for (uint64_t v = 0; v < g->vertices; v++)
		received[v] = (1 - DAMPING) / (double)g->vertices + DAMPING * received[v];
}

int verify_pagerank_ranks(const struct graph *g, unsigned iterations, double *ranks,
			  struct soda_graph_error *err)
{
	double *received = malloc(g->vertices * sizeof(*received));

	if (!received)
		return verify_out_of_memory(err);
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

int verify_close(uint64_t vertices, const double *expected, const double *found, double floor,
		 const char *app, double *worst_p, struct soda_graph_error *err)
{
	double worst = 0;

	for (uint64_t v = 0; v < vertices; v++) {
		double scale = fmax(floor, fmax(fabs(found[v]), fabs(expected[v])));
		double difference = scale > 0 ? fabs(found[v] - expected[v]) / scale : 0;

		/* Written so that NaN fails. */
		if (!(difference <= VERIFY_TOLERANCE))
			return soda_graph_fail(err, EBADMSG,
					       "%s: vertex %" PRIu64 " has %.17g, expected %.17g",
					       app, v, found[v], expected[v]);
		worst = fmax(worst, difference);
	}
	*worst_p = worst;
	return 0;
}

int verify_pagerank_result(const struct graph *g, const struct app_params *params,
			   const void *result, struct soda_graph_error *err)
{
	double *expected = malloc(g->vertices * sizeof(*expected));
	double worst;
	int ret;

	if (!expected)
		return verify_out_of_memory(err);
	ret = verify_pagerank_ranks(g, params->iterations, expected, err);
	if (!ret)
		ret = verify_close(g->vertices, expected, result, 0, "pagerank", &worst, err);
	free(expected);
	if (!ret)
		printf("pagerank: verified: relative difference at most %.1e\n", worst);
	return ret;
}
