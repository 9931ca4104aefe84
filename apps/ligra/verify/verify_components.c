/* SPDX-License-Identifier: BSD-3-Clause */
/* Union-find, where the smaller root becomes the parent: each root is its set's smallest vertex. */
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t root_of(uint32_t *parents, uint32_t v)
{
	while (parents[v] != v) {
		parents[v] = parents[parents[v]];
		v = parents[v];
	}
	return v;
}

static void unite(uint32_t *parents, uint32_t a, uint32_t b)
{
	a = root_of(parents, a);
	b = root_of(parents, b);
	if (a < b)
		parents[b] = a;
	else
		parents[a] = b;
}

int verify_components_result(const struct graph *g, const struct app_params *params,
			     const void *result, struct soda_graph_error *err)
{
	uint32_t *parents = malloc(g->vertices * sizeof(*parents));
	const uint32_t *ids = result;
	uint64_t roots = 0;
	int ret = 0;

	if (!parents)
		return verify_out_of_memory(err);
	for (uint64_t v = 0; v < g->vertices; v++)
		parents[v] = (uint32_t)v;
	for (uint64_t v = 0; v < g->vertices; v++)
		for (uint64_t e = csr_begin(&g->out, v); e < csr_end(&g->out, v); e++)
			unite(parents, (uint32_t)v, g->out.targets[e]);
	for (uint64_t v = 0; v < g->vertices && !ret; v++) {
		uint32_t root = root_of(parents, (uint32_t)v);

		roots += root == v;
		if (ids[v] != root)
			ret = soda_graph_fail(err, EBADMSG,
					      "components: vertex %" PRIu64 " is in %" PRIu32
					      ", expected %" PRIu32,
					      v, ids[v], root);
	}
	free(parents);
	if (!ret)
		printf("components: verified: %" PRIu64 " of them\n", roots);
	return ret;
}
