/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks accept what the applications compute and refuse every kind of wrong result. */
#include "graph_fixture.h"

#include "bfs.h"
#include "pagerank.h"
#include "verify.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 *   0 -> 1 -> 3 -> 4      6 -> 0, which is not reached from 0; 5 has a loop only
 *   0 -> 2 -> 3
 */
static const char list[] = "0 1\n0 2\n1 3\n2 3\n3 4\n5 5\n6 0\n";
#define N VERTEX_NONE

static int judge(const struct graph *g, uint32_t source, const uint32_t *parents)
{
	uint32_t levels[7];
	struct error err;

	assert_int_equal(verify_bfs_levels(g, source, levels, &err), 0);
	return verify_bfs(g, source, levels, parents, &err);
}

static void levels_are_distances(void **state)
{
	const uint32_t expected[] = { 0, 1, 1, 2, 3, N, N };
	struct mem mem;
	struct graph g = fixture_graph(list, false, &mem);
	uint32_t levels[7];
	struct error err;

	assert_int_equal(verify_bfs_levels(&g, 0, levels, &err), 0);
	assert_memory_equal(levels, expected, sizeof(expected));
	graph_destroy(&g);
}

static void either_shortest_path_is_right(void **state)
{
	const uint32_t one[] = { 0, 0, 0, 1, 3, N, N }, other[] = { 0, 0, 0, 2, 3, N, N };
	struct mem mem;
	struct graph g = fixture_graph(list, false, &mem);

	assert_int_equal(judge(&g, 0, one), 0);
	assert_int_equal(judge(&g, 0, other), 0);
	graph_destroy(&g);
}

static void wrong_parents_are_refused(void **state)
{
	static const uint32_t wrong[][7] = {
		{ N, 0, 0, 1, 3, N, N }, /* the source has none */
		{ 6, 0, 0, 1, 3, N, N }, /* the source has another */
		{ 0, N, 0, 2, 3, N, N }, /* one that can be reached has none */
		{ 0, 0, 0, 1, 3, 5, N }, /* one that cannot be reached has one */
		{ 0, 0, 0, 1, 3, N, 0 }, /* likewise, against an edge's direction */
		{ 0, 0, 0, 0, 3, N, N }, /* no such edge */
		{ 0, 0, 0, 1, 1, N, N }, /* likewise */
		{ 0, 2, 0, 2, 3, N, N }, /* likewise */
		{ 0, 0, 0, 7, 3, N, N }, /* no vertex */
	};
	struct mem mem;
	struct graph g = fixture_graph(list, false, &mem);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(judge(&g, 0, wrong[i]), -EBADMSG);
	graph_destroy(&g);
}

/* 2 is at distance 1, but could also be reached in two steps. */
static void detour_is_refused(void **state)
{
	const uint32_t detour[] = { 0, 0, 1 }, direct[] = { 0, 0, 0 };
	struct mem mem;
	struct graph g = fixture_graph("0 1\n1 2\n0 2\n", false, &mem);

	assert_int_equal(judge(&g, 0, direct), 0);
	assert_int_equal(judge(&g, 0, detour), -EBADMSG);
	graph_destroy(&g);
}

static void ring_without_the_source_is_refused(void **state)
{
	const uint32_t ring[] = { 0, 2, 1 };
	struct mem mem;
	struct graph g = fixture_graph("0 1\n1 2\n2 1\n", false, &mem);

	assert_int_equal(judge(&g, 0, ring), -EBADMSG);
	graph_destroy(&g);
}

static struct graph generated(bool symmetric, struct mem *mem)
{
	struct graph_input input = { .rmat = RMAT_DEFAULTS, .symmetric = symmetric };
	struct error err;
	struct graph g;

	input.rmat.scale = 14;
	input.rmat.edges = 60000;
	assert_int_equal(mem_open(mem, MEM_DRAM, 0, &err), 0);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, mem, &g, &err), 0);
	return g;
}

/* From the hub steps go in both directions; from a leaf mostly along out-edges. */
static void search_is_right(void **state)
{
	for (int symmetric = 0; symmetric < 2; symmetric++) {
		struct mem mem;
		struct graph g = generated(symmetric, &mem);
		uint32_t *parents = malloc(g.vertices * sizeof(*parents));
		uint32_t *levels = malloc(g.vertices * sizeof(*levels));
		const uint32_t sources[] = { graph_hub(&g), 1, 16383 };
		struct error err;

		for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
			assert_int_equal(bfs_run(&g, sources[i], parents, &err), 0);
			assert_int_equal(verify_bfs_levels(&g, sources[i], levels, &err), 0);
			if (verify_bfs(&g, sources[i], levels, parents, &err))
				fail_msg("%s", err.text);
		}
		free(levels);
		free(parents);
		graph_destroy(&g);
		assert_int_equal(mem.bytes, 0);
	}
}

/* Two vertices that point at a third, which has no out-edge; by hand. */
static void one_iteration_by_hand(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph("0 2\n1 2\n", false, &mem);
	double base = (0.15 + 0.85 / 3) / 3, ranks[3];
	struct pagerank_params params = { .iterations = 1 };
	struct error err;

	assert_int_equal(verify_pagerank_ranks(&g, 1, ranks, &err), 0);
	assert_true(fabs(ranks[0] - base) < 1e-15);
	assert_true(fabs(ranks[2] - (base + 0.85 * 2 / 3)) < 1e-15);
	assert_int_equal(pagerank_run(&g, &params, ranks, &err), 1);
	assert_true(fabs(ranks[1] - base) < 1e-15);
	assert_true(fabs(ranks[2] - (base + 0.85 * 2 / 3)) < 1e-15);
	graph_destroy(&g);
}

static void wrong_ranks_are_refused(void **state)
{
	struct pagerank_params params = { .iterations = 10 };
	struct mem mem;
	struct graph g = generated(false, &mem);
	size_t bytes = g.vertices * sizeof(double);
	double *expected = malloc(bytes), *ranks = malloc(bytes), worst, right;
	struct error err;

	assert_int_equal(verify_pagerank_ranks(&g, 10, expected, &err), 0);
	assert_int_equal(pagerank_run(&g, &params, ranks, &err), 10);
	assert_int_equal(verify_pagerank(g.vertices, expected, ranks, &worst, &err), 0);
	assert_true(worst < PAGERANK_TOLERANCE);
	right = ranks[77];
	ranks[77] = right * (1 + 1e-8);
	assert_int_equal(verify_pagerank(g.vertices, expected, ranks, &worst, &err), -EBADMSG);
	ranks[77] = 0;
	assert_int_equal(verify_pagerank(g.vertices, expected, ranks, &worst, &err), -EBADMSG);
	ranks[77] = NAN;
	assert_int_equal(verify_pagerank(g.vertices, expected, ranks, &worst, &err), -EBADMSG);
	/* An iteration less is another result. */
	params.iterations = 9;
	assert_int_equal(pagerank_run(&g, &params, ranks, &err), 9);
	assert_int_equal(verify_pagerank(g.vertices, expected, ranks, &worst, &err), -EBADMSG);
	free(ranks);
	free(expected);
	graph_destroy(&g);
	assert_int_equal(mem.bytes, 0);
}

static void epsilon_ends_the_iterations(void **state)
{
	struct pagerank_params params = { .iterations = 1000, .epsilon = 1e-6 };
	struct mem mem;
	struct graph g = generated(false, &mem);
	double *ranks = malloc(g.vertices * sizeof(double));
	struct error err;

	assert_in_range(pagerank_run(&g, &params, ranks, &err), 2, 200);
	free(ranks);
	graph_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(levels_are_distances),
		cmocka_unit_test(either_shortest_path_is_right),
		cmocka_unit_test(wrong_parents_are_refused),
		cmocka_unit_test(detour_is_refused),
		cmocka_unit_test(ring_without_the_source_is_refused),
		cmocka_unit_test(search_is_right),
		cmocka_unit_test(one_iteration_by_hand),
		cmocka_unit_test(wrong_ranks_are_refused),
		cmocka_unit_test(epsilon_ends_the_iterations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
