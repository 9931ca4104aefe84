/* SPDX-License-Identifier: BSD-3-Clause */
/* Published graphs, each with its own traps; they are found in $SODA_TEST_GRAPHS. */
#include "graph_fixture.h"

#include "bfs.h"
#include "pagerank.h"
#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct published {
	const char *file;
	uint64_t vertices, edges;
};

static void search(const struct graph *g)
{
	uint32_t *parents = malloc(g->vertices * sizeof(*parents));
	uint32_t *levels = malloc(g->vertices * sizeof(*levels));
	struct error err;

	assert_int_equal(bfs_run(g, graph_hub(g), parents, &err), 0);
	assert_int_equal(verify_bfs_levels(g, graph_hub(g), levels, &err), 0);
	if (verify_bfs(g, graph_hub(g), levels, parents, &err))
		fail_msg("%s", err.text);
	free(levels);
	free(parents);
}

static void rank(const struct graph *g)
{
	struct pagerank_params params = { .iterations = 20 };
	double *ranks = malloc(g->vertices * sizeof(*ranks));
	double *expected = malloc(g->vertices * sizeof(*expected));
	struct error err;
	double worst;

	assert_int_equal(pagerank_run(g, &params, ranks, &err), 20);
	assert_int_equal(verify_pagerank_ranks(g, 20, expected, &err), 0);
	if (verify_pagerank(g->vertices, expected, ranks, &worst, &err))
		fail_msg("%s", err.text);
	free(expected);
	free(ranks);
}

static void is_as_published(void **state)
{
	const struct published *p = *state;
	const char *dir = getenv("SODA_TEST_GRAPHS");
	struct graph_input input = { 0 };
	struct error err;
	struct graph g;
	struct mem mem;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir ? dir : "", p->file);
	if (!dir || access(path, R_OK)) {
		printf("SKIP: %s: %s\n", p->file,
		       dir ? "no such file" : "SODA_TEST_GRAPHS is not set");
		skip();
	}
	input.path = path;
	assert_int_equal(mem_open(&mem, MEM_DRAM, 0, &err), 0);
	if (graph_input_load(&input, PARTS_ALL, &mem, &g, &err))
		fail_msg("%s", err.text);
	assert_int_equal(g.vertices, p->vertices);
	assert_int_equal(g.edges, p->edges);
	search(&g);
	rank(&g);
	graph_destroy(&g);
}

#define PUBLISHED(name, v, e)                                                                      \
	{                                                                                          \
		name, is_as_published, NULL, NULL, &((struct published){ name ".gz", v, e })       \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PUBLISHED("cnr-2000.el", 325557, 3216152),
		PUBLISHED("ego-twitter-undirected.el", 81306, 1342310),
		PUBLISHED("soc-Slashdot0902.txt", 82168, 948464),
		PUBLISHED("soc-Epinions1.txt", 75879, 508837),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
