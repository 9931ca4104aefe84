/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory and CPU groups of both versions, in folders that stand in for the kernel's: a file that
 * the kernel would make is there before, and what is written to it is looked at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "soda/stage/cgroup.h"

enum { OWNER = 4711, DEAD = 0x7ffffff0 };

static char dir[64];

static const char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void folder(const char *name)
{
	assert_int_equal(mkdir(path_of(name), 0755), 0);
}

static void put(const char *name, const char *text)
{
	FILE *out = fopen(path_of(name), "w");

	assert_non_null(out);
	assert_true(fputs(text, out) >= 0);
	assert_int_equal(fclose(out), 0);
}

static void holds(const char *name, const char *text)
{
	char found[128] = "";
	FILE *in = fopen(path_of(name), "r");

	assert_non_null(in);
	if (!fgets(found, sizeof(found), in))
		found[0] = 0;
	fclose(in);
	assert_string_equal(found, text);
}

/* One hierarchy, as /proc/self/mounts has it; and our own group in it. */
static void mounted(const char *type, const char *options, const char *own)
{
	char line[256];

	snprintf(line, sizeof(line), "none %s/m %s rw,%s 0 0\n", dir, type, options);
	put("mounts", line);
	put("cgroup", own);
	folder("m");
}

static void is_at(const struct soda_cgroup *group, int version, const char *name)
{
	assert_int_equal(group->version, version);
	assert_string_equal(group->dir, path_of(name));
}

/* What systemd-run --user --scope leaves us: our own group has processes, and no subtree. */
static void test_v2_beside_our_own_group(void **state)
{
	struct soda_cgroup group;

	mounted("cgroup2", "nsdelegate", "0::/app/scope\n");
	put("m/cgroup.controllers", "cpuset cpu io memory pids\n");
	folder("m/app");
	folder("m/app/scope");
	put("m/app/cgroup.subtree_control", "memory pids\n");
	folder("m/app/soda-memory-4711");
	put("m/app/soda-memory-4711/memory.max", "");
	put("m/app/soda-memory-4711/memory.swap.max", "");
	put("m/app/soda-memory-4711/cgroup.procs", "");
	put("m/app/soda-memory-4711/memory.events",
	    "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n");
	assert_int_equal(soda_cgroup_open_memory(1 << 20, false, OWNER, &group), 0);
	is_at(&group, 2, "m/app/soda-memory-4711");
	holds("m/app/soda-memory-4711/memory.max", "1048576");
	holds("m/app/soda-memory-4711/memory.swap.max", "0");
	holds("m/app/cgroup.subtree_control", "memory pids\n");
	assert_int_equal(soda_cgroup_enter(&group), 0);
	holds("m/app/soda-memory-4711/cgroup.procs", "0");
	assert_int_equal(soda_cgroup_oom_kills(&group), 2);
}

/* Root's: the top hands a controller on only once it is told to. */
static void test_v2_at_the_top(void **state)
{
	struct soda_cgroup group;

	mounted("cgroup2", "nsdelegate", "0::/\n");
	put("m/cgroup.controllers", "cpu memory\n");
	put("m/cgroup.subtree_control", "");
	folder("m/soda-memory-4711");
	put("m/soda-memory-4711/memory.max", "");
	put("m/soda-memory-4711/memory.swap.max", "max");
	put("m/soda-memory-4711/cgroup.procs", "");
	assert_int_equal(soda_cgroup_open_memory(4096, true, OWNER, &group), 0);
	holds("m/cgroup.subtree_control", "+memory");
	holds("m/soda-memory-4711/memory.swap.max", "max");
	put("m/cgroup.subtree_control", "");
	folder("m/soda-bench-4711");
	put("m/soda-bench-4711/cpu.max", "");
	put("m/soda-bench-4711/cgroup.procs", "");
	assert_int_equal(soda_cgroup_open_cpu(150, OWNER, &group), 0);
	is_at(&group, 2, "m/soda-bench-4711");
	holds("m/cgroup.subtree_control", "+cpu");
	holds("m/soda-bench-4711/cpu.max", "15000 10000");
}

static void test_v1_below_our_own_group(void **state)
{
	struct soda_cgroup group;

	mounted("cgroup", "memory", "7:pids:/\n4:memory:/mine\n0::/\n");
	folder("m/mine");
	folder("m/mine/soda-memory-4711");
	put("m/mine/soda-memory-4711/memory.limit_in_bytes", "");
	put("m/mine/soda-memory-4711/memory.memsw.limit_in_bytes", "");
	put("m/mine/soda-memory-4711/cgroup.procs", "");
	put("m/mine/soda-memory-4711/memory.oom_control",
	    "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
	assert_int_equal(soda_cgroup_open_memory(8192, false, OWNER, &group), 0);
	is_at(&group, 1, "m/mine/soda-memory-4711");
	holds("m/mine/soda-memory-4711/memory.limit_in_bytes", "8192");
	holds("m/mine/soda-memory-4711/memory.memsw.limit_in_bytes", "8192");
	assert_int_equal(soda_cgroup_oom_kills(&group), 1);
}

/* A hierarchy of version 2 beside one of version 1 that has all controllers. */
static void test_no_controller(void **state)
{
	struct soda_cgroup group;

	mounted("cgroup2", "nsdelegate", "0::/\n");
	put("m/cgroup.controllers", "hugetlb\n");
	assert_int_equal(soda_cgroup_open_memory(4096, false, OWNER, &group), -ENOENT);
	assert_int_equal(soda_cgroup_open_cpu(50, OWNER, &group), -ENOENT);
}

static void test_sweeps_what_the_dead_have_left(void **state)
{
	char left[64], ours[64];

	mounted("cgroup2", "nsdelegate", "0::/\n");
	put("m/cgroup.controllers", "cpu memory\n");
	snprintf(left, sizeof(left), "m/soda-memory-%d", DEAD);
	snprintf(ours, sizeof(ours), "m/soda-memory-%ld", (long)getpid());
	folder(left);
	folder(ours);
	soda_cgroup_sweep();
	assert_int_equal(access(path_of(left), F_OK), -1);
	assert_int_equal(access(path_of(ours), F_OK), 0);
	soda_cgroup_remove(getpid());
	assert_int_equal(access(path_of(ours), F_OK), -1);
}

static int start(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/soda-test-cgroup-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	soda_cgroup_look_in(dir);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static int end(void **state)
{
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_v2_beside_our_own_group),	   TEST(test_v2_at_the_top),
		TEST(test_v1_below_our_own_group),	   TEST(test_no_controller),
		TEST(test_sweeps_what_the_dead_have_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
