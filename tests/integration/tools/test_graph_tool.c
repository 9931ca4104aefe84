/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda graph` from outside: what it writes, what it says, what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "lib/proc.h"

static char dir[64];
static struct program run;

#define GRAPH(...)                                                                                 \
	assert_int_equal(program_run("tools/soda/soda",                                            \
				     (const char *const[]){ "graph", __VA_ARGS__, NULL }, &run),   \
			 0)

static int start(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/soda-graph-tool-XXXXXX");
	return !mkdtemp(dir) || chdir(dir);
}

/* Every case leaves an empty folder. */
static int stop(void **state)
{
	return chdir("/") || rmdir(dir);
}

static void remove_triple(const char *name)
{
	static const char *const suffixes[] = { "config", "idx",     "adj",
						"labels", "weights", "in.config",
						"in.idx", "in.adj",  "in.weights" };
	char path[64];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
		snprintf(path, sizeof(path), "%s.%s", name, suffixes[i]);
		unlink(path);
	}
}

static void went_well(const char *says)
{
	if (run.status || !strstr(run.out, says))
		fail_msg("status %d, said \"%s\" and \"%s\"", run.status, run.out, run.err);
	assert_string_equal(run.err, "");
}

static void refused(const char *says)
{
	if (run.status != 2 || !strstr(run.err, says))
		fail_msg("status %d, \"%s\" does not say \"%s\"", run.status, run.err, says);
	assert_string_equal(run.out, "");
}

static void write_text(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static json_int_t fact(const char *name)
{
	json_error_t why;
	json_t *o = json_loads(run.out, 0, &why);
	json_int_t value;

	assert_non_null(o);
	value = json_integer_value(json_object_get(o, name));
	json_decref(o);
	return value;
}

static void generates(void **state)
{
	static const char *const kinds[] = { "rmat", "uniform" };

	for (size_t i = 0; i < 2; i++) {
		GRAPH("gen", "--kind", kinds[i], "--scale", "10", "--edges", "20000", "g");
		went_well("g: 1024 vertices, 20000 edges, in");
		GRAPH("info", "--json", "g");
		assert_int_equal(fact("vertices"), 1024);
		assert_int_equal(fact("edges"), 20000);
		GRAPH("gen", "--kind", kinds[i], "--scale", "10", "--symmetric", "g");
		went_well("(symmetric)");
		GRAPH("info", "--json", "g");
		assert_int_equal(fact("self_loops"), 0);
		remove_triple("g");
	}
	GRAPH("gen", "--kind", "uniform", "--vertices", "1000", "g");
	went_well("g: 1000 vertices, 16000 edges");
	GRAPH("convert", "--json", "g", "other");
	assert_int_equal(fact("vertices"), 1000);
	remove_triple("other");
	GRAPH("gen", "--json", "--kind", "uniform", "--vertices", "1000", "g");
	assert_int_equal(fact("edges"), 16000);
	remove_triple("g");
}

/* 1 MiB sorts 65536 edges at a time. */
static void little_memory_gives_the_same(void **state)
{
	struct stat st;
	char text[2][512] = { "" };

	for (size_t i = 0; i < 2; i++) {
		FILE *f;

		GRAPH("gen", "--scale", "14", "--edges", "300000", "--memory", i ? "1M" : "512M",
		      "--symmetric", "g");
		went_well("g: 16384 vertices");
		f = fopen("g.config", "r");
		assert_non_null(f);
		assert_true(fread(text[i], 1, sizeof(text[i]) - 1, f) > 0);
		fclose(f);
	}
	/* Counts and checksums. */
	assert_string_equal(text[0], text[1]);
	assert_int_equal(stat("g.idx", &st), 0);
	assert_int_equal(st.st_size, 16384 * 8);
	remove_triple("g");
}

static void converts_there_and_back(void **state)
{
	static const char *const outputs[] = { "x.mtx", "x.sg", "x.txt", "x.adjacency" };

	write_text("list", "# a comment\r\n1 2\r\n2 3\r\n3 1\r\n1 3\r\n");
	for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
		GRAPH("convert", "--to", i == 3 ? "adjacency" : "auto", "list", outputs[i]);
		went_well(": 3 vertices, 4 edges, in");
		GRAPH("info", "--json", outputs[i]);
		assert_int_equal(fact("vertices"), 3);
		assert_int_equal(fact("edges"), 4);
		GRAPH("convert", "--symmetric", outputs[i], "g");
		went_well("g: 3 vertices, 6 edges (symmetric)");
		remove_triple("g");
		unlink(outputs[i]);
	}
	unlink("list");
}

static void holds(const char *name, const char *text)
{
	char found[512] = "";
	FILE *f = fopen(name, "r");

	if (!f)
		fail_msg("%s is gone", name);
	assert_true(fread(found, 1, sizeof(found) - 1, f) > 0);
	fclose(f);
	assert_string_equal(found, text);
	unlink(name);
}

/* Weights come where they are asked for, and go with the graph that had them. */
static void weights_are_kept(void **state)
{
	write_text("list", "# a comment\n1 2 0.5\n2 3 4\n3 1 1e3\n");
	GRAPH("convert", "list", "g");
	refused("list:2: expected the end of the line after two ids, found '0' (--weights");
	GRAPH("convert", "--weights", "list", "g");
	went_well("g: 3 vertices, 3 edges with weights");
	assert_int_equal(access("g.in.weights", F_OK), 0);
	GRAPH("info", "--json", "--weights", "g");
	went_well("\"least_weight\":0.5,\"greatest_weight\":1000.0,\"mean_weight\":334.8");
	GRAPH("info", "g");
	went_well("edges");
	GRAPH("convert", "--weights", "g", "x.mtx");
	went_well("x.mtx: 3 vertices, 3 edges with weights");
	holds("x.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 0.5\n2 3 4\n"
		       "3 1 1000\n");
	GRAPH("convert", "--weights", "g", "x.sg");
	refused("expected a graph without weights for GAP's .sg");
	write_text("cora.weights", "mine\n");
	GRAPH("convert", "--weights", "list", "cora");
	refused("cora.weights: is there and no part of a graph cora");
	holds("cora.weights", "mine\n");
	write_text("list", "1 2\n2 3\n3 1\n");
	GRAPH("convert", "list", "g");
	went_well("g: 3 vertices, 3 edges, in");
	assert_int_equal(access("g.weights", F_OK), -1);
	assert_int_equal(access("g.in.weights", F_OK), -1);
	GRAPH("info", "--weights", "g");
	refused("expected a graph with weights");
	remove_triple("g");
	unlink("list");
}

/* Ligra's text is often called .adj, which is what a triple of the same name would write. */
static void keeps_its_input(void **state)
{
	static const char good[] = "AdjacencyGraph\n3\n3\n0\n1\n2\n1\n2\n0\n";
	static const char bad[] = "AdjacencyGraph\n3\n3\n0\n1\n2\n1\n2\nx\n";

	write_text("web.adj", good);
	GRAPH("convert", "web.adj", "web");
	refused("web: is the input, or a file of it would be replaced");
	holds("web.adj", good);
	write_text("web.adj", bad);
	GRAPH("convert", "web.adj", "web");
	refused("web: is the input");
	holds("web.adj", bad);
	/* By another name. */
	write_text("text", good);
	assert_int_equal(link("text", "web.in.idx"), 0);
	GRAPH("convert", "text", "web");
	refused("web: is the input");
	holds("web.in.idx", good);
	holds("text", good);
	/* A triple's files, too. */
	GRAPH("gen", "--scale", "4", "g");
	went_well("g: 16 vertices");
	GRAPH("convert", "g.in", "g");
	refused("g: is the input");
	GRAPH("convert", "--to", "snap", "g", "g.adj");
	refused("g.adj: is the input");
	GRAPH("info", "g.in");
	went_well("vertices");
	remove_triple("g");
}

/* A data set's classes, say: no conversion removes or replaces them. */
static void keeps_files_that_are_not_its_own(void **state)
{
	write_text("cora.txt", "0 1\n1 2\n2 0\n");
	write_text("gaps.txt", "10 20\n");
	write_text("cora.labels", "theory\n");
	write_text("cora.in.adj", "mine\n");
	GRAPH("convert", "--symmetric", "cora.txt", "cora");
	went_well("cora: 3 vertices, 6 edges (symmetric)");
	GRAPH("convert", "cora.txt", "cora");
	refused("cora.in.adj: is there and no part of a graph cora");
	GRAPH("convert", "--symmetric", "gaps.txt", "cora");
	refused("cora.labels: is there and no part of a graph cora");
	GRAPH("info", "--json", "cora");
	assert_int_equal(fact("edges"), 6);
	holds("cora.labels", "theory\n");
	holds("cora.in.adj", "mine\n");
	/* Its own go with the graph that had them. */
	GRAPH("convert", "gaps.txt", "cora");
	went_well("cora: 2 vertices, 1 edges");
	assert_int_equal(access("cora.labels", F_OK), 0);
	GRAPH("convert", "--symmetric", "cora.txt", "cora");
	went_well("cora: 3 vertices");
	assert_int_equal(access("cora.labels", F_OK), -1);
	assert_int_equal(access("cora.in.adj", F_OK), -1);
	remove_triple("cora");
	unlink("cora.txt");
	unlink("gaps.txt");
}

static void failing_leaves_what_was_there(void **state)
{
	write_text("list", "0 1\n1 2\n");
	write_text("bad", "0 1\n1 x\n");
	GRAPH("convert", "list", "g");
	went_well("g: 3 vertices, 2 edges");
	GRAPH("convert", "bad", "g");
	refused("bad:2:");
	GRAPH("info", "--json", "g");
	assert_int_equal(fact("edges"), 2);
	remove_triple("g");
	write_text("old.mtx", "old\n");
	GRAPH("convert", "bad", "old.mtx");
	refused("bad:2:");
	holds("old.mtx", "old\n");
	GRAPH("convert", "--to", "snap", "list", "/dev/null");
	went_well("/dev/null: 3 vertices, 2 edges");
	unlink("list");
	unlink("bad");
}

/* A file of one line does not take memory for all ids there are. */
static void large_ids_are_told(void **state)
{
	struct rusage used;

	write_text("list", "0 4294967295\n7 0\n7 4294967295\n");
	GRAPH("info", "--json", "list");
	assert_int_equal(fact("largest_id"), 4294967295);
	assert_int_equal(fact("vertices"), 3);
	assert_int_equal(fact("without_out_edges"), 1);
	assert_int_equal(fact("largest_out_degree"), 2);
	assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
	if (used.ru_maxrss > 1 << 20)
		fail_msg("it took %ld KiB", used.ru_maxrss);
	unlink("list");
}

static void refuses(void **state)
{
	write_text("list", "1 2\n3 x\n");
	write_text("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 3\n");
	GRAPH("convert", "list", "g");
	refused("soda graph convert: list:2: expected a second vertex id, found 'x'");
	assert_int_equal(access("g.idx", F_OK), -1);
	GRAPH("convert", "m.mtx", "g.sg");
	refused("m.mtx:3: expected a column of at most 2");
	assert_int_equal(access("g.sg", F_OK), -1);
	GRAPH("convert", "nothing", "g");
	refused("nothing: cannot open: No such file or directory");
	GRAPH("convert", "list", "list");
	refused("list: is the input");
	GRAPH("info", "m.mtx");
	refused("soda graph info: m.mtx:3: expected a column of at most 2");
	GRAPH("convert", "list");
	refused("from what to what?");
	GRAPH("gen", "g");
	refused("expected --scale, or --vertices");
	GRAPH("gen", "--scale", "32", "g");
	refused("scale");
	GRAPH("gen", "--scale", "4", "--abc", "1,1,1", "g");
	refused("expected none below 0 and a sum of at most 1");
	GRAPH("gen", "--scale", "4", "--abc", "1,x", "g");
	refused("--abc 1,x: expected three numbers A,B,C");
	GRAPH("paint");
	refused("soda graph: no command 'paint'");
	unlink("list");
	unlink("m.mtx");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generates),
		cmocka_unit_test(little_memory_gives_the_same),
		cmocka_unit_test(converts_there_and_back),
		cmocka_unit_test(weights_are_kept),
		cmocka_unit_test(keeps_its_input),
		cmocka_unit_test(keeps_files_that_are_not_its_own),
		cmocka_unit_test(failing_leaves_what_was_there),
		cmocka_unit_test(large_ids_are_told),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
