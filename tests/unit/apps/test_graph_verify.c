/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks accept what the applications compute and refuse every kind of wrong result. */
#include "unit/fakes/graph_fixture.h"

#include "ligra/verify/verify.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
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
	struct soda_graph_error err;

	assert_int_equal(verify_bfs_levels(g, source, levels, &err), 0);
	return verify_bfs(g, source, levels, parents, &err);
}

static void levels_are_distances(void **state)
{
	const uint32_t expected[] = { 0, 1, 1, 2, 3, N, N };
	struct mem mem;
	struct graph g = fixture_graph(list, false, &mem);
	uint32_t levels[7];
	struct soda_graph_error err;

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

/* From the hub steps go in both directions; from a leaf mostly along out-edges. */
static void applications_are_right(void **state)
{
	for (int symmetric = 0; symmetric < 2; symmetric++) {
		struct mem mem;
		struct graph g = fixture_rmat(symmetric, &mem);
		const uint32_t sources[] = { graph_hub(&g), 1, 16383 };

		for (size_t i = 0; apps[i]; i++) {
			struct app_params params = APP_PARAMS_DEFAULTS;

			if (apps[i]->symmetric_only && !symmetric)
				continue;
			for (size_t k = 0; k < (apps[i]->source ? 3 : 1); k++) {
				params.source = sources[k];
				fixture_run_and_check(apps[i], &g, params);
			}
		}
		graph_destroy(&g);
		assert_int_equal(mem.bytes, 0);
	}
}

/* One vertex; one edge; several components; a path, which takes as many rounds as vertices. */
static void small_graphs_are_right(void **state)
{
	static const char *const lists[] = {
		"0 0\n",
		"0 1\n",
		"0 1\n1 2\n2 0\n3 4\n5 6\n6 7\n",
		list,
		"0 1\n1 2\n2 3\n3 4\n4 5\n5 6\n6 7\n7 8\n8 9\n9 10\n10 11\n11 12\n",
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		struct app_params params = APP_PARAMS_DEFAULTS;
		struct mem mem;
		struct graph g = fixture_graph(lists[i], i > 0, &mem);

		for (size_t k = 0; apps[k]; k++)
			if (g.symmetric || !apps[k]->symmetric_only)
				fixture_run_and_check(apps[k], &g, params);
		graph_destroy(&g);
	}
}

/* Two vertices that point at a third, which has no out-edge; by hand. */
static void one_iteration_by_hand(void **state)
{
	struct app_params params = { .iterations = 1 };
	struct mem mem;
	struct graph g = fixture_graph("0 2\n1 2\n", false, &mem);
	double base = 0.15 / 3, expected[3], *ranks;
	struct soda_graph_error err;

	assert_int_equal(verify_pagerank_ranks(&g, 1, expected, &err), 0);
	assert_true(fabs(expected[0] - base) < 1e-15);
	assert_true(fabs(expected[2] - (base + 0.85 * 2 / 3)) < 1e-15);
	ranks = fixture_run(&app_pagerank, &g, &params);
	assert_true(fabs(ranks[1] - base) < 1e-15);
	assert_true(fabs(ranks[2] - (base + 0.85 * 2 / 3)) < 1e-15);
	free(ranks);
	graph_destroy(&g);
}

/* 0 - 1 - 2 - 3 with a second way from 0 to 2: by hand. */
static void dependencies_by_hand(void **state)
{
	const double expected[] = { 4, 1, 1, 1, 0 };
	struct app_params params = { .source = 0 };
	struct mem mem;
	struct graph g = fixture_graph("0 1\n1 2\n0 3\n3 2\n2 4\n", false, &mem);
	double *found = fixture_run(&app_bc, &g, &params);

	for (int v = 1; v < 5; v++)
		assert_true(fabs(found[v] - expected[v]) < 1e-12);
	assert_true(fabs(found[0] - expected[0]) < 1e-12);
	free(found);
	graph_destroy(&g);
}

/* Diamonds in a row: each doubles the number of shortest paths. */
static struct graph diamonds(unsigned n, struct mem *mem)
{
	char *text = malloc(n * 64 + 1), *at = text;
	struct graph g;

	assert_non_null(text);
	for (unsigned i = 0; i < n; i++) {
		unsigned v = 3 * i;

		at += sprintf(at, "%u %u\n%u %u\n%u %u\n%u %u\n", v, v + 1, v, v + 2, v + 1, v + 3,
			      v + 2, v + 3);
	}
	g = fixture_graph(text, false, mem);
	free(text);
	return g;
}

/* As many paths as a double counts are right; more are an error, and no numbers. */
static void too_many_paths_are_refused(void **state)
{
	struct app_params params = { .source = 0 };
	struct soda_graph_error err;
	struct mem mem, arrays = { .kind = MEM_DRAM };
	struct graph g = diamonds(1000, &mem);
	struct ligra l;
	double *found = fixture_run(&app_bc, &g, &params);

	assert_true(fabs(found[0] - 3000) < 1e-6);
	assert_int_equal(app_bc.check(&g, &params, found, &err), 0);
	free(found);
	graph_destroy(&g);

	g = diamonds(1100, &mem);
	l = (struct ligra){ .g = &g, .mem = &arrays, .err = &err };
	found = calloc(g.vertices, sizeof(*found));
	app_bc.run(&l, &params, found);
	assert_int_equal(ligra_end(&l), -ERANGE);
	assert_non_null(strstr(err.text, "shortest paths lead to a vertex 2046 steps from 0"));
	assert_int_equal(app_bc.check(&g, &params, found, &err), -ERANGE);
	free(found);
	graph_destroy(&g);
}

static void triangles_and_cores_by_hand(void **state)
{
	const uint64_t triangles[] = { 0, 0, 1, 3, 0 };
	const uint32_t cores[] = { 3, 3, 3, 3, 1 };
	struct app_params params = { 0 };
	struct mem mem;
	struct graph g = fixture_graph("0 1\n0 2\n0 3\n1 2\n1 3\n2 3\n3 4\n", true, &mem);
	void *found = fixture_run(&app_triangle, &g, &params);

	assert_memory_equal(found, triangles, sizeof(triangles));
	free(found);
	found = fixture_run(&app_kcore, &g, &params);
	assert_memory_equal(found, cores, sizeof(cores));
	free(found);
	graph_destroy(&g);
}

/* Whatever entry is changed, in whatever bit that matters, is noticed. */
static void changed_results_are_refused(void **state)
{
	struct mem mem;
	struct graph g = fixture_rmat(true, &mem);
	struct soda_graph_error err;

	for (size_t i = 0; apps[i]; i++) {
		struct app_params params = APP_PARAMS_DEFAULTS;
		uint8_t *result = fixture_run(apps[i], &g, &params);
		size_t high = 77 * apps[i]->entry_bytes + apps[i]->entry_bytes - 1;

		/* The byte with the exponent; of MIS the only one. */
		result[high] ^= apps[i]->entry_bytes == 1 ? 1 : 0x40;
		assert_int_equal(apps[i]->check(&g, &params, result, &err), -EBADMSG);
		assert_non_null(strstr(err.text, apps[i]->name));
		free(result);
	}
	graph_destroy(&g);
}

static void wrong_ranks_are_refused(void **state)
{
	struct app_params params = { .iterations = 10 };
	struct mem mem;
	struct graph g = fixture_rmat(false, &mem);
	double *ranks = fixture_run(&app_pagerank, &g, &params), right = ranks[77];
	struct soda_graph_error err;

	assert_int_equal(params.iterations, 10);
	assert_int_equal(app_pagerank.check(&g, &params, ranks, &err), 0);
	ranks[77] = right * (1 + 1e-8);
	assert_int_equal(app_pagerank.check(&g, &params, ranks, &err), -EBADMSG);
	ranks[77] = 0;
	assert_int_equal(app_pagerank.check(&g, &params, ranks, &err), -EBADMSG);
	ranks[77] = NAN;
	assert_int_equal(app_pagerank.check(&g, &params, ranks, &err), -EBADMSG);
	ranks[77] = right;
	/* An iteration less is another result. */
	params.iterations = 9;
	assert_int_equal(app_pagerank.check(&g, &params, ranks, &err), -EBADMSG);
	free(ranks);
	graph_destroy(&g);
	assert_int_equal(mem.bytes, 0);
}

static void epsilon_ends_the_iterations(void **state)
{
	struct app_params params = { .iterations = 1000, .epsilon = 1e-6 };
	struct mem mem;
	struct graph g = fixture_rmat(false, &mem);

	free(fixture_run(&app_pagerank, &g, &params));
	assert_in_range(params.iterations, 2, 200);
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
		cmocka_unit_test(applications_are_right),
		cmocka_unit_test(small_graphs_are_right),
		cmocka_unit_test(one_iteration_by_hand),
		cmocka_unit_test(dependencies_by_hand),
		cmocka_unit_test(too_many_paths_are_refused),
		cmocka_unit_test(triangles_and_cores_by_hand),
		cmocka_unit_test(changed_results_are_refused),
		cmocka_unit_test(wrong_ranks_are_refused),
		cmocka_unit_test(epsilon_ends_the_iterations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
