/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that this machine can give, where a memory cgroup of version 2 says less than the
 * machine. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/host_memory.h"

#define ROOT "/sys/fs/cgroup"
#define MIB (1ull << 20)
#define USED (3 * MIB)
#define CACHE (1 * MIB)

static const struct soda_nodes anywhere = { .n = 0 };

static void put(const char *name, const char *text)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), ROOT "/%s", name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* bytes 0: "max". */
static void limit(const char *name, uint64_t bytes)
{
	char text[32] = "max\n";

	if (bytes)
		snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);
	put(name, text);
}

static void limits(uint64_t max, uint64_t high)
{
	limit("memory.max", max);
	limit("memory.high", high);
}

/* Less than any machine that runs this has: what the least of both limits leaves. */
static void check_available(void **state)
{
	limits(64 * MIB, 0);
	assert_int_equal(soda_host_memory_available(&anywhere), 64 * MIB - USED + CACHE);
	limits(0, 64 * MIB);
	assert_int_equal(soda_host_memory_available(&anywhere), 64 * MIB - USED + CACHE);
	limits(64 * MIB, 32 * MIB);
	assert_int_equal(soda_host_memory_available(&anywhere), 32 * MIB - USED + CACHE);
	limits(32 * MIB, 64 * MIB);
	assert_int_equal(soda_host_memory_available(&anywhere), 32 * MIB - USED + CACHE);
	limits(0, MIB);
	assert_int_equal(soda_host_memory_available(&anywhere), 0);
	limits(0, 0);
	assert_true(soda_host_memory_available(&anywhere) > 64 * MIB);
}

/* At memory.high the kernel ends nobody: it is no limit in that sense. */
static void check_limit(void **state)
{
	limits(64 * MIB, 32 * MIB);
	assert_int_equal(soda_host_memory_limit(), 64 * MIB);
	limits(0, 32 * MIB);
	assert_true(soda_host_memory_limit() > 1ull << 60);
}

/* This process's group is one of version 2, if only that of all processes. */
static bool has_version_2(void)
{
	char line[512];
	bool found = false;
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = !strncmp(line, "0::", 3);
	if (f)
		fclose(f);
	return found;
}

/* Files of our own where the kernel has those of cgroups, seen by this process alone. */
static bool hide_cgroups(void)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", ROOT, "tmpfs", 0, NULL) == 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_available),
		cmocka_unit_test(check_limit),
	};

	if (!has_version_2() || !hide_cgroups()) {
		printf("SKIP: no cgroup of version 2, or no mount namespace: %s\n",
		       strerror(errno));
		return 77;
	}
	limit("memory.current", USED);
	put("memory.stat", "anon 5\nactive_file 524288\ninactive_file 524288\n");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
