/* SPDX-License-Identifier: BSD-3-Clause */
/* Accepts every set in which no two vertices are neighbours and to which no vertex can be added. */
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>

/* Neighbours of v in the set; a self-loop makes no neighbour. */
static uint64_t neighbours_in(const struct graph *g, const uint8_t *chosen, uint64_t v)
{
	uint64_t count = 0;

	for (uint64_t e = csr_begin(&g->out, v); e < csr_end(&g->out, v); e++)
		count += g->out.targets[e] != v && chosen[g->out.targets[e]] == MIS_IN;
	return count;
}

int verify_mis_result(const struct graph *g, const struct app_params *params, const void *result,
		      struct soda_graph_error *err)
{
	const uint8_t *chosen = result;
	uint64_t size = 0;

	for (uint64_t v = 0; v < g->vertices; v++) {
		uint64_t neighbours = neighbours_in(g, chosen, v);

		if (chosen[v] != MIS_IN && chosen[v] != MIS_OUT)
			return soda_graph_fail(err, EBADMSG, "mis: vertex %" PRIu64 " is undecided",
					       v);
		if (chosen[v] == MIS_IN && neighbours)
			return soda_graph_fail(
				err, EBADMSG,
				"mis: vertex %" PRIu64 " is in the set, and a neighbour", v);
		if (chosen[v] == MIS_OUT && !neighbours)
			return soda_graph_fail(err, EBADMSG,
					       "mis: vertex %" PRIu64 " could be added to the set",
					       v);
		size += chosen[v] == MIS_IN;
	}
	printf("mis: verified: %" PRIu64 " vertices\n", size);
	return 0;
}
