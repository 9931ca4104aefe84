/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that closes or replaces the library's descriptors: never zeros for it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 256, SHELLS = 256 };

static struct world world;

static uint64_t *filled(void)
{
	return patterned_object(world.address, "2M", 2, CHUNKS * CHUNK);
}

static void check_all(const uint64_t *fam)
{
	check_pattern(fam, CHUNKS * CHUNK, 0);
}

/* The library's descriptor that the kernel calls so; -1: there is none. */
static int find(const char *what)
{
	for (int fd = 0; fd < 65536; fd++) {
		char path[64], to[64];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && (to[n] = 0, strstr(to, what)))
			return fd;
	}
	return -1;
}

/* Numbers that programs choose are none of the library's. */
static void child_low_numbers(const void *arg)
{
	int null = open("/dev/null", O_RDWR);
	bool before[SHELLS];
	uint64_t *fam;

	for (int fd = 3; fd < SHELLS; fd++)
		before[fd] = fcntl(fd, F_GETFD) != -1;
	fam = filled();
	for (int fd = 3; fd < SHELLS; fd++)
		CHECK(before[fd] || fcntl(fd, F_GETFD) == -1, "descriptor %d is open", fd);
	for (int fd = 3; fd < SHELLS; fd++)
		CHECK(fd == null || dup2(null, fd) == fd);
	check_all(fam);
	for (int fd = 3; fd < SHELLS; fd++)
		close(fd);
	check_all(fam);
	soda_free(fam);
}

/* May: descriptors | fills all numbers below a thousand, and closes them | served */
static void test_low_numbers(void **state)
{
	expect_passes(child_low_numbers, NULL);
}

/* With few descriptors at all. */
static void child_few(const void *arg)
{
	struct rlimit few = { 64, 64 };
	uint64_t *fam;

	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	fam = filled();
	check_all(fam);
	CHECK(find("userfaultfd") > 15);
	soda_free(fam);
}

/* May: descriptors | may have 64 of them | served */
static void test_few(void **state)
{
	expect_passes(child_few, NULL);
}

/* Touch all until it ends. */
static void go_on(uint64_t *fam)
{
	for (double end = now_seconds() + 60; now_seconds() < end;) {
		check_all(fam);
		for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 64)
			fam[i] = mix(i, 0);
	}
}

static void child_closes_all(const void *arg)
{
	uint64_t *fam = filled();

	if (syscall(SYS_close_range, 3u, ~0u, 0))
		for (int fd = 3; fd < 65536; fd++)
			close(fd);
	go_on(fam);
}

static void child_closes_one(const void *arg)
{
	uint64_t *fam = filled();

	CHECK_EQ(close(find(arg)), 0);
	go_on(fam);
}

static void child_replaces(const void *arg)
{
	uint64_t *fam = filled();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	CHECK(dup2(null, find(arg)) >= 0);
	go_on(fam);
}

static void expect_end(void (*child)(const void *arg), const char *what)
{
	struct trial t = { .child = child, .arg = what };
	struct outcome out;

	trial_run(&t, &out);
	expect_signal(&out, SIGABRT);
	expect_one_line(&out, "was closed or replaced by the program", "rather than read zeros",
			NULL);
}

/*
 * May: descriptors | closes or replaces one of the runtime's past the wrappers | ended by
 * SIGABRT, which says "was closed or replaced by the program"
 */
static void test_closed(void **state)
{
	expect_end(child_closes_one, "userfaultfd");
	expect_end(child_replaces, "userfaultfd");
}

/*
 * Sockets, too: what is said there may go to a file of the program's.
 *
 * May: descriptors | closes all of them | ended by SIGABRT, which says "was closed or
 * replaced by the program"
 */
static void test_all_closed(void **state)
{
	struct trial t = { .child = child_closes_all };
	struct outcome out;

	trial_run(&t, &out);
	expect_signal(&out, SIGABRT);
	expect_says(&out, "was closed or replaced by the program");
}

static void test_keepers(void **state)
{
	expect_end(child_closes_one, "eventfd");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_low_numbers), cmocka_unit_test(test_few),
		cmocka_unit_test(test_closed),	    cmocka_unit_test(test_all_closed),
		cmocka_unit_test(test_keepers),
	};

	return WORLD_RUN("descriptors", &world, false, tests);
}
