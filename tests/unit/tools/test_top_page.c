/* SPDX-License-Identifier: BSD-3-Clause */
/* What `soda top` computes and draws: rates, ratios, percentiles, words for numbers, clipping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "soda/watch/canvas.h"
#include "soda/watch/frame.h"
#include "soda/watch/views.h"

static struct soda_top_pair pair;

/* Two answers, `seconds` apart; NULL: only one. */
static void given(const char *before, const char *now, double seconds)
{
	json_decref(pair.before.counters);
	json_decref(pair.now.counters);
	pair.before.counters = before ? json_loads(before, 0, NULL) : NULL;
	pair.before.at_ns = 1000;
	pair.now.counters = json_loads(now, 0, NULL);
	pair.now.at_ns = 1000 + (uint64_t)(seconds * 1e9);
	assert_non_null(pair.now.counters);
}

static void test_rates(void **state)
{
	given("{\"a\": 100, \"b\": 10}", "{\"a\": 300, \"b\": 20}", 2);
	assert_true(soda_top_gauge(&pair, "a") == 300);
	assert_true(soda_top_gauge(&pair, "a-b") == 280);
	assert_true(soda_top_rate(&pair, "a") == 100);
	assert_true(soda_top_rate(&pair, "a+b") == 105);
	assert_true(isnan(soda_top_gauge(&pair, "c")));
	assert_true(isnan(soda_top_rate(&pair, "a+c")));
	/* a new instance begins at zero: nothing is known, and nothing is negative */
	given("{\"a\": 100, \"b\": 10}", "{\"a\": 3, \"b\": 20}", 1);
	assert_true(isnan(soda_top_rate(&pair, "a")));
	assert_true(isnan(soda_top_rate(&pair, "b+a")));
	given(NULL, "{\"a\": 3}", 1);
	assert_true(isnan(soda_top_rate(&pair, "a")));
	/* what is no number */
	given("{\"a\": \"x\"}", "{\"a\": [1]}", 1);
	assert_true(isnan(soda_top_rate(&pair, "a")));
}

static void test_ratios(void **state)
{
	given("{\"a\": 10, \"b\": 100}", "{\"a\": 20, \"b\": 140}", 1);
	assert_true(soda_top_ratio(&pair, "a", "b") == 0.25);
	given(NULL, "{\"a\": 10, \"b\": 100}", 1); /* of the totals */
	assert_true(soda_top_ratio(&pair, "a", "b") == 0.1);
	given("{\"a\": 10, \"b\": 100}", "{\"a\": 10, \"b\": 100}", 1);
	assert_true(isnan(soda_top_ratio(&pair, "a", "b")));
}

static void test_histograms(void **state)
{
	static struct soda_histogram h;

	given("{\"t\": {\"buckets\": [[1024, 10], [4096, 1]]}}",
	      "{\"t\": {\"buckets\": [[1024, 10], [2048, 99], [4096, 2]]}}", 1);
	memset(&h, 0, sizeof(h));
	assert_true(soda_top_recorded(&pair, "t", &h));
	assert_int_equal(soda_histogram_count(&h), 100);
	assert_in_range(soda_histogram_percentile(&h, 50), 2048, 2176);
	assert_in_range(soda_histogram_percentile(&h, 99.5), 4096, 4352);
	given("{\"t\": {\"buckets\": [[1024, 10]]}}", "{\"t\": {\"buckets\": [[1024, 3]]}}", 1);
	assert_false(soda_top_recorded(&pair, "t", &h)); /* another instance */
	given(NULL, "{\"t\": {\"buckets\": [[-5, 3], [\"x\", 1], 7, [16, 2]]}}", 1);
	memset(&h, 0, sizeof(h));
	assert_true(soda_top_recorded(&pair, "t", &h)); /* nonsense counts for little or nothing */
	assert_int_equal(soda_histogram_bucket_count(&h, soda_histogram_bucket(16)), 2);
	assert_false(soda_top_recorded(&pair, "u", &h));
}

static void reads(enum soda_top_kind kind, double value, const char *as)
{
	char text[SODA_TOP_TEXT];

	soda_top_format(kind, value, text);
	assert_string_equal(text, as);
	assert_true(strlen(text) <= 11);
}

static void test_format(void **state)
{
	reads(SODA_TOP_LEVEL, 0, "0");
	reads(SODA_TOP_LEVEL, 999, "999");
	reads(SODA_TOP_LEVEL, 999.7, "1.0k");
	reads(SODA_TOP_LEVEL, 12345, "12.3k");
	reads(SODA_TOP_LEVEL, 123456789, "123M");
	reads(SODA_TOP_LEVEL, (double)NAN, "-");
	reads(SODA_TOP_COUNT, 2.5, "2.5/s");
	reads(SODA_TOP_SIZE, 65536, "64 KiB");
	reads(SODA_TOP_SIZE, 1023.9, "1.0 KiB");
	reads(SODA_TOP_BYTES, 1.5 * 1024 * 1024 * 1024, "1.5 GiB/s");
	reads(SODA_TOP_TIME, 850, "850 ns");
	reads(SODA_TOP_TIME, 12345, "12.3 us");
	reads(SODA_TOP_TIME, 2.5e9, "2.5 s");
	reads(SODA_TOP_TIME, 1e13, "10000 s");
	reads(SODA_TOP_SHARE, 99.96, "100 %");
	reads(SODA_TOP_SHARE, 12.34, "12.3 %");
	reads(SODA_TOP_BYTES, (double)INFINITY, "-");
}

/* A row of the canvas as text, without its trailing blanks. */
static const char *line(const struct soda_top_canvas *c, int row)
{
	static char text[256];
	int n = c->columns;

	while (n && c->cells[row * c->columns + n - 1].ch == L' ')
		n--;
	for (int i = 0; i < n; i++)
		text[i] = (char)c->cells[row * c->columns + i].ch;
	text[n] = 0;
	return text;
}

static void test_canvas(void **state)
{
	const float values[] = { 0, 1, 2, NAN, 4, 8 }, odd[] = { -1e30f, INFINITY, 1e-30f, 1e30f };
	struct soda_top_canvas c = { .utf8 = false };

	assert_int_equal(soda_top_canvas_resize(&c, 12, 4), 0);
	soda_top_put(&c, 0, 8, SODA_TOP_PLAIN, "clipped");
	soda_top_put(&c, 0, -3, SODA_TOP_PLAIN, "clipped");
	soda_top_put(&c, 9, 0, SODA_TOP_PLAIN, "clipped");
	soda_top_put(&c, -1, 0, SODA_TOP_PLAIN, "clipped");
	assert_string_equal(line(&c, 0), "pped    clip");
	soda_top_put(&c, 1, 0, SODA_TOP_PLAIN, "a\033[2Jb\n\xff"); /* nothing for the terminal */
	assert_string_equal(line(&c, 1), "a?[2Jb??");
	soda_top_spark(&c, 2, 1, 8, values, 6);
	assert_string_equal(line(&c, 2), "   __. -#");
	soda_top_spark(&c, 2, 1, 3, values, 6); /* the last ones */
	assert_string_equal(line(&c, 2), "  -#_. -#");
	soda_top_bar(&c, 3, 0, 12, 0.5);
	assert_string_equal(line(&c, 3), "[#####.....]");
	soda_top_bar(&c, 3, 0, 12, 7);
	assert_string_equal(line(&c, 3), "[##########]");
	soda_top_bar(&c, 3, 0, 12, 1e300); /* more than an int holds */
	assert_string_equal(line(&c, 3), "[##########]");
	soda_top_bar(&c, 3, 0, 12, -1e300);
	assert_string_equal(line(&c, 3), "[..........]");
	soda_top_bar(&c, 3, 0, 1, 1);
	soda_top_canvas_clear(&c);
	soda_top_spark(&c, 2, 1, 8, odd, 4);
	assert_string_equal(line(&c, 2), "     _ _#");
	c.first = 2;
	soda_top_put(&c, 1, 0, SODA_TOP_PLAIN, "above");
	assert_string_equal(line(&c, 1), "");
	soda_top_canvas_free(&c);
}

static void known(struct soda_top_target *t, const char *name, double ops)
{
	memset(t, 0, sizeof(*t));
	t->name = name;
	snprintf(t->label, sizeof(t->label), "%s", name);
	t->state = SODA_TOP_HERE;
	for (int i = 0; i < SODA_TOP_COLUMNS; i++)
		t->columns[i] = ops;
}

static void test_sort(void **state)
{
	static struct soda_top_target targets[4];
	struct soda_top_ui ui = { .targets = targets, .targets_n = 4, .sort = SODA_TOP_BY_OPS };

	known(&targets[0], "d", 5);
	known(&targets[1], "c", (double)NAN);
	known(&targets[2], "b", 7);
	known(&targets[3], "a", 5);
	soda_top_sort(&ui);
	assert_memory_equal(ui.order, ((int[]){ 2, 0, 3, 1 }), sizeof(int[4]));
	ui.reverse = true; /* what is unknown stays below */
	soda_top_sort(&ui);
	assert_memory_equal(ui.order, ((int[]){ 0, 3, 2, 1 }), sizeof(int[4]));
	ui.sort = SODA_TOP_BY_TARGET;
	ui.reverse = false;
	soda_top_sort(&ui);
	assert_memory_equal(ui.order, ((int[]){ 3, 2, 1, 0 }), sizeof(int[4]));
}

/* The row of a counter, of the kind of target that has these; NULL: there is none. */
static const struct soda_top_row *row_of(const char *counters, const char *expr)
{
	const struct soda_top_view *view;

	given(NULL, counters, 1);
	view = soda_top_view_of(pair.now.counters);
	for (size_t row = 0; row < view->rows_n; row++)
		if (view->rows[row].expr && !strcmp(view->rows[row].expr, expr))
			return &view->rows[row];
	return NULL;
}

/* Every row of every kind of target has a value, a place and an explanation. */
static void test_views(void **state)
{
	static const char *const marks[] = { "faults", "net_demand", "capacity_bytes" };
	char text[64];

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		snprintf(text, sizeof(text), "{\"%s\": 1}", marks[i]);
		given(NULL, text, 1);
		const struct soda_top_view *view = soda_top_view_of(pair.now.counters);

		assert_string_equal(view->mark, marks[i]);
		for (size_t row = 0; row < view->rows_n; row++) {
			const struct soda_top_row *at = &view->rows[row];

			assert_true(strlen(at->label) <= 17);
			if (at->kind == SODA_TOP_HEADING)
				continue;
			assert_non_null(at->expr);
			assert_non_null(at->help);
			if (at->kind == SODA_TOP_SHARE || at->kind == SODA_TOP_MEAN ||
			    at->kind == SODA_TOP_FULL)
				assert_non_null(at->whole);
		}
	}
	/* what a program has in the node's store, and the store */
	assert_non_null(row_of("{\"faults\": 1}", "store_bytes_mapped"));
	assert_non_null(row_of("{\"faults\": 1}", "store_object_bytes"));
	assert_non_null(row_of("{\"net_demand\": 1}", "store_used_bytes"));
	given(NULL, "{}", 1);
	assert_int_equal(soda_top_view_of(pair.now.counters)->rows_n, 0);
	given(NULL, "{\"x\": 1}", 1);
	json_decref(pair.now.counters);
	pair.now.counters = NULL;
}

static void is_in(const char *counters, const char *key, const char *group)
{
	const char *found;

	given(NULL, counters, 1);
	found = soda_top_group_of(soda_top_view_of(pair.now.counters), key);
	if (!group)
		assert_null(found);
	else if (!found || strcmp(found, group))
		fail_msg("%s is in %s, not in %s", key, found ? found : "none", group);
}

/* A counter is in the group of the rows that show it, or all that begin as it does. */
static void test_groups(void **state)
{
	is_in("{\"faults\": 1}", "fetches", "Page faults"); /* the first of the rows */
	is_in("{\"faults\": 1}", "bytes_fetched", "Traffic");
	is_in("{\"faults\": 1}", "buffer_bytes", "Page buffer"); /* the whole of a bar */
	is_in("{\"faults\": 1}", "copies_expelled", "Redundancy");
	is_in("{\"faults\": 1}", "store_maps", "Node's store");
	is_in("{\"faults\": 1}", "bytes_sealed", "Traffic");
	is_in("{\"faults\": 1}", "mode", NULL);
	is_in("{\"capacity_bytes\": 1}", "clients_opened", "Process");
	is_in("{\"capacity_bytes\": 1}", "bytes_discarded", NULL); /* "bytes_": in two of them */
	is_in("{\"capacity_bytes\": 1}", "pid", NULL);
	json_decref(pair.now.counters);
	pair.now.counters = NULL;
}

/* The rows of a program that has met no trouble, as text. */
static void draw(struct soda_top_canvas *c, bool brief)
{
	static struct soda_top_target t;

	given(NULL,
	      "{\"faults\": 3, \"fam_bytes\": 65536, \"copies_missing\": 0, \"reconnects\": 0}", 1);
	known(&t, "1", 0);
	t.pair = pair;
	t.view = soda_top_view_of(pair.now.counters);
	for (size_t i = 0; i < t.view->rows_n; i++)
		t.values[i] = soda_top_row_value(&t.view->rows[i], &pair);
	assert_int_equal(soda_top_canvas_resize(c, 80, 16), 0);
	soda_top_canvas_clear(c);
	c->once = true;
	c->brief = brief;
	assert_true(soda_top_details(c, 0, &t) < 12);
}

static void test_still_groups(void **state)
{
	struct soda_top_canvas c = { .utf8 = false };

	draw(&c, true);
	assert_string_equal(line(&c, 1), " Page buffer");
	assert_string_equal(line(&c, 2), "  allocated               64 KiB");
	assert_string_equal(line(&c, 3), " all 0: Page faults, Redundancy, Trouble");
	assert_string_equal(line(&c, 4), "");
	draw(&c, false);
	assert_string_equal(line(&c, 1), " Page faults");
	assert_string_equal(line(&c, 5), " Redundancy");
	assert_string_equal(line(&c, 7), " Trouble");
	assert_string_equal(line(&c, 8), "  reconnections                0");
	soda_top_canvas_free(&c);
	json_decref(pair.now.counters);
	pair.now.counters = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),	     cmocka_unit_test(test_ratios),
		cmocka_unit_test(test_histograms),   cmocka_unit_test(test_format),
		cmocka_unit_test(test_canvas),	     cmocka_unit_test(test_sort),
		cmocka_unit_test(test_views),	     cmocka_unit_test(test_groups),
		cmocka_unit_test(test_still_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
