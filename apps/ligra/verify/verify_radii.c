/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All searches at once, one word a vertex (MS-BFS: Then et al., VLDB 2014),
 * serially and always along the out-edges of what was reached last.
 */
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct search {
	uint64_t *seen, *here, *there; /* ever; in the last step; in this one */
	uint32_t *radii;
};

static int allocate(struct search *s, uint64_t n, struct soda_graph_error *err)
{
	s->seen = calloc(n, sizeof(*s->seen));
	s->here = calloc(n, sizeof(*s->here));
	s->there = calloc(n, sizeof(*s->there));
	s->radii = malloc(n * sizeof(*s->radii));
	return s->seen && s->here && s->there && s->radii ? 0 : verify_out_of_memory(err);
}

static void begin(struct search *s, uint64_t vertices)
{
	uint32_t samples[RADII_SAMPLES];
	unsigned count = radii_samples(vertices, samples);

	for (uint64_t v = 0; v < vertices; v++)
		s->radii[v] = VERTEX_NONE;
	for (unsigned i = 0; i < count; i++) {
		s->seen[samples[i]] = s->here[samples[i]] = (uint64_t)1 << i;
		s->radii[samples[i]] = 0;
	}
}

/* Returns whether anything was reached. */
static bool step(const struct graph *g, struct search *s, uint32_t round)
{
	uint64_t *last = s->here;
	bool any = false;

	for (uint64_t u = 0; u < g->vertices; u++) {
		if (!s->here[u])
			continue;
		for (uint64_t e = csr_begin(&g->out, u); e < csr_end(&g->out, u); e++)
			s->there[g->out.targets[e]] |= s->here[u];
		s->here[u] = 0;
	}
	for (uint64_t v = 0; v < g->vertices; v++) {
		s->there[v] &= ~s->seen[v];
		if (!s->there[v])
			continue;
		s->seen[v] |= s->there[v];
		s->radii[v] = round;
		any = true;
	}
	s->here = s->there;
	s->there = last;
	return any;
}

static int compare(uint64_t vertices, const uint32_t *expected, const uint32_t *radii,
		   struct soda_graph_error *err)
{
	uint32_t largest = 0;

	for (uint64_t v = 0; v < vertices; v++) {
		if (radii[v] != expected[v])
			return soda_graph_fail(err, EBADMSG,
					       "radii: vertex %" PRIu64 " has %" PRIu32
					       ", expected %" PRIu32,
					       v, radii[v], expected[v]);
		if (expected[v] != VERTEX_NONE && expected[v] > largest)
			largest = expected[v];
	}
	printf("radii: verified: the largest is %" PRIu32 "\n", largest);
	return 0;
}

int verify_radii_result(const struct graph *g, const struct app_params *params, const void *result,
			struct soda_graph_error *err)
{
	struct search s = { 0 };
	int ret = allocate(&s, g->vertices, err);

	if (!ret) {
		begin(&s, g->vertices);
		for (uint32_t round = 1; step(g, &s, round);)
			round++;
		ret = compare(g->vertices, s.radii, result, err);
	}
	free(s.seen);
	free(s.here);
	free(s.there);
	free(s.radii);
	return ret;
}
