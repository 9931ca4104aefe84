/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Weights of edges: each format's are read, kept through sorting and in every form that is written,
 * and are those that bellman-ford adds up: its distances are held against those of every pair,
 * computed here from a matrix (Floyd, CACM 5(6), 1962).
 */
#include "unit/fakes/graph_fixture.h"

#include "graph/format/export.h"
#include "graph/sort.h"
#include "ligra/verify/verify.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MM "%%MatrixMarket matrix coordinate "

static int load(const char *path, bool symmetric, bool weighted, struct graph *g_p,
		struct soda_graph_error *err)
{
	static struct mem mem;
	struct graph_input input = { .path = path, .symmetric = symmetric, .weighted = weighted };

	mem = (struct mem){ .kind = MEM_DRAM };
	return graph_input_load(&input, PARTS_ALL, &mem, g_p, err);
}

static struct graph loaded(const char *path, bool symmetric)
{
	struct soda_graph_error err;
	struct graph g;

	if (load(path, symmetric, true, &g, &err))
		fail_msg("%s: %s", path, err.text);
	assert_true(g.weighted);
	assert_non_null(g.out.weights);
	assert_non_null(g.in.weights);
	return g;
}

static char *text_file(const char *text)
{
	return fixture_file(text, strlen(text));
}

static void assert_graph(const struct graph *g, size_t edges, const uint32_t *targets,
			 const double *weights)
{
	assert_int_equal(g->edges, edges);
	assert_memory_equal(g->out.targets, targets, edges * sizeof(*targets));
	assert_memory_equal(g->out.weights, weights, edges * sizeof(*weights));
}

/* 0 -> 1 by 2.5, 0 -> 2 by 0, 1 -> 2 by 1e3, 2 -> 0 by 7, in each format that has weights. */
static void each_format_is_read(void **state)
{
	static const char *const texts[] = {
		"# a comment\n2 0 7\r\n0\t2\t0\n0 1 2.5\n\n1   2 1e3",
		MM "real general\n3 3 4\n1 2 2.5\n1 3 0\n2 3 1e3\n3 1 7\n",
		"WeightedAdjacencyGraph\n3\n4\n0\n2\n3\n2\n1\n2\n0\n-0\n2.5\n1000\n7\n",
	};
	static const uint32_t targets[] = { 1, 2, 2, 0 };
	static const double weights[] = { 2.5, 0, 1e3, 7 };
	static const double in_weights[] = { 7, 2.5, 0, 1e3 };

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		char *path = text_file(texts[i]), *packed = fixture_gz(texts[i], strlen(texts[i]));
		struct graph g = loaded(path, false);

		assert_graph(&g, 4, targets, weights);
		assert_memory_equal(g.in.weights, in_weights, sizeof(in_weights));
		graph_destroy(&g);
		g = loaded(packed, false);
		assert_graph(&g, 4, targets, weights);
		graph_destroy(&g);
		fixture_remove(path);
		fixture_remove(packed);
	}
}

/* The half that is not in the file has them as well; integers are weights, too. */
static void half_matrices_are_mirrored(void **state)
{
	static const uint32_t targets[] = { 1, 2, 0, 0 };
	static const double weights[] = { 5, 2, 5, 2 };
	char *path = text_file(MM "integer symmetric\n3 3 3\n2 1 5\n3 3 1\n3 1 2\n");
	struct graph g = loaded(path, false);

	assert_graph(&g, 4, targets, weights);
	graph_destroy(&g);
	fixture_remove(path);
}

/*
 * Repeated edges stay, lightest first.  Where several become one, or two directions do, it has the
 * least weight of them.
 */
static void lightest_of_several(void **state)
{
	static const uint32_t all[] = { 1, 1, 1, 0, 1 }, one[] = { 1, 0 };
	static const double all_weights[] = { 2, 3, 10, 1, 4 }, one_weight[] = { 1, 1 };
	char *path = text_file("0 1 10\n0 1 2\n1 1 4\n0 1 3\n1 0 1\n");
	struct graph g = loaded(path, false);

	assert_graph(&g, 5, all, all_weights);
	graph_destroy(&g);
	g = loaded(path, true);
	assert_graph(&g, 2, one, one_weight);
	assert_ptr_equal(g.in.weights, g.out.weights);
	graph_destroy(&g);
	fixture_remove(path);
}

static void wrong_weights_are_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "0 1 2\n1 2\n", ":2: expected a weight, found the end of the line" },
		{ "0 1 2\n1 2x1\n", ":2: expected a blank and a weight, found 'x'" },
		{ "0 1 2\n1 2 \n", ":2: expected a weight, found the end of the line" },
		{ "0 1 -1\n", ":1: expected a weight from 0 to 1e+250, found '-1'" },
		{ "0 1 1e251\n", "expected a weight from 0 to 1e+250, found '1e251'" },
		{ "0 1 inf\n", "expected a weight from 0 to 1e+250, found 'inf'" },
		{ "0 1 nan\n", "expected a weight from 0 to 1e+250, found 'nan'" },
		{ "0 1 2x\n", "expected a weight from 0 to 1e+250, found '2x'" },
		{ "0 1 10000000000000000000000000000000000000000000000000000000000000000\n",
		  "expected a weight from 0" },
		{ "0 1 2 3\n", ":1: expected the end of the line after a weight" },
		{ MM "real general\n3 3 1\n1 2 -3\n", ":3: expected a weight from 0" },
		{ MM "real general\n3 3 1\n1 2\n", ":3: expected a weight, found the end" },
		{ MM "pattern general\n3 3 1\n1 2\n", "expected a graph with weights" },
		{ MM "complex general\n3 3 1\n1 2 1 1\n", "found Matrix Market without" },
		{ MM "real skew-symmetric\n3 3 1\n2 1 3\n", "expected a graph with weights" },
		{ "AdjacencyGraph\n2\n1\n0\n1\n1\n", "expected a graph with weights" },
		{ "WeightedAdjacencyGraph\n2\n1\n0\n1\n1\n",
		  ":7: expected a weight, found the end of the file" },
		{ "WeightedAdjacencyGraph\n2\n1\n0\n1\n1\n3\n4\n",
		  ":8: expected the end of the file after the last edge" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *path = text_file(cases[i].text);
		struct soda_graph_error err = { "" };
		struct graph g;

		if (load(path, false, true, &g, &err) != -EINVAL ||
		    !strstr(err.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
		fixture_remove(path);
	}
}

/* A user that asks for none is told of weights that cannot be left out. */
static void not_asked_for(void **state)
{
	char *list = text_file("0 1 2\n"), *matrix = text_file(MM "real general\n2 2 1\n1 2 -3\n");
	char *text = text_file("WeightedAdjacencyGraph\n2\n1\n0\n1\n1\n3\n");
	struct soda_graph_error err = { "" };
	struct graph g;

	assert_int_equal(load(list, false, false, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "(--weights reads a third number as a weight)"));
	assert_int_equal(load(text, false, false, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "--weights"));
	assert_int_equal(load(matrix, false, false, &g, &err), 0);
	assert_false(g.weighted);
	assert_null(g.out.weights);
	graph_destroy(&g);
	fixture_remove(list);
	fixture_remove(matrix);
	fixture_remove(text);
}

static char *built(const char *input, bool symmetric)
{
	char *path = fixture_triple_path();
	struct soda_graph_error err;

	if (fixture_build(input, symmetric, true, path, &err))
		fail_msg("%s", err.text);
	return path;
}

/* A number that needs 17 digits is the same after all of this; GAP's format has no weights. */
static void exports_come_back(void **state)
{
	static const enum soda_graph_format formats[] = { SODA_GRAPH_ADJACENCY, SODA_GRAPH_SNAP,
							  SODA_GRAPH_MTX };
	char *input =
		text_file("0 1 0.1\n1 2 0.30000000000000004\n2 0 123456789012345678\n2 1 0\n");
	struct soda_graph_error err;

	for (size_t i = 0; i < 6; i++) {
		bool symmetric = i & 1;
		char *path = built(input, symmetric), *file = fixture_file("", 0);
		struct graph there = loaded(path, symmetric), back;

		if (soda_graph_export(path, formats[i / 2], file, &err))
			fail_msg("%s", err.text);
		back = loaded(file, symmetric);
		assert_memory_equal(back.sum, there.sum, sizeof(back.sum));
		assert_int_equal(soda_graph_export(path, SODA_GRAPH_GAP, file, &err), -EINVAL);
		assert_non_null(strstr(err.text, "expected a graph without weights"));
		graph_destroy(&there);
		graph_destroy(&back);
		free(file);
		fixture_triple_remove(path);
	}
	fixture_remove(input);
}

static void assert_refused(const char *path, const char *says)
{
	struct soda_graph_error err = { "" };
	struct graph g;

	assert_true(load(path, false, false, &g, &err) < 0);
	if (!strstr(err.text, says))
		fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void damage_is_noticed(void **state)
{
	const double minus_one = -1;
	char *input = text_file("0 1 1.5\n1 2 2\n"), *path = built(input, false);
	char *weights = soda_graph_path(path, ".weights");
	FILE *f;

	fixture_flip(path, ".in.weights", 9);
	assert_refused(path, "in-weights: damaged: checksum");
	fixture_flip(path, ".weights", 0);
	assert_refused(path, "out-weights: damaged: checksum");
	f = fopen(weights, "r+");
	assert_non_null(f);
	assert_int_equal(fwrite(&minus_one, sizeof(minus_one), 1, f), 1);
	fclose(f);
	assert_refused(path, "out-weights: byte 0: expected a number from 0 to");
	assert_int_equal(truncate(weights, 8), 0);
	assert_refused(path, "expected 16 bytes, found 8");
	free(weights);
	fixture_triple_remove(path);
	fixture_remove(input);
}

/* Weights go with their edges through runs that are spilled and merged. */
static void sorted_in_any_number_of_runs(void **state)
{
	enum { COUNT = 5001, VERTICES = 40 };
	static double least[VERTICES][VERTICES];

	for (int unique = 0; unique < 2; unique++) {
		struct soda_graph_edge edge, last = { 0, 0 };
		struct soda_graph_sorter *s;
		struct soda_graph_error err;
		double weight, last_weight = -1, sum = 0, expected = 0;
		size_t done = 0;

		for (size_t v = 0; v < VERTICES * VERTICES; v++)
			least[v / VERTICES][v % VERTICES] = INFINITY;
		/* 500 edges a run. */
		assert_int_equal(soda_graph_sorter_create("/tmp", 16000, unique, true, &s, &err),
				 0);
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t x = i * 2654435761u;

			edge = (struct soda_graph_edge){ x % VERTICES, x / 64 % VERTICES };
			weight = x / 4096 % 1000;
			expected += weight;
			if (weight < least[edge.from][edge.to])
				least[edge.from][edge.to] = weight;
			assert_int_equal(soda_graph_sorter_add(s, &edge, &weight, 1, &err), 0);
		}
		assert_int_equal(soda_graph_sorter_finish(s, &err), 0);
		while (soda_graph_sorter_next(s, &edge, &weight, 1, &err) == 1) {
			bool again = done && edge.from == last.from && edge.to == last.to;

			assert_true(edge.from > last.from ||
				    (edge.from == last.from && edge.to >= last.to));
			assert_true(again ? weight >= last_weight
					  : weight == least[edge.from][edge.to]);
			assert_false(unique && again);
			sum += weight;
			last = edge;
			last_weight = weight;
			done++;
		}
		if (!unique) {
			assert_int_equal(done, COUNT);
			assert_true(sum == expected);
		}
		soda_graph_sorter_destroy(s);
	}
}

enum { V = 60 };

/* A list of random edges, whose weights sum up without rounding, and the distances of all pairs. */
static char *random_list(uint32_t seed, bool symmetric, double distances[V][V])
{
	char *path = fixture_file("", 0);
	FILE *f = fopen(path, "w");
	uint32_t x = seed;

	for (size_t i = 0; i < V * V; i++)
		distances[i / V][i % V] = i / V == i % V ? 0 : INFINITY;
	for (unsigned i = 0; i < 4 * V; i++) {
		uint32_t from, to;
		double weight;

		x = x * 1664525 + 1013904223;
		from = (x >> 8) % V;
		x = x * 1664525 + 1013904223;
		/* Few edges lead to the last ones, none to vertex 0 but its loop. */
		to = (x >> 8) % (V - 2) + (i % 40 == 0);
		x = x * 1664525 + 1013904223;
		weight = (double)(x >> 12) / 64;
		fprintf(f, "%u %u %.17g\n", from, to, weight);
		if (weight < distances[from][to])
			distances[from][to] = weight;
		if (symmetric && weight < distances[to][from])
			distances[to][from] = weight;
	}
	fprintf(f, "%u %u 0\n0 0 3\n", V - 1, V - 1); /* so that all ids occur */
	for (unsigned v = 0; v < V; v++)
		fprintf(f, "%u %u 5\n", v, v);
	fclose(f);
	for (size_t k = 0; k < V; k++)
		for (size_t i = 0; i < V; i++)
			for (size_t j = 0; j < V; j++)
				distances[i][j] =
					fmin(distances[i][j], distances[i][k] + distances[k][j]);
	return path;
}

static void shortest_paths_are_those_of_every_pair(void **state)
{
	static double expected[V][V];

	for (uint32_t seed = 1; seed <= 6; seed++) {
		char *path = random_list(seed, seed % 2, expected);
		struct graph g = loaded(path, seed % 2);

		assert_int_equal(g.vertices, V);
		for (uint32_t source = 0; source < V; source++) {
			struct app_params params = APP_PARAMS_DEFAULTS;
			struct soda_graph_error err;
			double *found;

			params.source = source;
			found = fixture_run(&app_bellman_ford, &g, &params);
			for (size_t v = 0; v < V; v++)
				if (found[v] != expected[source][v])
					fail_msg("seed %u: from %u to %zu: %g, expected %g", seed,
						 source, v, found[v], expected[source][v]);
			assert_int_equal(verify_bellman_ford_result(&g, &params, found, &err), 0);
			found[(source + 1) % V] += 1;
			if (isfinite(found[(source + 1) % V]))
				assert_int_equal(
					verify_bellman_ford_result(&g, &params, found, &err),
					-EBADMSG);
			free(found);
		}
		graph_destroy(&g);
		fixture_remove(path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_format_is_read),
		cmocka_unit_test(half_matrices_are_mirrored),
		cmocka_unit_test(lightest_of_several),
		cmocka_unit_test(wrong_weights_are_refused),
		cmocka_unit_test(not_asked_for),
		cmocka_unit_test(exports_come_back),
		cmocka_unit_test(damage_is_noticed),
		cmocka_unit_test(sorted_in_any_number_of_runs),
		cmocka_unit_test(shortest_paths_are_those_of_every_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
