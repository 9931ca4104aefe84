/* SPDX-License-Identifier: BSD-3-Clause */
/* Sorting more edges than the memory holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/sort.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t key(struct soda_graph_edge e)
{
	return (uint64_t)e.from << 32 | e.to;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Few different vertices, so that edges repeat. */
static struct soda_graph_edge draw(uint64_t i, uint32_t vertices)
{
	uint64_t x = i * UINT64_C(0x9e3779b97f4a7c15);

	return (struct soda_graph_edge){ (uint32_t)(x >> 40) % vertices,
					 (uint32_t)(x >> 17) % vertices };
}

static size_t drop_repeats(uint64_t *keys, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (!kept || keys[i] != keys[kept - 1])
			keys[kept++] = keys[i];
	return kept;
}

/* memory: in bytes; 16 for each edge that is held. */
static void sorts(size_t count, size_t memory, bool unique, uint32_t vertices)
{
	uint64_t *expected = malloc((count + 1) * sizeof(*expected));
	struct soda_graph_edge batch[1000];
	struct soda_graph_sorter *s;
	struct soda_graph_error err;
	size_t done = 0;
	long got;

	assert_int_equal(soda_graph_sorter_create("/tmp", memory, unique, false, &s, &err), 0);
	for (size_t i = 0; i < count; i++) {
		batch[0] = draw(i, vertices);
		expected[i] = key(batch[0]);
		assert_int_equal(soda_graph_sorter_add(s, batch, NULL, 1, &err), 0);
	}
	qsort(expected, count, sizeof(*expected), by_value);
	if (unique)
		count = drop_repeats(expected, count);
	assert_int_equal(soda_graph_sorter_finish(s, &err), 0);
	while ((got = soda_graph_sorter_next(s, batch, NULL, 1000, &err)) > 0)
		for (long i = 0; i < got; i++) {
			assert_true(done < count);
			assert_true(key(batch[i]) == expected[done++]);
		}
	assert_int_equal(got, 0);
	assert_int_equal(done, count);
	soda_graph_sorter_destroy(s);
	free(expected);
}

static void any_number_of_runs(void **state)
{
	static const size_t counts[] = { 0, 1, 2, 999, 1000, 1001, 4096, 5000, 16999 };

	/* 1000 edges a run: none, one, a full one, powers of two and others. */
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		for (int unique = 0; unique < 2; unique++) {
			sorts(counts[i], 16000, unique, 50);
			sorts(counts[i], 16000, unique, 4000000000u);
		}
}

static void all_in_memory(void **state)
{
	sorts(300000, 64 << 20, false, 1000);
	sorts(300000, 64 << 20, true, 1000);
}

/* One edge, again and again: no run can be cut by vertices. */
static void equal_edges(void **state)
{
	sorts(5500, 16000, false, 1);
	sorts(5500, 16000, true, 1);
}

static void radix_sorts_every_byte(void **state)
{
	enum { COUNT = 10007 };
	uint64_t *keys = malloc(COUNT * sizeof(*keys)), *spare = malloc(COUNT * sizeof(*spare));
	uint64_t *expected = malloc(COUNT * sizeof(*expected));

	for (unsigned bits = 0; bits <= 64; bits += 8) {
		for (size_t i = 0; i < COUNT; i++) {
			uint64_t x = (i + 1) * UINT64_C(0xbf58476d1ce4e5b9);

			keys[i] = bits == 64 ? x : x >> 3 & ((UINT64_C(1) << bits) - 1);
		}
		memcpy(expected, keys, COUNT * sizeof(*keys));
		qsort(expected, COUNT, sizeof(*expected), by_value);
		assert_memory_equal(soda_graph_radix_sort(keys, spare, COUNT, 1), expected,
				    COUNT * sizeof(*keys));
	}
	free(keys);
	free(spare);
	free(expected);
}

static void missing_folder_is_an_error(void **state)
{
	struct soda_graph_edge edges[20] = { { 1, 2 } };
	struct soda_graph_sorter *s;
	struct soda_graph_error err;

	assert_int_equal(soda_graph_sorter_create("/nonexistent", 160, false, false, &s, &err), 0);
	assert_int_equal(soda_graph_sorter_add(s, edges, NULL, 20, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent: cannot make a temporary file"));
	soda_graph_sorter_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_runs),
		cmocka_unit_test(all_in_memory),
		cmocka_unit_test(equal_edges),
		cmocka_unit_test(radix_sorts_every_byte),
		cmocka_unit_test(missing_folder_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
