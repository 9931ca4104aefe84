/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of a pool's members, and on which of them a slab is placed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pool/pool.h"

static const uint64_t mib = 1 << 20;

static struct soda_members members;

static void expect_refusal(const char *list, const char *word)
{
	struct soda_why why = { "" };

	assert_int_equal(soda_members_parse(list, &members, &why), -EINVAL);
	assert_non_null(strstr(why.text, word));
}

static void test_lists(void **state)
{
	struct soda_why why = { "" };

	assert_int_equal(soda_members_parse("tcp://a:7001", &members, &why), 0);
	assert_int_equal(members.n, 1);
	assert_int_equal(soda_members_parse("tcp://a:7001,shm:///s,tcp://b:7001", &members, &why),
			 0);
	assert_int_equal(members.n, 3);
	assert_string_equal(members.address[1], "shm:///s");
	assert_string_equal(members.address[2], "tcp://b:7001");
	/* rules of transport/fault have commas of their own */
	assert_int_equal(
		soda_members_parse("fault+tcp://a:1?do=cut&on=call,connect", &members, &why), 0);
	assert_int_equal(members.n, 1);
	assert_int_equal(
		soda_members_parse(
			"fault+tcp://a:1?on=call,read,fault+tcp://b:1?on=read,call,shm:///s",
			&members, &why),
		0);
	assert_int_equal(members.n, 3);
	assert_string_equal(members.address[1], "fault+tcp://b:1?on=read,call");
}

/* A tag is a member's wherever it stands, never 0, and the hash of an address that no other shares.
 */
/* Two addresses with one hash cannot be told apart, in whichever order: the documents' first ones.
 */
static void test_tags_meet(void **state)
{
	static const char *const lists[] = {
		"tcp://10.0.0.1:7001,tcp://10.0.0.2:7001,tcp://10.0.0.60:7001",
		"tcp://10.0.0.60:7001,tcp://10.0.0.2:7001,tcp://10.0.0.1:7001",
	};
	struct soda_why why = { "" };

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		assert_int_equal(soda_members_parse(lists[i], &members, &why), 0);
		assert_int_equal(soda_members_differ(&members, &why), -EINVAL);
		assert_non_null(strstr(why.text, "tcp://10.0.0.1:7001"));
		assert_non_null(strstr(why.text, "tcp://10.0.0.60:7001"));
	}
	assert_int_equal(
		soda_members_parse("tcp://10.0.0.1:7001,tcp://10.0.0.60:7002", &members, &why), 0);
	assert_int_equal(soda_members_differ(&members, &why), 0);
	assert_true(soda_members_hash("tcp://10.0.0.1:7001"));
}

static void test_bad_lists(void **state)
{
	char many[512] = "tcp://0:1", longest[SODA_ADDRESS_MAX + 32] = "tcp://a:1,tcp://";

	for (int i = 1; i <= SODA_MEMBERS_MAX; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), ",tcp://%d:1", i);
	memset(longest + strlen(longest), 'x', SODA_ADDRESS_MAX);
	expect_refusal("tcp://a:1,tcp://b:1,tcp://a:1", "tcp://a:1 twice");
	expect_refusal("tcp://a:1,", "empty place");
	expect_refusal(",tcp://a:1", "empty place");
	expect_refusal("tcp://a:1,,tcp://b:1", "empty place");
	expect_refusal("tcp://a:1,b:1", "'b:1' is no address");
	expect_refusal(many, "more than");
	expect_refusal(longest, "at most");
}

/* The one with more room of two that are drawn, never one that lacks it or has refused. */
static void test_choice(void **state)
{
	struct soda_candidate m[4] = {
		{ 100 * mib, false, 0 },
		{ 300 * mib, false, 1 },
		{ 10 * mib, false, 2 },
		{ 900 * mib, true, 3 },
	};
	uint32_t got[4] = { 0 };

	for (uint64_t i = 0; i < 4096; i++) {
		int k = soda_placement_choose(m, 4, 64 * mib, i * 0x9e3779b97f4a7c15u);

		assert_in_range(k, 0, 3);
		got[k]++;
	}
	assert_int_equal(got[1], 4096); /* two have the room: both are drawn */
	m[2].free_bytes = 200 * mib;
	memset(got, 0, sizeof(got));
	for (uint64_t i = 0; i < 4096; i++)
		got[soda_placement_choose(m, 4, 64 * mib, i * 0x9e3779b97f4a7c15u)]++;
	assert_in_range(got[1], 2400, 3100); /* two of three pairs */
	assert_in_range(got[2], 1000, 1700);
	assert_int_equal(got[0] + got[3], 0);
}

/* What is known may be old: where nobody seems to have the room, the server decides. */
static void test_choice_without_room(void **state)
{
	struct soda_candidate m[3] = { { 1 * mib, false, 0 },
				       { 3 * mib, false, 1 },
				       { 2 * mib, false, 2 } };

	assert_int_equal(soda_placement_choose(m, 3, 64 * mib, 7), 1);
	m[1].refused = true;
	assert_int_equal(soda_placement_choose(m, 3, 64 * mib, 7), 2);
	m[2].refused = true;
	assert_int_equal(soda_placement_choose(m, 3, 64 * mib, 7), 0);
	m[0].refused = true;
	assert_int_equal(soda_placement_choose(m, 3, 64 * mib, 7), -1);
}

/* Placing one slab after the other fills the members evenly. */
static void test_balance(void **state)
{
	struct soda_candidate m[4];
	uint64_t least = UINT64_MAX, most = 0;

	for (int i = 0; i < 4; i++)
		m[i] = (struct soda_candidate){ .free_bytes = 4096 * mib };
	for (uint64_t i = 0; i < 128; i++)
		m[soda_placement_choose(m, 4, 64 * mib, (i + 1) * 0x9e3779b97f4a7c15u)]
			.free_bytes -= 64 * mib;
	for (int i = 0; i < 4; i++) {
		least = m[i].free_bytes < least ? m[i].free_bytes : least;
		most = m[i].free_bytes > most ? m[i].free_bytes : most;
	}
	assert_in_range(most - least, 0, 3 * 64 * mib);
}

/* Whatever is drawn, the second copy lies in another failure domain than the first. */
static void test_domains(void **state)
{
	for (uint64_t i = 1; i <= 4096; i++) {
		struct soda_candidate m[5] = { { 300 * mib, false, 0 },
					       { 300 * mib, false, 0 },
					       { 300 * mib, false, 0 },
					       { 100 * mib, false, 3 },
					       { 100 * mib, i % 2, 4 } };
		uint64_t random = i * 0x9e3779b97f4a7c15u;
		int first = soda_placement_choose(m, 5, 64 * mib, random), second;

		assert_int_equal(soda_placement_domains(m, 5), i % 2 ? 2 : 3);
		soda_placement_exclude(m, 5, m[first].domain);
		second = soda_placement_choose(m, 5, 64 * mib, random * random);
		assert_in_range(second, 0, 4);
		assert_int_not_equal(m[first].domain, m[second].domain);
		soda_placement_exclude(m, 5, m[second].domain);
		assert_int_equal(soda_placement_domains(m, 5), i % 2 ? 0 : 1);
	}
}

static void test_slabs(void **state)
{
	assert_int_equal(soda_placement_slab(900 * mib, 64 * mib, 0, 2 * mib), 64 * mib);
	assert_int_equal(soda_placement_slab(5, 64 * mib, 0, 2 * mib), 5);
	assert_int_equal(soda_placement_slab(900 * mib, 64 * mib, 64 * mib, 2 * mib), 32 * mib);
	assert_int_equal(soda_placement_slab(900 * mib, 64 * mib, 6 * mib, 2 * mib), 4 * mib);
	assert_int_equal(soda_placement_slab(900 * mib, 64 * mib, 4 * mib, 2 * mib), 2 * mib);
	assert_int_equal(soda_placement_slab(900 * mib, 64 * mib, 2 * mib, 2 * mib), 0);
	assert_int_equal(soda_placement_slab(5, 64 * mib, 5, 2 * mib), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),	cmocka_unit_test(test_bad_lists),
		cmocka_unit_test(test_choice),	cmocka_unit_test(test_choice_without_room),
		cmocka_unit_test(test_balance), cmocka_unit_test(test_domains),
		cmocka_unit_test(test_slabs),	cmocka_unit_test(test_tags_meet),
	};

	return cmocka_run_group_tests_name("pool_placement", tests, NULL, NULL);
}
