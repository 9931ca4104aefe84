/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int check_bfs(const struct graph *g, uint32_t source, const uint32_t *parents,
		     struct error *err)
{
	uint32_t *levels = malloc(g->vertices * sizeof(*levels));
	uint64_t reached = 0;
	int ret;

	if (!levels)
		return error_set(err, ENOMEM, "out of memory for the reference levels");
	ret = verify_bfs_levels(g, source, levels, err);
	if (!ret)
		ret = verify_bfs(g, source, levels, parents, err);
	for (uint64_t v = 0; v < g->vertices; v++)
		reached += levels[v] != LEVEL_NONE;
	free(levels);
	if (!ret)
		printf("bfs: verified: %" PRIu64 " vertices reached, all on shortest paths\n",
		       reached);
	return ret;
}

static int check_pagerank(const struct graph *g, unsigned iterations, const double *ranks,
			  struct error *err)
{
	double *expected = malloc(g->vertices * sizeof(*expected));
	double worst;
	int ret;

	if (!expected)
		return error_set(err, ENOMEM, "out of memory for the reference ranks");
	ret = verify_pagerank_ranks(g, iterations, expected, err);
	if (!ret)
		ret = verify_pagerank(g->vertices, expected, ranks, &worst, err);
	free(expected);
	if (!ret)
		printf("pagerank: verified: relative difference at most %.1e\n", worst);
	return ret;
}

int check_result(const struct graph *g, const struct result *r, struct error *err)
{
	if (r->app == APP_BFS)
		return check_bfs(g, r->source, r->array, err);
	return check_pagerank(g, r->iterations, r->array, err);
}
