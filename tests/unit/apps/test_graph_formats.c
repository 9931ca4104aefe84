/* SPDX-License-Identifier: BSD-3-Clause */
/* Every format: what is written reads as the same graph, what is wrong is told with its place. */
#include "unit/fakes/graph_fixture.h"

#include "graph/format/export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As vertices: 0 -> 1 2; 1 -> 2; 2 -> 2 0; 3 -> 0. */
static const uint64_t offsets[] = { 0, 2, 3, 5 };
static const uint32_t targets[] = { 1, 2, 2, 0, 2, 0 };

static char *suffixed(const void *bytes, size_t count, const char *suffix)
{
	char *plain = fixture_file(bytes, count), *path = soda_graph_path(plain, suffix);

	assert_int_equal(rename(plain, path), 0);
	free(plain);
	return path;
}

static void read_as(const char *path, bool symmetric, struct graph *g_p)
{
	static struct mem mem;
	struct graph_input input = { .path = path, .symmetric = symmetric };
	struct soda_graph_error err;

	mem = (struct mem){ .kind = MEM_DRAM };
	if (graph_input_load(&input, PARTS_ALL, &mem, g_p, &err))
		fail_msg("%s: %s", path, err.text);
}

static void assert_is_the_graph(const char *path)
{
	struct graph g;

	read_as(path, false, &g);
	assert_int_equal(g.vertices, 4);
	assert_int_equal(g.edges, 6);
	assert_false(g.symmetric);
	assert_memory_equal(g.out.offsets, offsets, sizeof(offsets));
	assert_memory_equal(g.out.targets, targets, sizeof(targets));
	graph_destroy(&g);
}

static void refused(char *path, const char *says)
{
	struct graph_input input = { .path = path };
	struct mem mem = { .kind = MEM_DRAM };
	struct soda_graph_error err = { "" };
	struct graph g;
	int ret = graph_input_load(&input, PARTS_ALL, &mem, &g, &err);

	if (ret != -EINVAL || !strstr(err.text, says))
		fail_msg("%d: \"%s\" does not say \"%s\"", ret, err.text, says);
	assert_non_null(strstr(err.text, "soda-graph-"));
}

struct broken {
	const char *text, *says;
};

static void all_refused(const struct broken *cases, size_t count, const char *suffix)
{
	for (size_t i = 0; i < count; i++) {
		char *path = suffixed(cases[i].text, strlen(cases[i].text), suffix);

		refused(path, cases[i].says);
		fixture_remove(path);
	}
}

#define MM "%%MatrixMarket matrix coordinate "

static void matrices_read(void **state)
{
	static const char *const texts[] = {
		MM "pattern general\n4 4 6\n1 2\n1 3\n2 3\n3 1\n3 3\n4 1\n",
		"%%matrixmarket MATRIX Coordinate Real General\r\n% a comment\r\n\r\n4 4 6\r\n4 1 "
		"-1e3\r\n"
		"3 3 .5\r\n3 1 2\r\n2 3 0\r\n1 3 1.25\r\n1 2 7",
		MM "complex general\n4 4 6\n1 2 1 0\n1 3 0 1\n2 3 1 1\n\n% in between\n3 1 0 0\n3 "
		   "3 2 2\n"
		   "4 1 1 -1\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		char *path = fixture_file(texts[i], strlen(texts[i]));
		char *packed = fixture_gz(texts[i], strlen(texts[i]));

		assert_is_the_graph(path);
		assert_is_the_graph(packed);
		fixture_remove(path);
		fixture_remove(packed);
	}
}

static void half_matrices_are_mirrored(void **state)
{
	static const char text[] = MM "integer symmetric\n3 3 3\n2 1 5\n3 3 1\n3 1 2\n";
	static const uint32_t expected[] = { 1, 2, 0, 0 };
	char *path = fixture_file(text, sizeof(text) - 1);
	struct graph g;

	read_as(path, false, &g);
	assert_true(g.symmetric);
	assert_int_equal(g.edges, 4);
	assert_memory_equal(g.out.targets, expected, sizeof(expected));
	graph_destroy(&g);
	fixture_remove(path);
}

static void broken_matrices_are_refused(void **state)
{
	static const struct broken cases[] = {
		{ "1 2\n", ":1: expected '%%MatrixMarket', found '1'" },
		{ "%%MatrixMarket vector\n", ":1: expected 'matrix', found 'vector'" },
		{ "%%MatrixMarket matrix array real general\n", ":1: expected 'coordinate'" },
		{ MM "quaternion general\n", "expected pattern, real, integer or complex" },
		{ MM "real upper\n", "expected general, symmetric, skew-symmetric or hermitian" },
		{ MM "pattern general\n% only\n",
		  ":3: expected the number of rows, found the end" },
		{ MM "pattern general\n3 4 1\n1 1\n", ":2: expected a square matrix" },
		{ MM "pattern general\n0 0 0\n", ":2: expected a square matrix" },
		{ MM "pattern general\n4294967296 4294967296 1\n1 1\n", ":2: expected a square" },
		{ MM "pattern general\n3 3 99999999999999999999\n1 1\n",
		  ":2: expected the number of entries of at most" },
		{ MM "pattern general\n3 3 2 1\n", ":2: expected the end of the line after three" },
		{ MM "pattern general\n3 3 2\n1 2\n", ":4: cut off: expected 2 entries, found 1" },
		{ MM "pattern general\n3 3 1\n1 2\n2 3\n", ":4: expected the end of the file" },
		{ MM "pattern general\n3 3 1\n0 2\n",
		  ":3: expected rows and columns from 1, found 0" },
		{ MM "pattern general\n3 3 1\n1 4\n", ":3: expected a column of at most 3" },
		{ MM "pattern general\n3 3 1\n1 2 0.5\n",
		  ":3: expected the end of the line after an" },
		{ MM "real general\n3 3 1\n1 2\n",
		  ":3: expected a value, found the end of the line" },
		{ MM "real general\n3 3 1\n1 2 x\n", ":3: expected a value, found 'x'" },
		{ MM "pattern general\n3 3 1\n-1 2\n", ":3: expected a row, found '-'" },
	};

	all_refused(cases, sizeof(cases) / sizeof(*cases), ".mtx");
}

static void adjacency_reads(void **state)
{
	static const char *const texts[] = {
		"AdjacencyGraph\n4\n6\n0\n2\n3\n5\n1\n2\n2\n0\n2\n0\n",
		"AdjacencyGraph\r\n4 6 0 2 3 5\r\n2 1 2 2 0 0",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		char *path = fixture_file(texts[i], strlen(texts[i]));

		assert_is_the_graph(path);
		fixture_remove(path);
	}
}

static void broken_adjacency_is_refused(void **state)
{
	static const struct broken cases[] = {
		{ "WeightedAdjacencyGraph\n1\n0\n0\n",
		  ":1: expected 'AdjacencyGraph', found 'WeightedAdjacencyGraph', which" },
		{ "AdjacencyGraph\n",
		  ":2: expected the number of vertices, found the end of the file" },
		{ "AdjacencyGraph\n0\n0\n", "expected vertices, found 0" },
		{ "AdjacencyGraph\n4294967296\n0\n",
		  ":2: expected the number of vertices of at most" },
		{ "AdjacencyGraph\n4294967295\n1\n0\n", "cut off: 4294967295 vertices need more" },
		{ "AdjacencyGraph\n2\n99999999999999999999\n",
		  ":3: expected the number of edges of" },
		{ "AdjacencyGraph\n2\n2\n0\n",
		  ":5: expected an offset, found the end of the file" },
		{ "AdjacencyGraph\n2\n2\n0\n3\n", ":5: expected an offset of at most 2" },
		{ "AdjacencyGraph\n2\n2\n1\n1\n", ":4: expected an offset of exactly 0, found 1" },
		{ "AdjacencyGraph\n3\n2\n0\n2\n1\n",
		  ":6: expected an offset of at least 2, found 1" },
		{ "AdjacencyGraph\n2\n2\n0\n1\n1\n",
		  ":7: expected a target, found the end of the file" },
		{ "AdjacencyGraph\n2\n2\n0\n1\n1\n2\n", ":7: expected a target of at most 1" },
		{ "AdjacencyGraph\n2\n2\n0\n1\n1\n0\n1\n", ":8: expected the end of the file" },
		{ "AdjacencyGraph\n2\n2\n0\n1x\n1\n0\n",
		  ":5: expected the end of the number, found 'x'" },
		{ "AdjacencyGraph\n2\n2\n0\n1\n-1\n0\n", ":6: expected a target, found '-'" },
	};

	all_refused(cases, sizeof(cases) / sizeof(*cases), "");
}

struct gap_file {
	struct soda_graph_gap_header header;
	uint64_t offsets[5];
	uint32_t targets[6];
	uint64_t in_offsets[5];
	uint32_t in_targets[6];
} __attribute__((packed));

static struct gap_file gap(void)
{
	return (struct gap_file){ .header = { 1, 6, 4 },
				  .offsets = { 0, 2, 3, 5, 6 },
				  .targets = { 1, 2, 2, 0, 2, 0 },
				  .in_offsets = { 0, 2, 3, 6, 6 },
				  .in_targets = { 2, 3, 0, 0, 1, 2 } };
}

static void gap_reads(void **state)
{
	struct gap_file f = gap();
	char *path = suffixed(&f, sizeof(f), ".sg");
	struct graph g;

	assert_is_the_graph(path);
	fixture_remove(path);
	/* Undirected, where only the first half is there. */
	f.header.directed = 0;
	path = suffixed(&f, sizeof(f.header) + sizeof(f.offsets) + sizeof(f.targets), ".sg");
	read_as(path, false, &g);
	assert_true(g.symmetric);
	graph_destroy(&g);
	fixture_remove(path);
}

static void gap_refused(const struct gap_file *f, size_t bytes, const char *says)
{
	char *path = suffixed(f, bytes, ".sg");

	refused(path, says);
	fixture_remove(path);
}

static void broken_gap_is_refused(void **state)
{
	struct gap_file f = gap();

	gap_refused(&f, 0, "cut off: expected a header of 17 bytes, found 0");
	gap_refused(&f, 16, "cut off: expected a header of 17 bytes, found 16");
	gap_refused(&f, sizeof(f) - 1, "expected 145 bytes for 4 vertices and 6 edges, found 144");
	f.header.directed = 2;
	gap_refused(&f, sizeof(f), "byte 0: expected 0 (undirected) or 1 (directed), found 2");
	f = gap();
	f.header.edges = UINT64_MAX;
	gap_refused(&f, sizeof(f), "byte 1: expected a number of edges");
	f = gap();
	f.header.vertices = 0;
	gap_refused(&f, sizeof(f), "byte 9: expected 1 to 2147483647 vertices, found 0");
	f = gap();
	f.offsets[0] = 1;
	gap_refused(&f, sizeof(f), "byte 17: expected an offset from 0 to 0, found 1");
	f = gap();
	f.offsets[2] = 7;
	gap_refused(&f, sizeof(f), "byte 33: expected an offset from 2 to 6, found 7");
	f = gap();
	f.offsets[3] = 1;
	gap_refused(&f, sizeof(f), "byte 41: expected an offset from 3 to 6, found 1");
	f = gap();
	f.offsets[4] = 5;
	gap_refused(&f, sizeof(f), "byte 49: expected an offset from 6 to 6, found 5");
	f = gap();
	f.targets[5] = 4;
	gap_refused(&f, sizeof(f), "byte 77: expected a vertex below 4, found 4");
}

/* Ligra's own triples, which say less than ours, with offsets of either width. */
static void write_file(const char *path, const char *suffix, const void *bytes, size_t count)
{
	char *name = soda_graph_path(path, suffix);
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, count, f), count);
	assert_int_equal(fclose(f), 0);
	free(name);
}

static void foreign_triples_read(void **state)
{
	static const uint32_t narrow[] = { 0, 2, 3, 5 };
	char *path = fixture_triple_path();

	write_file(path, ".config", "4", 1);
	write_file(path, ".adj", targets, sizeof(targets));
	write_file(path, ".idx", offsets, sizeof(offsets));
	assert_is_the_graph(path);
	write_file(path, ".idx", narrow, sizeof(narrow));
	assert_is_the_graph(path);
	fixture_triple_remove(path);
}

static void broken_triples_are_refused(void **state)
{
	static const uint64_t wild[] = { 0, 2, 9, 5 };
	static const uint32_t far[] = { 1, 2, 2, 0, 4, 0 };
	char *path = fixture_triple_path();

	write_file(path, ".config", "4\n", 2);
	write_file(path, ".idx", offsets, sizeof(offsets));
	write_file(path, ".adj", targets, sizeof(targets) - 2);
	refused(path, ".adj: cut off at byte 22: expected targets of 4 bytes");
	write_file(path, ".adj", far, sizeof(far));
	refused(path, ".adj: byte 16: expected a vertex below 4, found 4");
	write_file(path, ".adj", targets, sizeof(targets));
	write_file(path, ".idx", offsets, sizeof(offsets) - 8);
	refused(path, ".idx: expected 4 offsets of 4 or 8 bytes, as");
	write_file(path, ".idx", wild, sizeof(wild));
	refused(path, ".idx: byte 16: expected an offset from 2 to 6, found 9");
	/* The offsets of one graph with the targets of another. */
	write_file(path, ".idx", offsets, sizeof(offsets));
	write_file(path, ".adj", targets, 4 * sizeof(*targets));
	refused(path, ".idx: byte 24: expected an offset from 3 to 4, found 5");
	write_file(path, ".config", "four", 4);
	write_file(path, ".adj", targets, sizeof(targets));
	refused(path, ".config:1: expected the number of vertices");
	fixture_triple_remove(path);
}

/* Out and in again, directed and symmetric, in every format that is written. */
static void exports_come_back(void **state)
{
	static const struct {
		enum soda_graph_format format;
		const char *suffix;
	} formats[] = {
		{ SODA_GRAPH_ADJACENCY, "" },
		{ SODA_GRAPH_SNAP, "" },
		{ SODA_GRAPH_MTX, "" },
		{ SODA_GRAPH_GAP, ".sg" },
	};
	struct gap_file f = gap();
	char *input = suffixed(&f, sizeof(f), ".sg");
	struct soda_graph_error err;

	for (size_t i = 0; i < 8; i++) {
		bool symmetric = i & 1;
		char *path = fixture_triple_path();
		char *file = suffixed("", 0, formats[i / 2].suffix);
		struct graph there, back;

		if (fixture_build(input, symmetric, false, path, &err) ||
		    soda_graph_export(path, formats[i / 2].format, file, &err))
			fail_msg("%s", err.text);
		read_as(path, symmetric, &there);
		read_as(file, symmetric, &back);
		assert_int_equal(back.vertices, there.vertices);
		assert_int_equal(back.edges, there.edges);
		assert_memory_equal(back.sum, there.sum, sizeof(back.sum));
		graph_destroy(&there);
		graph_destroy(&back);
		fixture_remove(file);
		fixture_triple_remove(path);
	}
	fixture_remove(input);
}

static void lists_keep_their_ids(void **state)
{
	static const char list[] = "7 3000000000\n3000000000 9\n";
	char *input = fixture_file(list, sizeof(list) - 1), *path = fixture_triple_path();
	char *file = fixture_file("", 0), text[256] = "";
	struct soda_graph_error err;
	FILE *f;

	assert_int_equal(fixture_build(input, false, false, path, &err), 0);
	assert_int_equal(soda_graph_export(path, SODA_GRAPH_SNAP, file, &err), 0);
	f = fopen(file, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	assert_non_null(strstr(text, "\n7\t3000000000\n3000000000\t9\n"));
	fixture_remove(input);
	fixture_remove(file);
	fixture_triple_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matrices_read),
		cmocka_unit_test(half_matrices_are_mirrored),
		cmocka_unit_test(broken_matrices_are_refused),
		cmocka_unit_test(adjacency_reads),
		cmocka_unit_test(broken_adjacency_is_refused),
		cmocka_unit_test(gap_reads),
		cmocka_unit_test(broken_gap_is_refused),
		cmocka_unit_test(foreign_triples_read),
		cmocka_unit_test(broken_triples_are_refused),
		cmocka_unit_test(exports_come_back),
		cmocka_unit_test(lists_keep_their_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
