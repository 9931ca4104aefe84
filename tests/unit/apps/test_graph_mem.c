/* SPDX-License-Identifier: BSD-3-Clause */
/* The allocation seam: what is allocated is freed, wherever an allocation fails. */
#include "unit/fakes/graph_fixture.h"

#include "ligra/framework/ahead.h"
#include "ligra/framework/ligra.h"

#include <errno.h>
#include <string.h>

static int reset(void **state)
{
	fake_soda = (struct fake_soda){ .allocs_left = -1 };
	return 0;
}

static struct mem fabric(void)
{
	struct soda_graph_error err;
	struct mem mem;

	assert_int_equal(mem_open(&mem, MEM_FAM, 3, &err), 0);
	return mem;
}

static void threads_and_errors_pass_through(void **state)
{
	struct mem mem = fabric();
	struct soda_graph_error err;

	assert_int_equal(fake_soda.threads, 3);
	fake_soda.init_result = -ETIMEDOUT;
	assert_int_equal(mem_open(&mem, MEM_FAM, 1, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.text, "the fake says so"));
}

static void bytes_and_peak_are_counted(void **state)
{
	struct mem mem = fabric();
	struct soda_graph_error err;
	void *a, *b, *none;

	assert_int_equal(mem_alloc(&mem, 1000, "a", &a, &err), 0);
	assert_int_equal(mem_alloc(&mem, 500, "b", &b, &err), 0);
	mem_free(&mem, a, 1000);
	assert_int_equal(mem_alloc(&mem, 0, "none", &none, &err), 0);
	assert_non_null(none);
	assert_int_equal(mem.bytes, 500);
	assert_int_equal(mem.peak, 1500);
	mem_free(&mem, b, 500);
	mem_free(&mem, none, 0);
	mem_free(&mem, NULL, 77);
	assert_int_equal(mem.bytes, 0);
	assert_int_equal(fake_soda.live, 0);
}

/* Load and run an application; what fails must leave nothing behind. */
static int load_and_run(const struct graph_input *input, const struct app *app)
{
	struct app_params params = { .iterations = 2 };
	static uint64_t result[1 << 14];
	struct mem mem = fabric(), arrays = mem;
	struct soda_graph_error err;
	struct graph g;
	struct ligra l = { .g = &g, .mem = &arrays, .err = &err };
	int ret = graph_input_load(input, PARTS_ALL, &mem, &g, &err);

	if (ret) {
		assert_non_null(strstr(err.text, "the fake says so"));
		assert_int_equal(mem.bytes, 0);
		return ret;
	}
	app->run(&l, &params, result);
	ret = ligra_end(&l);
	graph_destroy(&g);
	assert_int_equal(mem.bytes, 0);
	assert_int_equal(arrays.bytes, 0);
	return ret;
}

/* Returns how many allocations it takes to succeed. */
static int fail_at_each(const struct graph_input *input, const struct app *app)
{
	int ret = -ENOSPC, allowed = 0;

	for (; ret; allowed++) {
		fake_soda.allocs_left = allowed;
		ret = load_and_run(input, app);
		assert_true(ret == 0 || ret == -ENOSPC);
		assert_int_equal(fake_soda.live, 0);
	}
	return allowed - 1;
}

static void failures_leave_nothing_behind(void **state)
{
	struct graph_input input = { .rmat = SODA_GRAPH_RANDOM_DEFAULTS };

	input.rmat.scale = 8;
	input.rmat.edges = 1000;
	for (int symmetric = 0; symmetric < 2; symmetric++) {
		input.symmetric = symmetric;
		for (size_t i = 0; apps[i]; i++)
			if (symmetric || !apps[i]->symmetric_only)
				assert_true(fail_at_each(&input, apps[i]) >= 2);
	}
}

static void failures_from_files_leave_nothing_behind(void **state)
{
	static const char list[] = "10 20\n20 30\n30 10\n";
	char *text = fixture_file(list, sizeof(list) - 1), *binary = fixture_triple_path();
	struct graph_input input = { .path = text };
	struct soda_graph_error err;

	/* Five parts, and what the application has: each fails once. */
	assert_true(fail_at_each(&input, &app_bfs) >= 5 + 1);
	assert_int_equal(fixture_build(text, false, false, binary, &err), 0);
	input.path = binary;
	assert_true(fail_at_each(&input, &app_pagerank) >= 5 + 2);
	fixture_remove(text);
	fixture_triple_remove(binary);
}

/* Served files: what is opened is closed, wherever opening fails, and the rest is the same. */
static void served_files_are_opened_and_freed(void **state)
{
	static const char list[] = "10 20\n20 30\n30 10\n";
	char *text = fixture_file(list, sizeof(list) - 1), *path = fixture_triple_path();
	struct soda_graph_error err;
	int ret = -EIO, allowed = 0;

	assert_int_equal(fixture_build(text, false, false, path, &err), 0);
	for (; ret; allowed++) {
		struct mem mem = { .kind = MEM_SERVED };
		struct graph_input input = { .path = path };
		struct graph g;

		fake_soda.allocs_left = allowed;
		ret = graph_input_load(&input, PARTS_ALL, &mem, &g, &err);
		if (!ret)
			graph_destroy(&g);
		else
			assert_non_null(strstr(err.text, "on the memory server: the fake says so"));
		assert_int_equal(mem.bytes, 0);
		assert_int_equal(fake_soda.live, 0);
	}
	/* Two configs, five parts. */
	assert_int_equal(allowed - 1, 7);
	fixture_remove(text);
	fixture_triple_remove(path);
}

static void edges_are_fetched_ahead(void **state)
{
	struct graph_input input = { .rmat = SODA_GRAPH_RANDOM_DEFAULTS };

	input.rmat.scale = 14;
	input.rmat.edges = 60000;
	assert_int_equal(load_and_run(&input, &app_components), 0);
	assert_true(fake_soda.prefetches > 0);
	assert_int_equal(fake_soda.sequential, 2);
}

/* Longer ones for the streams of fabric memory, as long as every thread gets several. */
static void pieces_are_longer_in_order(void **state)
{
	struct ahead local = { .threads = 2 }, fabric = { .on = true, .threads = 2 };

	assert_int_equal(ahead_words_in_order(&local, 1 << 18), WORDS_AT_A_TIME);
	assert_int_equal(ahead_words_in_order(&fabric, 1), WORDS_AT_A_TIME);
	assert_int_equal(ahead_words_in_order(&fabric, 2048), WORDS_AT_A_TIME);
	assert_int_equal(ahead_words_in_order(&fabric, 3200), 100);
	assert_int_equal(ahead_words_in_order(&fabric, 1 << 18), 512);
	fabric.threads = 64;
	assert_int_equal(ahead_words_in_order(&fabric, 1 << 18), 256);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(threads_and_errors_pass_through, reset),
		cmocka_unit_test_setup(bytes_and_peak_are_counted, reset),
		cmocka_unit_test_setup(failures_leave_nothing_behind, reset),
		cmocka_unit_test_setup(failures_from_files_leave_nothing_behind, reset),
		cmocka_unit_test_setup(served_files_are_opened_and_freed, reset),
		cmocka_unit_test_setup(edges_are_fetched_ahead, reset),
		cmocka_unit_test(pieces_are_longer_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
