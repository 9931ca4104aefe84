/* SPDX-License-Identifier: BSD-3-Clause */
/* soda bench dpu: from rounds to numbers; names of patterns; names and addresses of links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "soda/bench/dpu/summary.h"
#include "soda/bench/worker/pattern.h"

/* A round of `ns` that fetched 1000 bytes, `demand` of them on demand. */
static struct soda_bench_dpu_sample sample(uint64_t ns, uint64_t demand)
{
	return (struct soda_bench_dpu_sample){
		.wall_ns = ns,
		.host_cpu_ns = 500,
		.agent_cpu_ns = 250,
		.server_cpu_ns = 100,
		.fetched_bytes = 1000,
		.accesses = 20,
		.counters = { [SODA_BENCH_NET_DEMAND] = demand,
			      [SODA_BENCH_NET_PREFETCH] = 300,
			      [SODA_BENCH_NET_WRITEBACK] = 10,
			      [SODA_BENCH_LATE_HITS] = 2 },
		.link = { .from_server = 1100, .to_server = 50 },
	};
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-9;
}

static void test_summary(void **state)
{
	const struct soda_bench_dpu_sample rounds[] = { sample(1000, 600), sample(500, 700),
							sample(2000, 800) };
	struct soda_bench_dpu_summary s;

	soda_bench_dpu_summarise(rounds, 3, 100, 77, &s);
	assert_true(near(s.seconds, 1e-6));
	assert_true(near(s.gb_per_s, 1) && near(s.gb_min, 0.5) && near(s.gb_max, 2));
	assert_true(near(s.spread, 1.5));
	assert_true(near(s.touched_gb_per_s, 2));
	assert_true(near(s.cpu_host, 0.5) && near(s.cpu_agent, 0.25) && near(s.cpu_server, 0.1));
	assert_int_equal(s.fetched_bytes, 3000);
	assert_int_equal(s.counters[SODA_BENCH_NET_DEMAND], 2100);
	assert_int_equal(s.counters[SODA_BENCH_NET_PRELOAD], 77);
	assert_int_equal(s.counters[SODA_BENCH_LATE_HITS], 6);
	assert_int_equal(s.traffic_bytes, 2100 + 900 + 30 + 77);
	assert_int_equal(s.link.from_server, 3300);
	assert_int_equal(s.link.to_server, 150);
	assert_true(near(s.hit_rate, 0.3));
}

/* Bytes that arrive after the end of their round make no rate below nothing. */
static void test_hit_rate_at_an_edge(void **state)
{
	const struct soda_bench_dpu_sample late = sample(1000, 1010), nothing = { .wall_ns = 5 };
	struct soda_bench_dpu_summary s;

	soda_bench_dpu_summarise(&late, 1, 100, 0, &s);
	assert_true(near(s.hit_rate, 0));
	soda_bench_dpu_summarise(&nothing, 1, 100, 0, &s);
	assert_true(isnan(s.hit_rate) && isnan(s.cpu_host));
}

static void test_ratio_of_rounds(void **state)
{
	const struct soda_bench_dpu_sample a[] = { sample(1000, 0), sample(3000, 0),
						   sample(2000, 0) };
	const struct soda_bench_dpu_sample b[] = { sample(1000, 0), sample(1000, 0),
						   sample(4000, 0) };

	assert_true(near(soda_bench_dpu_slower(a, b, 3), 1)); /* of 1, 3, 0.5 */
}

static void test_patterns(void **state)
{
	static const char *const names[] = { "seq", "rand", "rmw", "zipf", "hot", "alternate" };
	struct soda_bench_plan plan = { 0 };
	char text[600];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(soda_bench_pattern_parse("test", names[i], false, &plan), 0);
		assert_string_equal(soda_bench_pattern_name(&plan, text, sizeof(text)), names[i]);
		assert_int_equal(plan.stores, strcmp(names[i], "rmw") == 0);
	}
	assert_int_equal(soda_bench_pattern_parse("test", "shared", true, &plan), 0);
	assert_int_equal(plan.pattern, SODA_BENCH_SHARED);
	assert_int_equal(soda_bench_pattern_parse("test", "shared", false, &plan), -EINVAL);
	assert_int_equal(soda_bench_pattern_parse("test", "trace:/nowhere", true, &plan), -EINVAL);
	assert_int_equal(soda_bench_pattern_parse("test", "", true, &plan), -EINVAL);
}

static void test_buffers(void **state)
{
	uint64_t bytes;

	assert_int_equal(soda_bench_parse_buffer("1/20", 2000, &bytes), 0);
	assert_int_equal(bytes, 100);
	assert_int_equal(soda_bench_parse_buffer("64K", 2000, &bytes), 0);
	assert_int_equal(bytes, 65536);
	assert_int_equal(soda_bench_parse_buffer("3/2", 2000, &bytes), -EINVAL);
	assert_int_equal(soda_bench_parse_buffer("1/0", 2000, &bytes), -EINVAL);
	assert_int_equal(soda_bench_parse_buffer("1/2x", 2000, &bytes), -EINVAL);
}

static void test_links(void **state)
{
	struct soda_bench_link link, other;

	assert_int_equal(soda_bench_link_plan("2", 1, &link), -EINVAL);
	assert_int_equal(soda_bench_link_plan("gbit", 1, &link), -EINVAL);
	assert_int_equal(soda_bench_link_plan("-2gbit", 1, &link), -EINVAL);
	assert_int_equal(soda_bench_link_plan("2gbit; reboot", 1, &link), -EINVAL);
	if (geteuid() != 0) {
		assert_int_equal(soda_bench_link_plan("2gbit", 1, &link), -EPERM);
		return;
	}
	assert_int_equal(soda_bench_link_plan("2.5Gbit", 4194304, &link), 0);
	assert_int_equal(link.bits_per_s, 2500000000u);
	assert_true(strlen(link.host_name) < 16 && strlen(link.server_name) < 16);
	assert_string_not_equal(link.host_name, link.server_name);
	assert_int_equal(soda_bench_link_plan("800mbit", 4194303, &other), 0);
	assert_int_equal(other.bits_per_s, 800000000u);
	assert_string_equal(link.host_ip, "198.18.0.1");
	assert_string_equal(link.server_ip, "198.18.0.2");
	assert_string_equal(other.host_ip, "198.19.255.253");
	assert_string_equal(other.server_ip, "198.19.255.254");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_summary),		cmocka_unit_test(test_hit_rate_at_an_edge),
		cmocka_unit_test(test_ratio_of_rounds), cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_buffers),		cmocka_unit_test(test_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
