/* SPDX-License-Identifier: BSD-3-Clause */
/* The binary file of a graph and the file of a result: what is written comes back, or an error. */
#include "unit/fakes/graph_fixture.h"

#include "ligra/load/load.h"
#include "ligra/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 4 vertices, 5 edges; as vertices 0 1, 0 3, 1 2, 2 0, 2 2. */
static const char list[] = "10 20\n20 30\n30 10\n30 30\n10 40\n";

/* A triple of the list; the caller calls fixture_triple_remove(). */
static char *written(bool symmetric)
{
	char *text = fixture_file(list, sizeof(list) - 1), *path = fixture_triple_path();
	struct soda_graph_error err;

	if (fixture_build(text, symmetric, false, path, &err))
		fail_msg("%s", err.text);
	fixture_remove(text);
	return path;
}

static void graph_comes_back(void **state)
{
	static const enum mem_kind kinds[] = { MEM_DRAM, MEM_MMAP, MEM_MMAP_ADVISED };

	for (int symmetric = 0; symmetric < 2; symmetric++)
		for (size_t i = 0; i < 2; i++) {
			struct mem mem, back_mem = { .kind = kinds[i] };
			struct graph g = fixture_graph(list, symmetric, &mem), back;
			char *path = written(symmetric);
			struct soda_graph_error err;

			assert_int_equal(graph_load(path, PARTS_ALL, &back_mem, &back, &err), 0);
			assert_int_equal(back.vertices, g.vertices);
			assert_int_equal(back.edges, g.edges);
			assert_int_equal(back.symmetric, symmetric);
			assert_true(back.labelled);
			for (int part = 0; part < PARTS; part++)
				assert_memory_equal(graph_part(&back, part), graph_part(&g, part),
						    graph_part_bytes(&g, part));
			graph_destroy(&back);
			assert_int_equal(back_mem.bytes, 0);
			graph_destroy(&g);
			fixture_triple_remove(path);
		}
}

static void only_what_is_asked_for_is_loaded(void **state)
{
	struct mem mem = { .kind = MEM_DRAM };
	char *path = written(false);
	struct soda_graph_error err;
	struct graph g;

	assert_int_equal(graph_load(path, PARTS_IN, &mem, &g, &err), 0);
	assert_null(g.out.offsets);
	assert_null(g.labels);
	assert_int_equal(mem.bytes, graph_part_bytes(&g, PART_IN_OFFSETS) +
					    graph_part_bytes(&g, PART_IN_TARGETS));
	graph_destroy(&g);
	fixture_triple_remove(path);
}

static void refused(const char *path, const char *says)
{
	static const enum mem_kind kinds[] = { MEM_DRAM, MEM_MMAP, MEM_MMAP_ADVISED };

	for (size_t i = 0; i < 2; i++) {
		struct mem mem = { .kind = kinds[i] };
		struct soda_graph_error err = { "" };
		struct graph g;

		assert_true(graph_load(path, PARTS_ALL, &mem, &g, &err) < 0);
		if (!strstr(err.text, says))
			fail_msg("\"%s\" does not say \"%s\"", err.text, says);
		assert_int_equal(mem.bytes, 0);
	}
}

/* The list has 4 vertices, all ids far from 0, and 5 edges. */
static void damage_is_noticed(void **state)
{
	static const struct {
		const char *suffix;
		long offset;
		const char *says;
	} places[] = {
		{ ".idx", 0, "out-offsets: byte 0: expected a number from 0 to 0, found 1" },
		{ ".idx", 15, "out-offsets: byte 8: expected a number from 0 to 5" },
		{ ".adj", 0, "out-targets: damaged: checksum" },
		{ ".adj", 3, "out-targets: byte 0: expected a number from 0 to 3, found 16777217" },
		{ ".in.idx", 8, "in-offsets" },
		{ ".in.adj", 4, "in-targets: damaged" },
		{ ".labels", 0, "labels: damaged" },
		{ ".config", 0, "the in-edges of another graph" },
		{ ".in.config", 0, "the in-edges of another graph" },
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		char *path = written(false);

		fixture_flip(path, places[i].suffix, places[i].offset);
		refused(path, places[i].says);
		fixture_triple_remove(path);
	}
}

static void cut_files_are_noticed(void **state)
{
	static const struct {
		const char *suffix;
		off_t length;
		const char *says;
	} cuts[] = {
		{ ".config", 0, ".config:1: expected the number of vertices, 1 to 4294967295" },
		{ ".config", 2, "expected what `soda graph convert' writes" },
		{ ".config", 10, ".config: cut off after line 2: expected 7 lines" },
		{ ".config", 16, ".config:3: expected edges, symmetric" },
		{ ".idx", 31, ".idx: expected 32 bytes, found 31" },
		{ ".adj", 19, ".adj: expected 20 bytes, found 19" },
		{ ".in.adj", 24, ".in.adj: expected 20 bytes, found 24" },
		{ ".labels", 1, ".labels: expected 16 bytes, found 1" },
	};

	for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
		char *path = written(false), *name = soda_graph_path(path, cuts[i].suffix);

		assert_int_equal(truncate(name, cuts[i].length), 0);
		refused(path, cuts[i].says);
		assert_int_equal(unlink(name), 0);
		refused(path, "cannot open: No such file or directory");
		free(name);
		fixture_triple_remove(path);
	}
}

static void wrong_configs_are_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"four\n",
		"-4\n",
		"4 5\n",
		"0\n",
		"4294967296\n",
		"4\nedges 5\nedges many\n",
		"4\nedges 99999999999999999999\n",
		"4\nedges 5\nsymmetric 2\n",
		"4\nedges 5\nsymmetric 0\nlabelled 0\ncrc-idx 1\ncrc-adj 123456789\n",
		"4\ncolour blue\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct soda_graph_error err = { "" };
		struct soda_graph_info info;

		assert_int_equal(
			soda_graph_info_parse("c", texts[i], strlen(texts[i]), &info, &err),
			-EINVAL);
		assert_non_null(strstr(err.text, "expected"));
	}
}

static void directed_file_is_not_taken_for_a_symmetric_graph(void **state)
{
	char *path = written(false);
	struct mem mem = { .kind = MEM_DRAM };
	struct graph_input input = { .path = path, .symmetric = true };
	struct soda_graph_error err;
	struct graph g;

	assert_int_equal(graph_input_load(&input, PARTS_ALL, &mem, &g, &err), -EINVAL);
	assert_int_equal(mem.bytes, 0);
	fixture_triple_remove(path);
}

static void changed_arrays_are_noticed(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph(list, false, &mem);
	struct soda_graph_error err;

	assert_int_equal(graph_check(&g, &err), 0);
	((uint32_t *)graph_part(&g, PART_IN_TARGETS))[0] ^= 1;
	assert_int_equal(graph_check(&g, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "in-targets"));
	graph_destroy(&g);
}

static void result_comes_back_for_its_graph_only(void **state)
{
	uint32_t parents[] = { 0, 0, 1, 0 };
	struct mem mem, other_mem;
	struct graph g = fixture_graph(list, false, &mem);
	struct graph other = fixture_graph("0 1\n2 3\n", false, &other_mem);
	struct result r = { .app = &app_bfs, .params = { 2, 9, 0 }, .array = parents }, back;
	char *path = fixture_file("", 0);
	struct soda_graph_error err;

	assert_int_equal(result_write(path, &g, &r, &err), 0);
	assert_int_equal(result_read(path, &g, &back, &err), 0);
	assert_ptr_equal(back.app, &app_bfs);
	assert_int_equal(back.params.source, 2);
	assert_int_equal(back.params.iterations, 9);
	assert_memory_equal(back.array, parents, sizeof(parents));
	free(back.array);
	assert_int_equal(result_read(path, &other, &back, &err), -EINVAL);
	assert_int_equal(truncate(path, 41), 0);
	assert_int_equal(result_read(path, &g, &back, &err), -EINVAL);
	graph_destroy(&g);
	graph_destroy(&other);
	fixture_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(graph_comes_back),
		cmocka_unit_test(only_what_is_asked_for_is_loaded),
		cmocka_unit_test(damage_is_noticed),
		cmocka_unit_test(cut_files_are_noticed),
		cmocka_unit_test(wrong_configs_are_refused),
		cmocka_unit_test(directed_file_is_not_taken_for_a_symmetric_graph),
		cmocka_unit_test(changed_arrays_are_noticed),
		cmocka_unit_test(result_comes_back_for_its_graph_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
