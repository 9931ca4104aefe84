/* SPDX-License-Identifier: BSD-3-Clause */
/* One walk, two texts: keys, names, units, labels, escapes, limits; and the checker of the tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/metrics.h"
#include "lib/scrape.h"

static const struct soda_metric requests = { .key = "requests", .help = "what was asked" };
static const struct soda_metric bytes_read = { .key = "bytes_read",
					       .help = "a \\ and\na line",
					       .unit = SODA_UNIT_BYTES };
static const struct soda_metric cpu = { .key = "cpu_ns", .help = "time", .unit = SODA_UNIT_NS };
static const struct soda_metric uptime = {
	.key = "uptime_ms", .help = "time", .kind = SODA_METRIC_GAUGE, .unit = SODA_UNIT_MS
};
static const struct soda_metric rate = { .key = "hit_rate",
					 .help = "hits of all",
					 .kind = SODA_METRIC_GAUGE };
static const struct soda_metric unknown = { .key = "unknown",
					    .help = "not a number",
					    .kind = SODA_METRIC_GAUGE };
static const struct soda_metric full = { .key = "full",
					 .help = "whether",
					 .kind = SODA_METRIC_GAUGE };
static const struct soda_metric size = {
	.key = "bytes", .help = "size", .kind = SODA_METRIC_GAUGE, .unit = SODA_UNIT_BYTES
};
static const struct soda_metric latency = { .key = "read_time_ns",
					    .help = "how long",
					    .unit = SODA_UNIT_NS };
static const struct soda_metric batch = { .key = "batch", .help = "how many" };
static const struct soda_metric_list clients = { "client_list", "client", 3 };
static const struct soda_metric_list regions = { "regions", "region", 4 };

/* How much of it: set by each test. */
static struct {
	unsigned clients, regions;
	const char *name;
} world;

static void walk_histograms(struct soda_metrics *m)
{
	static struct soda_histogram times, sizes;

	memset(&times, 0, sizeof(times));
	memset(&sizes, 0, sizeof(sizes));
	for (unsigned i = 0; i < 100; i++)
		soda_histogram_record(&times, 1000 + i * 20); /* 51 are below 2048 - 28 */
	soda_histogram_record(&sizes, 1);
	soda_histogram_record(&sizes, 16);
	soda_metrics_histogram(m, &latency, &times);
	soda_metrics_histogram(m, &batch, &sizes);
}

static void walk(void *arg, struct soda_metrics *m)
{
	soda_metrics_text(m, "program", world.name);
	soda_metrics_number(m, &requests, UINT64_C(9007199254740993)); /* no double */
	soda_metrics_number(m, &bytes_read, 4096);
	soda_metrics_number(m, &cpu, 1500000001);
	soda_metrics_number(m, &uptime, 90001);
	soda_metrics_real(m, &rate, 0.25);
	soda_metrics_real(m, &unknown, (double)NAN);
	soda_metrics_flag(m, &full, true);
	walk_histograms(m);
	soda_metrics_list(m, &clients);
	for (unsigned c = 0; c < world.clients; c++) {
		soda_metrics_item(m);
		soda_metrics_id(m, "id", c);
		soda_metrics_number(m, &requests, c * 10);
		soda_metrics_text(m, "address", world.name);
		soda_metrics_list(m, &regions);
		for (unsigned r = 0; r < world.regions; r++) {
			soda_metrics_item(m);
			soda_metrics_id(m, "id", r);
			soda_metrics_number(m, &size, 100 + r);
			soda_metrics_item_end(m);
		}
		soda_metrics_list_end(m);
		soda_metrics_flag(m, &full, false);
		soda_metrics_item_end(m);
	}
	soda_metrics_list_end(m);
	soda_metrics_id(m, "pid", 77);
}

static json_t *as_json(size_t bytes)
{
	char *text = malloc(bytes);
	long n = soda_metrics_json(walk, NULL, text, bytes);
	json_t *json;

	assert_true(n > 0);
	json = json_loadb(text, (size_t)n, 0, NULL);
	assert_non_null(json);
	free(text);
	return json;
}

static json_int_t number(const json_t *object, const char *key)
{
	assert_true(json_is_integer(json_object_get(object, key)));
	return json_integer_value(json_object_get(object, key));
}

static void test_json(void **state)
{
	json_t *json, *list, *client, *times;

	world.clients = 2, world.regions = 2, world.name = "a \"b\"\n";
	json = as_json(65536);
	assert_string_equal(json_string_value(json_object_get(json, "program")), "a \"b\"\n");
	assert_true(number(json, "requests") == 9007199254740993);
	assert_int_equal(number(json, "cpu_ns"), 1500000001);
	assert_true(json_real_value(json_object_get(json, "hit_rate")) == 0.25);
	assert_true(json_is_null(json_object_get(json, "unknown")));
	assert_true(json_is_true(json_object_get(json, "full")));
	assert_int_equal(number(json, "pid"), 77);
	times = json_object_get(json, "read_time");
	assert_int_equal(number(times, "count"), 100);
	assert_int_equal(number(times, "sum_ns"), 199000);
	assert_in_range(number(times, "p50_ns"), 1980 * 31 / 32, 1980 * 33 / 32);
	assert_int_equal(number(times, "max_ns"), 2980);
	assert_true(json_array_size(json_object_get(times, "buckets")) > 10);
	assert_int_equal(number(json_object_get(json, "batch"), "p50"), 1);
	list = json_object_get(json, "client_list");
	assert_int_equal(json_array_size(list), 2);
	client = json_array_get(list, 1);
	assert_int_equal(number(client, "id"), 1);
	assert_int_equal(number(client, "requests"), 10);
	assert_true(json_is_false(json_object_get(client, "full")));
	assert_int_equal(json_array_size(json_object_get(client, "regions")), 2);
	json_decref(json);
}

/* What does not fit is left out from the inside. */
static void test_json_small(void **state)
{
	json_t *json;
	char tiny[64];

	world.clients = 3, world.regions = 1000, world.name = "x";
	json = as_json(8192);
	assert_int_equal(json_array_size(json_object_get(json, "client_list")), 3);
	assert_null(json_object_get(json_array_get(json_object_get(json, "client_list"), 0),
				    "regions"));
	assert_non_null(
		json_object_get(json_array_get(json_object_get(json, "client_list"), 0), "full"));
	json_decref(json);
	world.clients = 1000, world.regions = 10;
	json = as_json(8192);
	assert_null(json_object_get(json, "client_list"));
	assert_int_equal(number(json, "pid"), 77);
	json_decref(json);
	assert_int_equal(soda_metrics_json(walk, NULL, tiny, sizeof(tiny)), -ENOMEM);
}

static char *as_text(void)
{
	char *text;
	size_t n;

	assert_int_equal(soda_metrics_prometheus(walk, NULL, "soda_test", &text, &n), 0);
	assert_int_equal(strlen(text), n);
	if (prom_check(text) < 0)
		fail_msg("%s", text);
	return text;
}

static void expect(const char *text, const char *line)
{
	const char *at = strstr(text, line);

	if (!at || (at != text && at[-1] != '\n') || at[strlen(line)] != '\n')
		fail_msg("no line '%s' in\n%s", line, text);
}

static void test_prometheus(void **state)
{
	char *text;

	world.clients = 2, world.regions = 1, world.name = "a \"b\"\\\n";
	text = as_text();
	expect(text, "# HELP soda_test_requests_total what was asked");
	expect(text, "# TYPE soda_test_requests_total counter");
	expect(text, "soda_test_requests_total 9007199254740993");
	expect(text, "# HELP soda_test_read_bytes_total a \\\\ and\\na line");
	expect(text, "soda_test_read_bytes_total 4096");
	expect(text, "soda_test_cpu_seconds_total 1.500000001");
	expect(text, "# TYPE soda_test_uptime_seconds gauge");
	expect(text, "soda_test_uptime_seconds 90.001");
	expect(text, "soda_test_hit_rate 0.25");
	expect(text, "soda_test_unknown NaN");
	expect(text, "soda_test_full 1");
	expect(text, "soda_test_info{program=\"a \\\"b\\\"\\\\\\n\",pid=\"77\"} 1");
	expect(text, "soda_test_client_requests_total{client=\"1\"} 10");
	expect(text, "soda_test_client_info{client=\"0\",address=\"a \\\"b\\\"\\\\\\n\"} 1");
	expect(text, "soda_test_client_full{client=\"1\"} 0");
	expect(text, "soda_test_region_size_bytes{client=\"1\",region=\"0\"} 100");
	expect(text, "soda_test_items_left_out{list=\"region\"} 0");
	free(text);
}

static void test_prometheus_histogram(void **state)
{
	char *text;

	world.clients = 0, world.name = "x";
	text = as_text();
	expect(text, "# TYPE soda_test_read_time_seconds histogram");
	expect(text, "soda_test_read_time_seconds_bucket{le=\"0.000001023\"} 2"); /* 1000, 1020 */
	expect(text, "soda_test_read_time_seconds_bucket{le=\"0.000002047\"} 53");
	expect(text, "soda_test_read_time_seconds_bucket{le=\"+Inf\"} 100");
	expect(text, "soda_test_read_time_seconds_sum 0.000199000");
	expect(text, "soda_test_batch_bucket{le=\"0\"} 0");
	expect(text, "soda_test_batch_bucket{le=\"1\"} 1");
	expect(text, "soda_test_batch_bucket{le=\"15\"} 1");
	expect(text, "soda_test_batch_bucket{le=\"31\"} 2");
	expect(text, "soda_test_batch_count 2");
	free(text);
}

/* A crowd is not let into the memory of whoever collects this. */
static void test_prometheus_limits(void **state)
{
	char *text;

	world.clients = 1000, world.regions = 3, world.name = "x";
	text = as_text();
	expect(text, "soda_test_client_requests_total{client=\"2\"} 20");
	assert_null(strstr(text, "client=\"3\""));
	expect(text, "soda_test_region_size_bytes{client=\"0\",region=\"2\"} 102");
	expect(text, "soda_test_region_size_bytes{client=\"1\",region=\"0\"} 100");
	assert_null(strstr(text, "{client=\"1\",region=\"1\"}"));
	assert_null(strstr(text, "{client=\"2\",region"));
	expect(text, "soda_test_client_full{client=\"1\"} 0"); /* behind what was left out */
	expect(text, "soda_test_items_left_out{list=\"client\"} 997");
	expect(text, "soda_test_items_left_out{list=\"region\"} 5");
	free(text);
}

/* Names of peers: whatever they are, both texts stay well-formed. */
static void test_bad_text(void **state)
{
	static const char *const bad[] = { "\xff",	   "\xc3",
					   "\xc0\xaf",	   "\xe0\x80\xaf",
					   "\xed\xa0\x80", "\xf4\x90\x80\x80",
					   "a\x80",	   "\xf8\x88\x80\x80\x80" };
	static const char *const good[] = {
		"", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x7f\x01", "\xed\x9f\xbf"
	};

	world.clients = 1, world.regions = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		world.name = bad[i];
		json_t *json = as_json(65536);

		assert_string_equal(json_string_value(json_object_get(json, "program")),
				    "(not UTF-8)");
		json_decref(json);
		free(as_text());
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		world.name = good[i];
		json_t *json = as_json(65536);

		assert_string_equal(json_string_value(json_object_get(json, "program")), good[i]);
		json_decref(json);
		free(as_text());
	}
}

/* The checker that other tests rely on sees what is wrong. */
static void test_checker(void **state)
{
#define HEAD(type) "# HELP a_total x\n# TYPE a_total " type "\n"
#define HISTOGRAM "# HELP h x\n# TYPE h histogram\n"
	static const char *const bad[] = {
		"",
		"a_total 1\n",
		HEAD("counter") "a_total 1",
		HEAD("counter"),
		HEAD("counter") "a_total -1\n",
		HEAD("counter") "b_total 1\n",
		HEAD("counter") "a_total 1\na_total 2\n",
		HEAD("counter") "a_total one\n",
		HEAD("counter") "a_total 1\n" HEAD("counter") "a_total{b=\"1\"} 1\n",
		HEAD("wrong") "a_total 1\n",
		HEAD("gauge") "a_total{b=\"\\x\"} 1\n",
		HEAD("gauge") "a_total{b=\"1\" c=\"2\"} 1\n",
		HEAD("gauge") "a_total{1b=\"1\"} 1\n",
		HEAD("gauge") "a_total{b=\"1} 1\n",
		HEAD("gauge") "\na_total 1\n",
		"# HELP a x\n# TYPE a counter\na 1\n",
		HISTOGRAM "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
		HISTOGRAM "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
		HISTOGRAM "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
		HISTOGRAM "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\n",
		HISTOGRAM "h_bucket{le=\"+Inf\"} 1\nh_count 1\n",
	};
	double value;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (prom_check(bad[i]) >= 0)
			fail_msg("passed:\n%s", bad[i]);
	assert_int_equal(prom_check(HEAD("counter") "a_total 1\na_total{b=\"\\\"\"} 2e3\n"), 2);
	assert_int_equal(prom_check(HISTOGRAM
				    "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\n"
				    "h_count 1\n"),
			 4);
	assert_true(prom_value("aa 1\na 2\n", "a", &value));
	assert_true(value == 2);
	assert_false(prom_value("aa 1\n", "a", &value));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_small),
		cmocka_unit_test(test_prometheus),
		cmocka_unit_test(test_prometheus_histogram),
		cmocka_unit_test(test_prometheus_limits),
		cmocka_unit_test(test_bad_text),
		cmocka_unit_test(test_checker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
