/* SPDX-License-Identifier: BSD-3-Clause */
/* For each vertex: mark its neighbours, and look up among them the vertices two edges away. */
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Triangles of v with two smaller vertices; marks: v + 1 where a neighbour of v is. */
static uint64_t count_at(const struct graph *g, uint32_t v, uint64_t *marks)
{
	const struct csr *out = &g->out;
	uint64_t count = 0;

	for (uint64_t e = csr_begin(out, v); e < csr_end(out, v); e++)
		marks[out->targets[e]] = (uint64_t)v + 1;
	for (uint64_t e = csr_begin(out, v); e < csr_end(out, v); e++) {
		uint32_t u = out->targets[e];

		if (u >= v)
			break;
		for (uint64_t k = csr_begin(out, u); k < csr_end(out, u); k++) {
			if (out->targets[k] >= u)
				break;
			count += marks[out->targets[k]] == (uint64_t)v + 1;
		}
	}
	return count;
}

int verify_triangle_result(const struct graph *g, const struct app_params *params,
			   const void *result, struct soda_graph_error *err)
{
	uint64_t *marks = calloc(g->vertices, sizeof(*marks));
	const uint64_t *counts = result;
	uint64_t sum = 0;
	int ret = 0;

	if (!marks)
		return verify_out_of_memory(err);
	for (uint64_t v = 0; v < g->vertices && !ret; v++) {
		uint64_t expected = count_at(g, (uint32_t)v, marks);

		if (counts[v] != expected)
			ret = soda_graph_fail(err, EBADMSG,
					      "triangle: vertex %" PRIu64 " has %" PRIu64
					      ", expected %" PRIu64,
					      v, counts[v], expected);
		sum += expected;
	}
	free(marks);
	if (!ret)
		printf("triangle: verified: %" PRIu64 " triangles\n", sum);
	return ret;
}
