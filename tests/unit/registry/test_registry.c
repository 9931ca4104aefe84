/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of registries, what members' keys say, and which members a program gets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "registry/etcd.h"
#include "registry/registry.h"

static void test_names(void **state)
{
	static const char *const bad[] = {
		"tcp://a:1/p",	  "etcd://",
		"etcd:///p",	  "etcd://a:1",
		"etcd://a:1/",	  "etcd://a:1/p/q",
		"etcd://a:1/p q", "etcd://a/p",
		"etcd://a:0/p",	  "etcd://a:65536/p",
		"etcd://a:1x/p",  "etcd://a:1,/p",
		"etcd://,a:1/p",  "etcd://user@a:1/p",
		"etcd://a?b:1/p", "etcd://[::1:1/p",
		"etcd://[]:1/p",  "etcd://a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9/p",
	};
	struct soda_registry_name name;
	char key[SODA_REGISTRY_KEY];
	struct soda_why why;

	assert_int_equal(soda_registry_parse("etcd://h1.example:2379,[fe80::1]:2380/my_pool-1.a",
					     &name, &why),
			 0);
	assert_int_equal(name.n, 2);
	assert_string_equal(name.endpoint[0], "h1.example:2379");
	assert_string_equal(name.endpoint[1], "[fe80::1]:2380");
	assert_string_equal(name.pool, "my_pool-1.a");
	soda_registry_key(&name, 0xabc, key);
	assert_string_equal(key, "/soda/pools/my_pool-1.a/0000000000000abc");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why.text[0] = '\0';
		assert_int_equal(soda_registry_parse(bad[i], &name, &why), -EINVAL);
		assert_non_null(strstr(why.text, bad[i]));
	}
}

static void test_base64(void **state)
{
	/* RFC 4648, section 10 */
	static const char *const pairs[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
	};
	static const char *const bad[] = { "Zg=", "Zg", "=g==", "Z===", "Zm=v", "Zm9v\n", "Zm 9" };
	unsigned char all[256];
	size_t bytes;
	char *text, *data;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		text = soda_base64_encode(pairs[i][0], strlen(pairs[i][0]));
		assert_string_equal(text, pairs[i][1]);
		data = soda_base64_decode(text, &bytes);
		assert_int_equal(bytes, strlen(pairs[i][0]));
		assert_string_equal(data, pairs[i][0]);
		free(text);
		free(data);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_null(soda_base64_decode(bad[i], &bytes));
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (unsigned char)(255 - i);
	text = soda_base64_encode(all, sizeof(all));
	data = soda_base64_decode(text, &bytes);
	assert_int_equal(bytes, sizeof(all));
	assert_memory_equal(data, all, sizeof(all));
	free(text);
	free(data);
}

static struct soda_registry_member member_of(const char *address, const char *domain,
					     uint64_t free_bytes)
{
	struct soda_registry_member m = { .instance = 0xfedcba9876543210,
					  .capacity = 1ull << 40,
					  .free_bytes = free_bytes };

	strcpy(m.address, address);
	strcpy(m.domain, domain);
	return m;
}

static void test_records(void **state)
{
	struct soda_registry_member m = member_of("tcp://10.0.0.1:7001", "rack1", 77), back;
	char *text;

	m.state = SODA_REGISTRY_DRAINING;
	text = soda_registry_encode(&m);
	assert_non_null(text);
	assert_int_equal(soda_registry_decode(text, strlen(text), &back), 0);
	assert_string_equal(back.address, m.address);
	assert_string_equal(back.domain, m.domain);
	assert_int_equal(back.instance, m.instance);
	assert_int_equal(back.capacity, m.capacity);
	assert_int_equal(back.free_bytes, 77);
	assert_int_equal(back.state, SODA_REGISTRY_DRAINING);
	assert_int_equal(soda_registry_decode(text, strlen(text) - 1, &back), -EINVAL);
	free(text);
}

#define RECORD(ADDRESS, INSTANCE, FREE, STATE)                                                     \
	"{\"format\":\"soda-member\",\"version\":1,\"address\":" ADDRESS ",\"instance\":" INSTANCE \
	",\"capacity_bytes\":1,\"free_bytes\":" FREE ",\"domain\":\"\",\"state\":" STATE "}"
#define GOOD "\"0000000000000001\""

/* What anybody may have put there. */
static void test_foreign_records(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"7",
		"{}",
		"{\"format\":\"soda-member\",\"version\":2}",
		RECORD("\"tcp://a:1,tcp://b:2\"", GOOD, "1", "\"up\""),
		RECORD("\"a:1\"", GOOD, "1", "\"up\""),
		RECORD("\"tcp://a:1\\nx\"", GOOD, "1", "\"up\""),
		RECORD("\"tcp://\\u00e4:1\"", GOOD, "1", "\"up\""),
		RECORD("1", GOOD, "1", "\"up\""),
		RECORD("\"tcp://a:1\"", "\"1\"", "1", "\"up\""),
		RECORD("\"tcp://a:1\"", GOOD, "-1", "\"up\""),
		RECORD("\"tcp://a:1\"", GOOD, "1.5", "\"up\""),
		RECORD("\"tcp://a:1\"", GOOD, "1", "\"away\""),
	};
	static const char good[] = RECORD("\"tcp://a:1\"", GOOD, "1", "\"up\"");
	struct soda_registry_member m;
	char long_one[1024];

	assert_int_equal(soda_registry_decode(good, strlen(good), &m), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(soda_registry_decode(bad[i], strlen(bad[i]), &m), -EINVAL);
	snprintf(long_one, sizeof(long_one), RECORD("\"tcp://%0600d:1\"", GOOD, "1", "\"up\""), 0);
	assert_int_equal(soda_registry_decode(long_one, strlen(long_one), &m), -EINVAL);
}

static void test_choice(void **state)
{
	struct soda_registry_member many[40];
	struct soda_members taken;
	char text[32];

	many[0] = member_of("tcp://a:1", "", 5);
	many[1] = member_of("tcp://b:1", "", 9);
	soda_registry_choose(many, 2, NULL, &taken);
	assert_int_equal(taken.n, 2);
	assert_string_equal(taken.address[0], "tcp://b:1");
	/* a rack with much free memory is not all that there is */
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(text, sizeof(text), "tcp://h%u:1", i);
		many[i] = member_of(text,
				    i < 38    ? "r1"
				    : i == 38 ? "r2"
					      : "",
				    i < 38 ? 100 + i : 1);
	}
	soda_registry_choose(many, 40, NULL, &taken);
	assert_int_equal(taken.n, SODA_MEMBERS_MAX);
	assert_string_equal(taken.address[0], "tcp://h37:1");
	assert_true(!strcmp(taken.address[1], "tcp://h38:1") ||
		    !strcmp(taken.address[2], "tcp://h38:1"));
	assert_true(!strcmp(taken.address[1], "tcp://h39:1") ||
		    !strcmp(taken.address[2], "tcp://h39:1"));
	assert_string_equal(taken.address[3], "tcp://h36:1");
	assert_string_equal(taken.address[15], "tcp://h24:1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	cmocka_unit_test(test_base64),
		cmocka_unit_test(test_records), cmocka_unit_test(test_foreign_records),
		cmocka_unit_test(test_choice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
