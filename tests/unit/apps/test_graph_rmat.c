/* SPDX-License-Identifier: BSD-3-Clause */
/* The generator: a graph depends on its parameters and on nothing else. */
#include "unit/fakes/graph_fixture.h"

#include <errno.h>
#include <omp.h>
#include <string.h>

static struct soda_graph_random small(uint64_t seed)
{
	struct soda_graph_random params = SODA_GRAPH_RANDOM_DEFAULTS;

	params.scale = 12;
	params.edges = 100000;
	params.seed = seed;
	return params;
}

static struct graph generate(const struct soda_graph_random *params, bool symmetric,
			     struct mem *mem)
{
	struct graph_input input = { .rmat = *params, .symmetric = symmetric };
	struct soda_graph_error err;
	struct graph g;

	assert_int_equal(mem_open(mem, MEM_DRAM, 0, &err), 0);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, mem, &g, &err), 0);
	return g;
}

static void threads_do_not_change_the_graph(void **state)
{
	struct soda_graph_random params = small(7);

	for (int symmetric = 0; symmetric < 2; symmetric++) {
		struct mem mem, other_mem;
		struct graph g, other;

		omp_set_num_threads(1);
		g = generate(&params, symmetric, &mem);
		omp_set_num_threads(4);
		other = generate(&params, symmetric, &other_mem);
		assert_int_equal(g.edges, other.edges);
		assert_memory_equal(g.sum, other.sum, sizeof(g.sum));
		graph_destroy(&g);
		graph_destroy(&other);
	}
}

static void seed_changes_the_graph(void **state)
{
	struct soda_graph_random params = small(1), other_params = small(2);
	struct mem mem, other_mem;
	struct graph g = generate(&params, false, &mem);
	struct graph other = generate(&other_params, false, &other_mem);

	assert_int_equal(g.vertices, 4096);
	assert_int_equal(g.edges, 100000);
	assert_int_equal(other.edges, 100000);
	assert_int_not_equal(g.sum[PART_OUT_TARGETS], other.sum[PART_OUT_TARGETS]);
	graph_destroy(&g);
	graph_destroy(&other);
}

/* The first level's quadrants hold what the probabilities say: +-2 % is over ten deviations. */
static void quadrants_follow_the_probabilities(void **state)
{
	struct soda_graph_random params = small(3);
	struct mem mem;
	struct graph g = generate(&params, false, &mem);
	uint64_t quadrant[4] = { 0 };

	for (uint64_t v = 0; v < g.vertices; v++)
		for (uint64_t e = csr_begin(&g.out, v); e < csr_end(&g.out, v); e++)
			quadrant[(v >= 2048) * 2 + (g.out.targets[e] >= 2048)]++;
	assert_in_range(quadrant[0], 48000, 52000);
	assert_in_range(quadrant[1], 8000, 12000);
	assert_in_range(quadrant[2], 8000, 12000);
	assert_in_range(quadrant[3], 28000, 32000);
	graph_destroy(&g);
}

static void symmetric_has_each_edge_back(void **state)
{
	struct soda_graph_random params = small(4);
	struct mem mem;
	struct graph g = generate(&params, true, &mem);
	uint64_t sum = 0, product = 0;

	for (uint64_t v = 0; v < g.vertices; v++)
		for (uint64_t e = csr_begin(&g.out, v); e < csr_end(&g.out, v); e++) {
			uint32_t u = g.out.targets[e];

			assert_int_not_equal(u, v);
			if (e > g.out.offsets[v])
				assert_true(g.out.targets[e - 1] < u);
			/* Cancels for a pair of edges there and back. */
			sum += v < u ? v * 8191 + u : -(u * UINT64_C(8191) + v);
			product ^= v < u ? v << 32 | u : (uint64_t)u << 32 | v;
		}
	assert_int_equal(sum, 0);
	assert_int_equal(product, 0);
	graph_destroy(&g);
}

static void bad_parameters_are_refused(void **state)
{
	struct soda_graph_random scale = small(1), edges = small(1), abc = small(1);
	struct soda_graph_source *source;
	struct soda_graph_error err;

	scale.scale = 32;
	edges.edges = 0;
	abc.a = 0.9;
	assert_int_equal(soda_graph_rmat_open(&scale, &source, &err), -EINVAL);
	assert_int_equal(soda_graph_rmat_open(&edges, &source, &err), -EINVAL);
	assert_int_equal(soda_graph_rmat_open(&abc, &source, &err), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_do_not_change_the_graph),
		cmocka_unit_test(seed_changes_the_graph),
		cmocka_unit_test(quadrants_follow_the_probabilities),
		cmocka_unit_test(symmetric_has_each_edge_back),
		cmocka_unit_test(bad_parameters_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
