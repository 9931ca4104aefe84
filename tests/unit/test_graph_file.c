/* SPDX-License-Identifier: BSD-3-Clause */
/* The binary file of a graph and the file of a result: what is written comes back, or an error. */
#include "graph_fixture.h"

#include "csr_file.h"
#include "result.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char list[] = "10 20\n20 30\n30 10\n30 30\n10 40\n";

static char *written(const struct graph *g)
{
	char *path = fixture_file("", 0);
	struct error err;

	if (csr_file_write(path, g, &err))
		fail_msg("%s", err.text);
	return path;
}

static void flip(const char *path, long offset)
{
	FILE *f = fopen(path, "r+");
	int c;

	assert_non_null(f);
	assert_int_equal(fseek(f, offset, SEEK_SET), 0);
	c = fgetc(f);
	assert_int_equal(fseek(f, offset, SEEK_SET), 0);
	assert_int_not_equal(fputc(c ^ 1, f), EOF);
	fclose(f);
}

static void comes_back(bool symmetric)
{
	struct mem mem, back_mem = { .kind = MEM_DRAM };
	struct graph g = fixture_graph(list, symmetric, &mem), back;
	char *path = written(&g);
	struct error err;

	assert_int_equal(csr_file_load(path, PARTS_ALL, &back_mem, &back, &err), 0);
	assert_int_equal(back.vertices, g.vertices);
	assert_int_equal(back.edges, g.edges);
	assert_int_equal(back.symmetric, symmetric);
	assert_true(back.labelled);
	assert_int_equal(graph_check_sums(&back, &err), 0);
	for (int part = 0; part < PARTS; part++)
		assert_memory_equal(graph_part(&back, part), graph_part(&g, part),
				    graph_part_bytes(&g, part));
	graph_destroy(&back);
	assert_int_equal(back_mem.bytes, 0);
	graph_destroy(&g);
	fixture_remove(path);
}

static void graph_comes_back(void **state)
{
	comes_back(false);
	comes_back(true);
}

static void only_what_is_asked_for_is_loaded(void **state)
{
	struct mem mem, back_mem = { .kind = MEM_DRAM };
	struct graph g = fixture_graph(list, false, &mem), back;
	char *path = written(&g);
	struct error err;

	assert_int_equal(csr_file_load(path, PARTS_IN, &back_mem, &back, &err), 0);
	assert_null(back.out.offsets);
	assert_null(back.labels);
	assert_int_equal(back_mem.bytes, graph_part_bytes(&g, PART_IN_OFFSETS) +
						 graph_part_bytes(&g, PART_IN_TARGETS));
	graph_destroy(&back);
	graph_destroy(&g);
	fixture_remove(path);
}

static void damage_is_noticed(void **state)
{
	struct mem mem, back_mem = { .kind = MEM_DRAM };
	struct graph g = fixture_graph(list, false, &mem), back;
	/* The number of vertices; then the first byte of each part but the labels. */
	const long places[] = { 8, 4096, 8192, 12288, 16384 };
	struct error err;

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		char *path = written(&g);

		flip(path, places[i]);
		assert_int_equal(csr_file_load(path, PARTS_ALL, &back_mem, &back, &err), -EINVAL);
		assert_non_null(strstr(err.text, "damaged"));
		assert_int_equal(back_mem.bytes, 0);
		fixture_remove(path);
	}
	graph_destroy(&g);
}

static void cut_file_is_noticed(void **state)
{
	struct mem mem, back_mem = { .kind = MEM_DRAM };
	struct graph g = fixture_graph(list, false, &mem), back;
	const off_t lengths[] = { 0, 8, 20, 4096, 20000 };
	struct error err;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		char *path = written(&g);

		assert_int_equal(truncate(path, lengths[i]), 0);
		assert_int_equal(csr_file_load(path, PARTS_ALL, &back_mem, &back, &err), -EINVAL);
		assert_non_null(strstr(err.text, "cut off"));
		fixture_remove(path);
	}
	graph_destroy(&g);
}

static void directed_file_is_not_taken_for_a_symmetric_graph(void **state)
{
	struct mem mem, back_mem = { .kind = MEM_DRAM };
	struct graph g = fixture_graph(list, false, &mem), back;
	char *path = written(&g);
	struct graph_input input = { .path = path, .symmetric = true };
	struct error err;

	assert_int_equal(graph_input_load(&input, PARTS_ALL, &back_mem, &back, &err), -EINVAL);
	assert_int_equal(back_mem.bytes, 0);
	graph_destroy(&g);
	fixture_remove(path);
}

static void changed_arrays_are_noticed(void **state)
{
	struct mem mem;
	struct graph g = fixture_graph(list, false, &mem);
	struct error err;

	assert_int_equal(graph_check_sums(&g, &err), 0);
	g.in.targets[0] ^= 1;
	assert_int_equal(graph_check_sums(&g, &err), -EBADMSG);
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
	struct error err;

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
		cmocka_unit_test(cut_file_is_noticed),
		cmocka_unit_test(directed_file_is_not_taken_for_a_symmetric_graph),
		cmocka_unit_test(changed_arrays_are_noticed),
		cmocka_unit_test(result_comes_back_for_its_graph_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
