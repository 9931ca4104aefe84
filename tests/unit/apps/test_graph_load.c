/* SPDX-License-Identifier: BSD-3-Clause */
/* Edge lists: what published ones look like, and everything that is wrong with broken ones. */
#include "unit/fakes/graph_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT(s) (s), sizeof(s) - 1

static void assert_run(const struct csr *csr, uint64_t v, size_t count, const uint32_t *expected)
{
	assert_int_equal(csr_degree(csr, v), count);
	assert_memory_equal(csr->targets + csr_begin(csr, v), expected, count * sizeof(*expected));
}

#define ASSERT_RUN(csr, v, ...)                                                                    \
	assert_run(csr, v, sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t),                 \
		   (const uint32_t[]){ __VA_ARGS__ })

static void neighbours_are_sorted_both_ways(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph("2 1\n0 2\n2 0\n0 1\n", false, &mem);

	assert_int_equal(g.vertices, 3);
	assert_int_equal(g.edges, 4);
	assert_false(g.labelled);
	ASSERT_RUN(&g.out, 0, 1, 2);
	assert_int_equal(csr_degree(&g.out, 1), 0);
	ASSERT_RUN(&g.out, 2, 0, 1);
	ASSERT_RUN(&g.in, 0, 2);
	ASSERT_RUN(&g.in, 1, 0, 2);
	ASSERT_RUN(&g.in, 2, 0);
	graph_destroy(&g);
	assert_int_equal(mem.bytes, 0);
}

static void every_published_form_reads(void **state)
{
	static const char *const forms[] = {
		"0 1\n1 2\n",
		"0\t1\r\n1\t2\r\n",
		"# FromNodeId\tToNodeId\r\n0\t1\r\n1\t2",
		"% a comment\n\n  \t\n 0   1 \t\n1 2\n\n",
		"0 1\n# in the middle\n1 2\n% at the end",
		"\r\n0 1\r\n1 2\r",
		"0000000000000 01\n1 2",
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		struct mem mem;
		struct graph g = fixture_graph(forms[i], false, &mem);

		assert_int_equal(g.vertices, 3);
		assert_int_equal(g.edges, 2);
		ASSERT_RUN(&g.out, 0, 1);
		ASSERT_RUN(&g.out, 1, 2);
		graph_destroy(&g);
	}
}

static void ids_with_gaps_are_numbered_in_order(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph("4294967295 1\n1 70000\n", false, &mem);
	struct soda_graph_error err;
	uint32_t v;

	assert_int_equal(g.vertices, 3);
	assert_true(g.labelled);
	ASSERT_RUN(&g.out, 0, 1);
	ASSERT_RUN(&g.out, 2, 0);
	assert_int_equal(graph_find(&g, 4294967295, &v, &err), 0);
	assert_int_equal(v, 2);
	assert_int_equal(graph_find(&g, 1, &v, &err), 0);
	assert_int_equal(v, 0);
	assert_int_equal(graph_find(&g, 2, &v, &err), -ENOENT);
	graph_destroy(&g);
}

static void directed_keeps_loops_and_repeats(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph("0 0\n0 1\n0 1\n1 0\n", false, &mem);

	assert_int_equal(g.edges, 4);
	ASSERT_RUN(&g.out, 0, 0, 1, 1);
	ASSERT_RUN(&g.in, 0, 0, 1);
	graph_destroy(&g);
}

static void symmetric_drops_loops_and_repeats(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph("0 0\n0 1\n0 1\n1 0\n2 1\n7 7\n", true, &mem);

	assert_int_equal(g.vertices, 4);
	assert_int_equal(g.edges, 4);
	ASSERT_RUN(&g.out, 0, 1);
	ASSERT_RUN(&g.out, 1, 0, 2);
	ASSERT_RUN(&g.out, 2, 1);
	assert_int_equal(csr_degree(&g.out, 3), 0);
	assert_ptr_equal(g.in.targets, g.out.targets);
	graph_destroy(&g);
	assert_int_equal(mem.bytes, 0);
}

static void broken_lists_are_refused_with_line_and_reason(void **state)
{
	static const struct {
		const char *bytes;
		size_t count;
		const char *says;
	} cases[] = {
		{ TEXT("1 2\nx y\n"), ":2: expected a vertex id, found 'x'" },
		{ TEXT("1 2\n1 y\n"), ":2: expected a second vertex id, found 'y'" },
		{ TEXT("1\n"),
		  ":1: expected a blank and a second vertex id, found the end of the line" },
		{ TEXT("1 2\n3 \r\n"),
		  ":2: expected a second vertex id, found the end of the line" },
		{ TEXT("1 2\n3"),
		  ":2: expected a blank and a second vertex id, found the end of the file" },
		{ TEXT("-1 2\n"), ":1: expected a vertex id, found '-'" },
		{ TEXT("1 -2\n"), ":1: expected a second vertex id, found '-'" },
		{ TEXT("1 2\n\n4294967296 1\n"), ":3: expected a vertex id of at most 4294967295" },
		{ TEXT("1 99999999999999999999999\n"), "a second vertex id of at most 4294967295" },
		{ TEXT("1 2 3\n"), ":1: expected the end of the line after two ids, found '3'" },
		{ TEXT("1 2.5\n"), ":1: expected the end of the line after two ids, found '.'" },
		{ TEXT("1,2\n"), ":1: expected a blank and a second vertex id, found ','" },
		{ TEXT("0x1 2\n"), ":1: expected a blank and a second vertex id, found 'x'" },
		{ TEXT("1 2\n\0\n"), ":2: expected a vertex id, found byte 0x00" },
		{ TEXT("\xef\xbb\xbf"
		       "1 2\n"),
		  ":1: expected a vertex id, found byte 0xef" },
		{ TEXT(""), ":1: expected edges (two vertex ids a line), found none" },
		{ TEXT("# nothing\n% here\n\n"),
		  ":4: expected edges (two vertex ids a line), found none" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct soda_graph_error err = { "" };
		struct graph g;
		struct mem mem;
		int ret = fixture_load(cases[i].bytes, cases[i].count, false, &mem, &g, &err);

		assert_int_equal(ret, -EINVAL);
		if (!strstr(err.text, cases[i].says))
			fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text,
				 cases[i].says);
		if (!strstr(err.text, "soda-graph-"))
			fail_msg("case %zu: \"%s\" does not name the file", i, err.text);
		assert_int_equal(mem.bytes, 0);
	}
}

static void missing_file_and_folder(void **state)
{
	struct graph_input input = { .path = "/nonexistent/graph.el" };
	struct mem mem = { .kind = MEM_DRAM };
	struct soda_graph_error err;
	struct graph g;

	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/graph.el: cannot open"));
	input.path = "/";
	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EIO);
}

/* A list of which the compressed form is many times zlib's window. */
static char *long_list(size_t *bytes_p)
{
	size_t bytes = 0, size = 4 << 20;
	char *text = malloc(size);

	assert_non_null(text);
	for (uint32_t i = 0; bytes + 32 < size; i++)
		bytes += (size_t)sprintf(text + bytes, "%u %u\n", i * 2654435761u >> 12, i);
	*bytes_p = bytes;
	return text;
}

static void gzip_reads_like_plain(void **state)
{
	size_t bytes;
	char *text = long_list(&bytes);
	char *path = fixture_gz(text, bytes);
	struct graph_input input = { .path = path };
	struct mem mem = { .kind = MEM_DRAM }, plain_mem;
	struct graph g, plain;
	struct soda_graph_error err;

	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), 0);
	assert_int_equal(fixture_load(text, bytes, false, &plain_mem, &plain, &err), 0);
	assert_int_equal(g.edges, plain.edges);
	assert_memory_equal(g.sum, plain.sum, sizeof(g.sum));
	graph_destroy(&g);
	graph_destroy(&plain);
	fixture_remove(path);
	free(text);
}

static void cut_gzip_is_refused(void **state)
{
	static const off_t lengths[] = { 3, 11, 1000, 300000 };
	size_t bytes;
	char *text = long_list(&bytes);
	char *path = fixture_gz(text, bytes);
	struct graph_input input = { .path = path };
	struct mem mem = { .kind = MEM_DRAM };
	struct soda_graph_error err;
	struct graph g;

	for (size_t i = sizeof(lengths) / sizeof(*lengths); i-- > 0;) {
		assert_int_equal(truncate(path, lengths[i]), 0);
		assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EINVAL);
		assert_non_null(strstr(err.text, "the compressed file is cut off"));
		assert_int_equal(mem.bytes, 0);
	}
	fixture_remove(path);
	free(text);
}

static void damaged_gzip_is_refused(void **state)
{
	size_t bytes;
	char *text = long_list(&bytes);
	char *path = fixture_gz(text, bytes);
	struct graph_input input = { .path = path };
	struct mem mem = { .kind = MEM_DRAM };
	struct soda_graph_error err;
	struct graph g;
	FILE *f = fopen(path, "r+");
	int c;

	assert_non_null(f);
	/* The checksum, eight bytes before the end. */
	assert_int_equal(fseek(f, -8, SEEK_END), 0);
	c = fgetc(f);
	assert_int_equal(fseek(f, -8, SEEK_END), 0);
	assert_int_not_equal(fputc(c ^ 1, f), EOF);
	fclose(f);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "expected gzip data"));
	fixture_remove(path);
	free(text);
}

/* Append a file to another one. */
static void append(const char *to, const char *from)
{
	FILE *out = fopen(to, "a"), *in = fopen(from, "r");
	int c;

	assert_non_null(out);
	assert_non_null(in);
	while ((c = fgetc(in)) != EOF)
		fputc(c, out);
	fclose(in);
	fclose(out);
}

/* As pigz and bgzip write them: each member counts, and is whole. */
static void gzip_of_several_members(void **state)
{
	char *path = fixture_gz("0 1\n1 2\n", 8), *second = fixture_gz("2 3\n3 0\n", 8);
	struct graph_input input = { .path = path };
	struct mem mem = { .kind = MEM_DRAM };
	struct soda_graph_error err;
	struct stat first;
	struct graph g;
	FILE *f;

	assert_int_equal(stat(path, &first), 0);
	append(path, second);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), 0);
	assert_int_equal(g.edges, 4);
	graph_destroy(&g);
	/* zeros behind the last one are none of it, as for gzip */
	f = fopen(path, "a");
	assert_int_equal(fwrite("\0\0\0\0", 1, 4, f), 4);
	fclose(f);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), 0);
	graph_destroy(&g);
	append(path, second);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "expected gzip data"));
	/* the head of the second one, each of its first bytes */
	for (long i = 0; i < 3; i++) {
		assert_int_equal(truncate(path, first.st_size), 0);
		append(path, second);
		f = fopen(path, "r+");
		assert_int_equal(fseek(f, first.st_size + i, SEEK_SET), 0);
		fputc('x', f);
		fclose(f);
		assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EINVAL);
		assert_non_null(strstr(err.text, "expected gzip data"));
	}
	assert_int_equal(truncate(path, first.st_size + 1), 0);
	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "cut off"));
	fixture_remove(path);
	fixture_remove(second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbours_are_sorted_both_ways),
		cmocka_unit_test(every_published_form_reads),
		cmocka_unit_test(ids_with_gaps_are_numbered_in_order),
		cmocka_unit_test(directed_keeps_loops_and_repeats),
		cmocka_unit_test(symmetric_drops_loops_and_repeats),
		cmocka_unit_test(broken_lists_are_refused_with_line_and_reason),
		cmocka_unit_test(missing_file_and_folder),
		cmocka_unit_test(gzip_reads_like_plain),
		cmocka_unit_test(cut_gzip_is_refused),
		cmocka_unit_test(damaged_gzip_is_refused),
		cmocka_unit_test(gzip_of_several_members),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
