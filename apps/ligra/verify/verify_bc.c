/* SPDX-License-Identifier: BSD-3-Clause */
/* Brandes' algorithm as published in 2001: a queue forward, the same queue backward. */
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct brandes {
	uint32_t *levels, *order;
	double *paths, *delta;
	uint64_t reached;
};

static int allocate(struct brandes *b, uint64_t n, struct soda_graph_error *err)
{
	b->levels = malloc(n * sizeof(*b->levels));
	b->order = malloc(n * sizeof(*b->order));
	b->paths = calloc(n, sizeof(*b->paths));
	b->delta = calloc(n, sizeof(*b->delta));
	return b->levels && b->order && b->paths && b->delta ? 0 : verify_out_of_memory(err);
}

static void forward(const struct graph *g, uint32_t source, struct brandes *b)
{
	for (uint64_t v = 0; v < g->vertices; v++)
		b->levels[v] = LEVEL_NONE;
	b->levels[source] = 0;
	b->paths[source] = 1;
	b->order[b->reached++] = source;
	for (uint64_t head = 0; head < b->reached; head++) {
		uint32_t u = b->order[head];

		for (uint64_t e = csr_begin(&g->out, u); e < csr_end(&g->out, u); e++) {
			uint32_t v = g->out.targets[e];

			if (b->levels[v] == LEVEL_NONE) {
				b->levels[v] = b->levels[u] + 1;
				b->order[b->reached++] = v;
			}
			if (b->levels[v] == b->levels[u] + 1)
				b->paths[v] += b->paths[u];
		}
	}
}

static int check_paths(const struct brandes *b, struct soda_graph_error *err)
{
	for (uint64_t i = 0; i < b->reached; i++)
		if (b->paths[b->order[i]] > BC_PATHS_MAX)
			return soda_graph_fail(err, ERANGE,
					       "bc: more than %.0e shortest paths lead to vertex "
					       "%" PRIu32,
					       BC_PATHS_MAX, b->order[i]);
	return 0;
}

static void backward(const struct graph *g, struct brandes *b)
{
	for (uint64_t i = b->reached; i-- > 0;) {
		uint32_t u = b->order[i];

		for (uint64_t e = csr_begin(&g->out, u); e < csr_end(&g->out, u); e++) {
			uint32_t v = g->out.targets[e];

			if (b->levels[v] == b->levels[u] + 1)
				b->delta[u] += b->paths[u] / b->paths[v] * (1 + b->delta[v]);
		}
	}
}

int verify_bc_result(const struct graph *g, const struct app_params *params, const void *result,
		     struct soda_graph_error *err)
{
	struct brandes b = { 0 };
	double worst;
	int ret = allocate(&b, g->vertices, err);

	if (!ret) {
		forward(g, params->source, &b);
		ret = check_paths(&b, err);
	}
	if (!ret) {
		backward(g, &b);
		ret = verify_close(g->vertices, b.delta, result, 1, "bc", &worst, err);
	}
	if (!ret)
		printf("bc: verified: %" PRIu64 " vertices, difference at most %.1e\n", b.reached,
		       worst);
	free(b.levels);
	free(b.order);
	free(b.paths);
	free(b.delta);
	return ret;
}
