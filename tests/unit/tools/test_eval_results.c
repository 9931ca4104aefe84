/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: the order of the runs, what a process may have, results on disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soda/eval/results.h"

static char dir[] = "/tmp/soda-test-eval-unit-XXXXXX", path[64];
static struct soda_eval_plan plan;
static struct soda_eval_results results;

static void plan_of(uint32_t repeat, bool background)
{
	free(plan.runs);
	plan = (struct soda_eval_plan){
		.out = dir,
		.graphs_n = 1,
		.apps_n = 2,
		.modes_n = 4,
		.apps = { 0, 1 },
		.modes = { SODA_EVAL_DRAM, SODA_EVAL_MEMSERVER, SODA_EVAL_BASE, SODA_EVAL_AGG },
		.repeat = repeat,
		.background = background,
	};
	plan.graphs[0].spec = "rmat:4:10";
	snprintf(plan.graphs[0].name, sizeof(plan.graphs[0].name), "graph");
	assert_int_equal(soda_eval_plan_make(&plan), 0);
}

static void test_order(void **state)
{
	plan_of(2, false);
	assert_int_equal(plan.runs_n, 16);
	for (uint32_t i = 0; i < 4; i++) { /* what says what the others may have comes first */
		assert_int_equal(plan.runs[i].mode, plan.modes[i]);
		assert_int_equal(plan.runs[i].app, 0);
		assert_int_equal(plan.runs[i].repetition, 0);
	}
	assert_int_equal(plan.runs[4].app, 1);
	assert_int_equal(plan.runs[8].repetition, 1); /* and then they take turns */
	assert_int_equal(plan.runs[8].mode, SODA_EVAL_MEMSERVER);
	assert_int_equal(plan.runs[11].mode, SODA_EVAL_DRAM);
}

/* Beside another process: neither dram nor the parts of the agent. */
static void test_order_of_two(void **state)
{
	plan_of(1, true);
	assert_int_equal(plan.runs_n, 2 * (4 + 2));
	assert_int_equal(plan.runs[4].processes, 2);
	assert_int_equal(plan.runs[4].mode, SODA_EVAL_MEMSERVER);
	assert_int_equal(plan.runs[5].mode, SODA_EVAL_BASE);
	assert_int_equal(plan.runs[6].processes, 1);
}

static void add(enum soda_eval_mode mode, uint32_t repetition, double seconds, uint64_t traffic,
		bool valid)
{
	json_t *run =
		json_pack("{ss ss ss si si sf sb s{si si} si}", "graph", "graph", "app", "bfs",
			  "mode", soda_eval_mode_names[mode], "processes", 1, "repetition",
			  repetition, "seconds", seconds, "valid", valid, "traffic", "total",
			  (int)traffic, "on_demand", (int)traffic, "programs_bytes", 100);

	assert_non_null(run);
	assert_int_equal(soda_eval_results_add(&results, "run", run), 0);
}

static json_t *find(enum soda_eval_mode mode)
{
	const struct soda_eval_run kind = { .mode = mode, .processes = 1 };

	return soda_eval_results_find(&results, &plan, &kind);
}

static void near(double value, double expected)
{
	if (!(fabs(value - expected) < 1e-9))
		print_error("%g, expected %g\n", value, expected);
	assert_true(fabs(value - expected) < 1e-9);
}

static void start_results(uint32_t repeat)
{
	soda_eval_results_close(&results);
	plan_of(repeat, false);
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_FRESH), 0);
}

/* A run that does not count is tried again; the last of its kind is what counts. */
static void test_invalid(void **state)
{
	start_results(1);
	add(SODA_EVAL_BASE, 0, 5, 10, false);
	assert_null(find(SODA_EVAL_BASE));
	add(SODA_EVAL_BASE, 0, 7, 10, true);
	near(json_number_value(json_object_get(find(SODA_EVAL_BASE), "seconds")), 7);
	add(SODA_EVAL_BASE, 0, 8, 10, false);
	assert_null(find(SODA_EVAL_BASE));
}

static void test_resumes(void **state)
{
	start_results(2);
	add(SODA_EVAL_DRAM, 0, 1, 0, true);
	add(SODA_EVAL_DRAM, 1, 1, 0, true);
	soda_eval_results_close(&results);
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_GO_ON), 0);
	assert_int_equal(results.found, 2);
	soda_eval_results_close(&results);
	assert_int_equal(truncate(path, 20), 0); /* within the first line */
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_GO_ON), 0);
	assert_int_equal(results.found, 0);
	plan.threads = 7;
	soda_eval_results_close(&results);
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_GO_ON), -EEXIST);
}

/* Other applications, modes and repetitions, in the same folder: the report has all of them. */
static void test_parts(void **state)
{
	json_t *graph = json_pack("{ss ss si}", "name", "graph", "spec", "rmat:4:10", "edges", 20);
	struct soda_eval_plan all;

	start_results(3);
	assert_int_equal(soda_eval_results_add(&results, "graph", graph), 0);
	add(SODA_EVAL_DRAM, 2, 1, 0, true);
	add(SODA_EVAL_BASE, 0, 4, 0, false);
	plan.repeat = plan.apps_n = plan.modes_n = 1;
	plan.apps[0] = 4;
	soda_eval_results_close(&results);
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_GO_ON), 0);
	all = plan;
	soda_eval_plan_widen(&all, &results);
	assert_int_equal(all.repeat, 3);
	assert_int_equal(all.graphs_n, 1);
	assert_int_equal(all.graphs[0].edges, 20);
	assert_int_equal(all.apps_n, 2); /* what is asked for, what is there */
	assert_int_equal(all.apps[1], 0);
	assert_int_equal(all.modes_n, 2);
	assert_int_equal(all.modes[1], SODA_EVAL_BASE);
	assert_false(all.background);
}

/* The table: medians, the fastest mode with an agent, and what is not valid. */
static void test_table(void **state)
{
	struct soda_eval_report report = { .plan = &plan, .results = &results };
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	start_results(2);
	plan.apps_n = 1;
	soda_eval_table(out, &report);
	fflush(out);
	assert_non_null(strstr(text, "No application has a valid run in local memory"));
	add(SODA_EVAL_DRAM, 0, 1, 0, true);
	add(SODA_EVAL_DRAM, 1, 3, 0, true);
	add(SODA_EVAL_MEMSERVER, 0, 5, 0, true);
	add(SODA_EVAL_MEMSERVER, 1, 9, 0, true);
	add(SODA_EVAL_BASE, 0, 6, 0, true);
	add(SODA_EVAL_AGG, 0, 3, 0, true);
	add(SODA_EVAL_AGG, 1, 3, 0, false);
	rewind(out);
	soda_eval_table(out, &report);
	fclose(out);
	assert_string_equal(
		text,
		"graph\n"
		"  application    far memory      with DRAM   far memory  slow-down  verified\n"
		"  bfs            memserver         2.000 s      7.000 s       3.5x  yes, 2 of 2\n"
		"  bfs            agg               2.000 s      3.000 s       1.5x  NO, 1 of 2\n"
		"With a third of what they compute on in local memory, and the rest on a memory "
		"server, applications\n"
		"took 1.5 to 3.5 times as long as with all of it in local memory. Some runs are "
		"NOT valid.\n"
		"(memserver: without an agent; below it the fastest mode with one.)\n");
	free(text);
}

/* To look needs no options: the setting is the folder's. */
static void test_looks(void **state)
{
	start_results(1);
	soda_eval_results_close(&results);
	plan.threads = 7;
	plan.chunk_bytes = 4096;
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_LOOK), 0);
	assert_int_equal(plan.threads, 0);
	assert_int_equal(plan.chunk_bytes, 0);
	soda_eval_results_close(&results);
	unlink(path);
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_LOOK), -ENOENT);
}

static void test_keeps_graphs_apart(void **state)
{
	json_t *graph = json_pack("{ss ss}", "name", "graph", "spec", "/another/graph");

	start_results(1);
	assert_int_equal(soda_eval_results_add(&results, "graph", graph), 0);
	soda_eval_results_close(&results);
	assert_int_equal(soda_eval_results_open(&results, &plan, SODA_EVAL_GO_ON), -EEXIST);
}

static void took(enum soda_eval_mode mode, double seconds)
{
	json_t *run = json_pack("{ss ss ss si si sf sb}", "graph", "graph", "app", "bfs", "mode",
				soda_eval_mode_names[mode], "processes", 1, "repetition", 0,
				"wall_seconds", seconds, "valid", true);

	assert_int_equal(soda_eval_results_add(&results, "run", run), 0);
}

static double guess(enum soda_eval_mode mode, uint32_t app, uint32_t processes)
{
	const struct soda_eval_run run = { .mode = mode, .app = app, .processes = processes };

	return soda_eval_progress_guess(&results, &plan, &run);
}

/* What is left takes what its like took; what was never run, in proportion. */
static void test_progress(void **state)
{
	char text[SODA_EVAL_DURATION_BYTES];
	double before;

	start_results(2);
	before = guess(SODA_EVAL_DRAM, 0, 1);
	assert_true(before > 0);
	assert_true(guess(SODA_EVAL_BASE, 0, 1) > before);
	took(SODA_EVAL_DRAM, 10 * before);
	near(guess(SODA_EVAL_DRAM, 0, 1), 10 * before);
	assert_true(guess(SODA_EVAL_DRAM, 1, 1) > 9 * before);
	assert_true(guess(SODA_EVAL_BASE, 0, 2) > guess(SODA_EVAL_BASE, 0, 1));
	took(SODA_EVAL_BASE, 7);
	took(SODA_EVAL_BASE, 9);
	near(guess(SODA_EVAL_BASE, 0, 1), 8);
	soda_eval_progress_format(61.2, text);
	assert_string_equal(text, "61 s");
	soda_eval_progress_format(1200, text);
	assert_string_equal(text, "20 min");
	soda_eval_progress_format(7500, text);
	assert_string_equal(text, "2 h 05 min");
}

/* What two processes have beside their store, and at any time, is within their limit. */
static void test_needs_with_a_store(void **state)
{
	const struct soda_eval_run run = { .processes = 2, .mode = SODA_EVAL_STORE };
	const struct soda_eval_run other = { .processes = 2, .mode = SODA_EVAL_MEMSERVER };
	struct soda_eval_plan p = { .threads = 2, .chunk_bytes = 65536 };

	for (uint64_t object = 48ull << 20; object < 8ull << 30; object *= 3) {
		for (uint64_t part = 4; part <= 16; part *= 4) { /* the arrays': in FAM, or not */
			json_t *dram = json_pack("{sIsI}", "object_bytes", (json_int_t)object,
						 "array_bytes", (json_int_t)(object / part));
			struct soda_eval_needs n;
			uint64_t store, slots;

			soda_eval_needs_of(&p, dram, &n);
			store = soda_eval_store_bytes(&run, &n);
			slots = n.own_bytes / p.chunk_bytes / 8 / p.threads;
			assert_int_equal(n.arrays_fam, part == 4);
			assert_int_equal(store + 2 * n.own_bytes, 2 * n.buffer_bytes);
			/* libsoda reads ahead; and no more lies idle than that takes */
			assert_true(slots >= 2 && n.own_bytes <= n.buffer_bytes * 5 / 8);
			assert_true(n.arrays_fam || slots <= 32);
			assert_int_equal(soda_eval_warm_bytes(&other, &n, true), n.buffer_bytes);
			assert_true(soda_eval_warm_bytes(&run, &n, true) <= 2 * n.limit_bytes);
			assert_true(store + n.own_bytes + soda_eval_warm_bytes(&run, &n, false) <=
				    2 * n.limit_bytes);
			json_decref(dram);
		}
	}
}

static int start(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/runs.jsonl", dir);
	return 0;
}

static int end(void **state)
{
	soda_eval_results_close(&results);
	free(plan.runs);
	unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_order_of_two),
		cmocka_unit_test(test_needs_with_a_store),
		cmocka_unit_test(test_invalid),
		cmocka_unit_test(test_resumes),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_looks),
		cmocka_unit_test(test_keeps_graphs_apart),
		cmocka_unit_test(test_progress),
	};

	return cmocka_run_group_tests(tests, start, end);
}
