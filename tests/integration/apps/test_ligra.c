/* SPDX-License-Identifier: BSD-3-Clause */
/* The example programs as a user runs them, on a memory server with a buffer far too small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "lib/proc.h"

static char dir[64], graph[96], other_graph[96], result[96], json[96];
static struct server server;

#define RUN(p, program, ...)                                                                       \
	assert_int_equal(program_run(program, (const char *const[]){ __VA_ARGS__, NULL }, p), 0)
#define LIGRA(p, ...) RUN(p, "apps/ligra/soda-ligra", __VA_ARGS__)

static void expect(const struct program *p, int status, const char *says)
{
	if (p->status != status || !strstr(p->err, says))
		fail_msg("status %d, expected %d; stderr \"%s\" should say \"%s\"", p->status,
			 status, p->err, says);
}

static int start(void **state)
{
	struct program p;

	snprintf(dir, sizeof(dir), "/tmp/soda-ligra-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(graph, sizeof(graph), "%s/graph", dir);
	snprintf(other_graph, sizeof(other_graph), "%s/other", dir);
	snprintf(result, sizeof(result), "%s/result", dir);
	snprintf(json, sizeof(json), "%s/json", dir);
	setenv("OMP_NUM_THREADS", "2", 1);
	setenv("OMP_WAIT_POLICY", "passive", 1);
	RUN(&p, "tools/soda/soda", "graph", "gen", "--scale", "15", graph);
	return p.status || SERVER_START(&server, "--capacity", "512M", "--export", dir);
}

static void remove_graph(const char *triple)
{
	static const char *const suffixes[] = { "config",    "idx",	"adj",
						"in.config", "in.idx",	"in.adj",
						"labels",    "weights", "in.weights" };
	char path[128];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		snprintf(path, sizeof(path), "%s.%s", triple, suffixes[i]);
		unlink(path);
	}
}

static int stop(void **state)
{
	int ret = server_stop(&server);

	server_forget(&server);
	remove_graph(graph);
	unlink(result);
	unlink(json);
	return rmdir(dir) || ret;
}

/* 3 to 5 MiB of data in a buffer of 1.25 MiB: 20 chunks. */
static void use_server(const char *address)
{
	setenv("SODA_SERVER", address, 1);
	setenv("SODA_BUFFER", "1280K", 1);
}

static json_int_t member(const char *name)
{
	json_error_t why;
	json_t *o = json_load_file(json, 0, &why);
	json_int_t value;

	assert_non_null(o);
	assert_true(json_is_integer(json_object_get(o, name)));
	value = json_integer_value(json_object_get(o, name));
	json_decref(o);
	return value;
}

static void right_from_fabric_memory(const char *app)
{
	struct program p;

	use_server(server.address);
	LIGRA(&p, "--graph", graph, "--memory", "fam", "--repeat", "2", "--json", json, "--result",
	      result, app);
	expect(&p, 0, "");
	assert_in_range(member("resident_peak_bytes"), 1, 1280 << 10);
	assert_true(member("object_bytes") > 2 * (1280 << 10));
	assert_true(member("bytes_fetched") > 0);
	LIGRA(&p, "--graph", graph, "verify", result);
	expect(&p, 0, "");
}

static void search_is_right(void **state)
{
	right_from_fabric_memory("bfs");
}

static void ranks_are_right(void **state)
{
	right_from_fabric_memory("pagerank");
}

static void radii_are_right(void **state)
{
	right_from_fabric_memory("radii");
}

static void dependencies_are_right(void **state)
{
	right_from_fabric_memory("bc");
}

static void components_are_right(void **state)
{
	right_from_fabric_memory("components");
}

static void shortest_paths_are_right(void **state)
{
	right_from_fabric_memory("bellman-ford");
}

/* The server has the graph's files: nothing of the graph is written back. */
static void served_files_give_the_same(void **state)
{
	struct program p;

	use_server(server.address);
	LIGRA(&p, "--graph", "graph", "--memory", "served", "--json", json, "--result", result,
	      "bc");
	expect(&p, 0, "");
	assert_in_range(member("resident_peak_bytes"), 1, 1280 << 10);
	assert_true(member("bytes_fetched") > 0);
	assert_int_equal(member("bytes_written_back"), 0);
	LIGRA(&p, "--graph", graph, "verify", result);
	expect(&p, 0, "");
	LIGRA(&p, "--graph", "nothing", "--memory", "served", "bfs");
	expect(&p, 2, "nothing.config: cannot open on the memory server");
	LIGRA(&p, "--graph", graph, "--memory", "mmap", "--verify", "components");
	expect(&p, 0, "");
	LIGRA(&p, "--graph", graph, "--memory", "mmap-advised", "--verify", "components");
	expect(&p, 0, "");
}

/* Published graphs with all of their data in fabric memory and a buffer of 20 chunks. */
static void published_graphs_are_right(void **state)
{
	static const char *const apps[] = { "bfs", "pagerank", "radii", "bc", "components" };
	const char *name = *state, *graphs = getenv("SODA_TEST_GRAPHS");
	char path[4096];
	struct program p;

	snprintf(path, sizeof(path), "%s/%s", graphs ? graphs : "", name);
	if (!graphs || access(path, R_OK)) {
		printf("SKIP: %s: %s\n", name,
		       graphs ? "no such file" : "SODA_TEST_GRAPHS is not set");
		skip();
	}
	RUN(&p, "tools/soda/soda", "graph", "convert", path, other_graph);
	expect(&p, 0, "");
	use_server(server.address);
	for (size_t i = 0; i < sizeof(apps) / sizeof(*apps); i++) {
		LIGRA(&p, "--graph", "other", "--memory", "served", "--arrays",
		      i % 2 ? "fam" : "dram", "--iterations", "5", "--result", result, apps[i]);
		expect(&p, 0, "");
		LIGRA(&p, "--graph", other_graph, "verify", result);
		expect(&p, 0, "");
	}
	remove_graph(other_graph);
}

static void list_loads_into_fabric_memory(void **state)
{
	char list[96];
	struct program p;
	FILE *f;

	snprintf(list, sizeof(list), "%s/list", dir);
	f = fopen(list, "w");
	assert_non_null(f);
	for (unsigned i = 0; i < 200000; i++)
		fprintf(f, "%u\t%u\r\n", i / 4, i / 4 + i % 7);
	fclose(f);
	use_server(server.address);
	LIGRA(&p, "--graph", list, "--memory", "fam", "--verify", "bfs");
	expect(&p, 0, "");
	unlink(list);
}

/* A list of edges with weights, as a file, and the distances from vertex 0 along them. */
enum { ROADS = 60000, PLACES = 15000 };
static struct road {
	unsigned from, to;
	double length;
} roads[ROADS];
static double distances[PLACES];

static void write_roads(const char *path)
{
	FILE *f = fopen(path, "w");
	uint32_t x = 1;

	assert_non_null(f);
	for (unsigned i = 0; i < ROADS; i++) {
		struct road *r = &roads[i];

		x = x * 1664525 + 1013904223;
		/* Each place has a road to the next one, and some have long ones anywhere. */
		r->from = i % PLACES;
		r->to = i < PLACES ? (i + 1) % PLACES : (x >> 8) % PLACES;
		r->length = (double)(x >> 12) / 256;
		fprintf(f, "%u %u %.17g\n", r->from, r->to, r->length);
	}
	fclose(f);
}

/* Along each road again and again, until nothing is nearer. */
static void measure_roads(void)
{
	bool nearer = true;

	for (unsigned v = 0; v < PLACES; v++)
		distances[v] = v ? 1e300 : 0;
	while (nearer) {
		nearer = false;
		for (unsigned i = 0; i < ROADS; i++) {
			double length = distances[roads[i].from] + roads[i].length;

			if (length < distances[roads[i].to]) {
				distances[roads[i].to] = length;
				nearer = true;
			}
		}
	}
}

/* The result's file ends with a number for each vertex. */
static void assert_distances(void)
{
	static double found[PLACES];
	FILE *f = fopen(result, "r");

	assert_non_null(f);
	assert_int_equal(fseek(f, -(long)sizeof(found), SEEK_END), 0);
	assert_int_equal(fread(found, sizeof(found), 1, f), 1);
	fclose(f);
	for (unsigned v = 0; v < PLACES; v++)
		if (found[v] != distances[v])
			fail_msg("place %u: %.17g, expected %.17g", v, found[v], distances[v]);
}

static void given_weights_are_taken(void **state)
{
	char list[96];
	struct program p;

	snprintf(list, sizeof(list), "%s/list", dir);
	write_roads(list);
	measure_roads();
	use_server(server.address);
	LIGRA(&p, "--graph", list, "--weights", "--source", "0", "--memory", "fam", "--verify",
	      "--result", result, "bellman-ford");
	expect(&p, 0, "");
	assert_non_null(strstr(p.out, "60000 edges with weights"));
	assert_distances();
	LIGRA(&p, "--graph", list, "bellman-ford");
	expect(&p, 2, "(--weights reads a third number as a weight)");
	RUN(&p, "tools/soda/soda", "graph", "convert", "--weights", list, other_graph);
	expect(&p, 0, "");
	LIGRA(&p, "--graph", other_graph, "verify", result);
	expect(&p, 0, "");
	unlink(result);
	LIGRA(&p, "--graph", "other", "--source", "0", "--memory", "served", "--result", result,
	      "bellman-ford");
	expect(&p, 0, "");
	assert_distances();
	LIGRA(&p, "--graph", graph, "--weights", "bellman-ford");
	expect(&p, 2, "a graph without weights: expected one that was converted with --weights");
	LIGRA(&p, "--rmat", "4", "--weights", "bellman-ford");
	expect(&p, 2, "--weights: expected --graph");
	remove_graph(other_graph);
	unlink(list);
}

static void damaged_result_is_noticed(void **state)
{
	struct program p;
	FILE *f;

	LIGRA(&p, "--graph", graph, "--result", result, "bfs");
	expect(&p, 0, "");
	f = fopen(result, "r+");
	assert_non_null(f);
	fseek(f, 5000, SEEK_SET);
	fputs("????", f);
	fclose(f);
	LIGRA(&p, "--graph", graph, "verify", result);
	expect(&p, 1, "its parent");
}

static void bad_input_ends_with_two(void **state)
{
	char list[96];
	struct program p;
	FILE *f;

	snprintf(list, sizeof(list), "%s/list", dir);
	f = fopen(list, "w");
	assert_non_null(f);
	fputs("# two ids a line\n1 2\n3\n", f);
	fclose(f);
	LIGRA(&p, "--graph", list, "bfs");
	expect(&p, 2,
	       "/list:3: expected a blank and a second vertex id, found the end of the line");
	unlink(list);
	LIGRA(&p, "--graph", list, "bfs");
	expect(&p, 2, "/list: cannot open: No such file or directory");
	LIGRA(&p, "--graph", graph, "--source", "99999999", "bfs");
	expect(&p, 2, "the graph has no vertex 99999999");
}

static void bad_usage_ends_with_two(void **state)
{
	struct program p;

	LIGRA(&p, "bfs");
	expect(&p, 2, "expected --graph or --rmat");
	LIGRA(&p, "--rmat", "4", "dfs");
	expect(&p, 2, "dfs: expected an application or verify");
	LIGRA(&p, "--rmat", "4", "--repeat", "-1", "bfs");
	expect(&p, 2, "--repeat -1: expected a number from 1");
	LIGRA(&p, "--rmat", "4", "--memory", "tape", "bfs");
	expect(&p, 2, "--memory tape: expected dram, fam, served, mmap or mmap-advised");
	LIGRA(&p, "--rmat", "4", "--warm", "much", "bfs");
	expect(&p, 2, "--warm much: expected a number from 0");
	LIGRA(&p, "--frobnicate");
	expect(&p, 2, "--frobnicate: unknown option");
}

/* Before the first run alone: nothing else changes. */
static void memory_is_touched_before_the_run(void **state)
{
	struct program p;

	LIGRA(&p, "--rmat", "8", "--warm", "4000001", "--verify", "bfs");
	expect(&p, 0, "");
	LIGRA(&p, "--rmat", "8", "--warm", "4000000000000000", "bfs");
	expect(&p, 1, "--warm 4000000000000000: there is not so much memory; name less");
}

static void full_server_is_an_error(void **state)
{
	struct server small;
	struct program p;

	assert_int_equal(SERVER_START(&small, "--capacity", "2M"), 0);
	use_server(small.address);
	LIGRA(&p, "--graph", graph, "--memory", "fam", "bfs");
	expect(&p, 1, "cannot allocate");
	assert_int_equal(server_stop(&small), 0);
	/* Nobody listens there now. */
	LIGRA(&p, "--graph", graph, "--memory", "fam", "bfs");
	expect(&p, 1, "cannot start on fabric memory");
	server_forget(&small);
}

static void minimal_needs_nothing(void **state)
{
	struct program p;

	unsetenv("SODA_SERVER");
	unsetenv("SODA_BUFFER");
	RUN(&p, "examples/minimal", NULL);
	expect(&p, 0, "");
	assert_string_equal(p.out, "35184367894528\n");
	assert_string_equal(p.err, "");
}

#define PUBLISHED(name)                                                                            \
	{                                                                                          \
		name, published_graphs_are_right, NULL, NULL, (void *)(name)                       \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(search_is_right),
		cmocka_unit_test(ranks_are_right),
		cmocka_unit_test(radii_are_right),
		cmocka_unit_test(dependencies_are_right),
		cmocka_unit_test(components_are_right),
		cmocka_unit_test(shortest_paths_are_right),
		cmocka_unit_test(served_files_give_the_same),
		PUBLISHED("cnr-2000.el.gz"),
		PUBLISHED("ego-twitter-undirected.el.gz"),
		PUBLISHED("soc-Slashdot0902.txt.gz"),
		PUBLISHED("soc-Epinions1.txt.gz"),
		cmocka_unit_test(list_loads_into_fabric_memory),
		cmocka_unit_test(given_weights_are_taken),
		cmocka_unit_test(damaged_result_is_noticed),
		cmocka_unit_test(bad_input_ends_with_two),
		cmocka_unit_test(bad_usage_ends_with_two),
		cmocka_unit_test(memory_is_touched_before_the_run),
		cmocka_unit_test(full_server_is_an_error),
		cmocka_unit_test(minimal_needs_nothing),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
