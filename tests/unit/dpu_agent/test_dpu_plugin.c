/* SPDX-License-Identifier: BSD-3-Clause */
/* Policies by name: which files are loaded, which are refused, and the example at work. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpu_agent/cache/policy/plugin.h"
#include "unit/fakes/dpu_sim.h"

static char examples[512], units[512], own[64];
static struct soda_plugin plugin;
static struct soda_why why;

static int set_up(void **state)
{
	snprintf(examples, sizeof(examples), "%s/examples/policy", getenv("SODA_BUILD_DIR"));
	snprintf(units, sizeof(units), "%s/tests/unit/fakes", getenv("SODA_BUILD_DIR"));
	snprintf(own, sizeof(own), "/tmp/soda-policy-XXXXXX");
	return mkdtemp(own) ? 0 : -1;
}

static int tear_down(void **state)
{
	return rmdir(own);
}

static void refused(const char *dir, const char *name, int err, const char *says)
{
	why.text[0] = '\0';
	assert_int_equal(soda_plugin_open(dir, name, &plugin, &why), err);
	if (!strstr(why.text, says))
		fail_msg("\"%s\" should say \"%s\"", why.text, says);
}

static void builtin_ones_need_no_directory(void **state)
{
	assert_int_equal(soda_plugin_open(NULL, "random", &plugin, &why), 0);
	assert_ptr_equal(plugin.policy, &soda_cache_policy_random);
	soda_plugin_close(&plugin);
	assert_int_equal(soda_plugin_open("/nowhere", "stream", &plugin, &why), 0);
	assert_ptr_equal(plugin.policy, &soda_cache_policy_stream);
	soda_plugin_close(&plugin);
	refused(NULL, "lru", -ENOENT, "--policy-dir");
}

static void a_name_is_no_path(void **state)
{
	char longest[SODA_PLUGIN_NAME_MAX + 2];

	refused(examples, "", -EINVAL, "no name");
	refused(examples, "../policy/lru", -EINVAL, "no name");
	refused(examples, "/lru", -EINVAL, "no name");
	refused(examples, "lru.so", -EINVAL, "no name");
	refused(examples, "LRU", -EINVAL, "no name");
	refused(examples, "lru\n", -EINVAL, "no name");
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	refused(examples, longest, -EINVAL, "no name");
	longest[SODA_PLUGIN_NAME_MAX] = '\0';
	refused(examples, longest, -ENOENT, "No such file");
}

static void copy_to(const char *from, const char *name, mode_t mode)
{
	char command[1400], path[128];

	snprintf(command, sizeof(command), "cp %s %s/%s.so", from, own, name);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/%s.so", own, name);
	assert_int_equal(chmod(path, mode), 0);
}

static void remove_copy(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s.so", own, name);
	assert_int_equal(unlink(path), 0);
}

static void objects_that_are_no_policy(void **state)
{
	char lru[600], path[128];

	refused(units, "odd", -EINVAL, "another version");
	snprintf(lru, sizeof(lru), "%s/lru.so", examples);
	copy_to(lru, "mru", 0755);
	refused(own, "mru", -EINVAL, "another name");
	remove_copy("mru");
	copy_to("/etc/passwd", "text", 0644);
	refused(own, "text", -ELIBACC, "text.so");
	remove_copy("text");
	copy_to(lru, "lru", 0775);
	refused(own, "lru", -EACCES, "writable");
	remove_copy("lru");
	copy_to(lru, "lru", 0757);
	refused(own, "lru", -EACCES, "writable");
	remove_copy("lru");
	snprintf(path, sizeof(path), "%s/dir.so", own);
	assert_int_equal(mkdir(path, 0755), 0);
	refused(own, "dir", -EACCES, "regular file");
	assert_int_equal(rmdir(path), 0);
}

/* The example on a scan: it fetches ahead, evicts, and says nothing that is refused. */
static void the_example_at_work(void **state)
{
	struct sim_config cfg = { .cache_bytes = 16 << 20,
				  .entry_bytes = 64 << 10,
				  .fill_takes = 4,
				  .workers = 2,
				  .always = true,
				  .ratio = 0.1 };
	struct sim_trace t = { 0 };
	struct sim_result r;

	assert_int_equal(soda_plugin_open(examples, "lru", &plugin, &why), 0);
	assert_string_equal(plugin.policy->name, "lru");
	cfg.policy = plugin.policy;
	for (uint32_t page = 0; page < 16384; page++)
		trace_add(&t, 0, page, 1, page % 5 == 4);
	r = sim_run(&cfg, &t);
	assert_true(sim_hit_rate(&r) > 0.9);
	assert_true(r.stats.cache.evictions > 500);
	assert_int_equal(r.stats.nonsense, 0);
	assert_string_equal(r.stats.policy, "lru");
	trace_free(&t);
	soda_plugin_close(&plugin);
}

/* What was used last stays. */
static void the_example_evicts_the_least_recently_used(void **state)
{
	struct sim_config cfg = { .cache_bytes = 64 << 16,
				  .entry_bytes = 64 << 10,
				  .workers = 8,
				  .always = true,
				  .ratio = 0.1 };
	struct sim_trace t = { 0 };
	struct sim_result r;

	assert_int_equal(soda_plugin_open(examples, "lru", &plugin, &why), 0);
	cfg.policy = plugin.policy;
	/* One entry is used between any two of a long scan. */
	for (uint32_t i = 0; i < 4096; i++) {
		trace_add(&t, 0, 16 + i * 16, 1, false);
		trace_add(&t, 1, i % 16, 1, false);
	}
	r = sim_run(&cfg, &t);
	assert_true(r.hits >= 8192 - 4);
	trace_free(&t);
	soda_plugin_close(&plugin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(builtin_ones_need_no_directory),
		cmocka_unit_test(a_name_is_no_path),
		cmocka_unit_test(objects_that_are_no_policy),
		cmocka_unit_test(the_example_at_work),
		cmocka_unit_test(the_example_evicts_the_least_recently_used),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
