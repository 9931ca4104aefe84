/* SPDX-License-Identifier: BSD-3-Clause */
/* The page operations on the kernel itself, in the cases that a working program seldom meets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "host_agent/pages/uffd.h"

enum { PAGE = 4096, PAGES = 16, BYTES = PAGES * PAGE };

static struct soda_uffd_info info;
static char source[BYTES];
static char *range; /* registered, nothing in it */

static int opened;

static int open_once(void **state)
{
	struct soda_why why = { "" };

	opened = soda_uffd_open(true, false, false, &info, &why) == 0;
	if (!opened)
		printf("SKIP: %s\n", why.text);
	for (int i = 0; i < BYTES; i++)
		source[i] = (char)(i / PAGE + i % 63 + 1);
	return 0;
}

static int close_once(void **state)
{
	soda_uffd_close();
	return 0;
}

static int make(void **state)
{
	if (!opened)
		return 0;
	range = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(range, MAP_FAILED);
	madvise(range, BYTES, MADV_NOHUGEPAGE);
	assert_int_equal(soda_uffd_register(range, BYTES), 0);
	return 0;
}

static int unmake(void **state)
{
	return opened ? munmap(range, BYTES) : 0;
}

static bool present(int page)
{
	unsigned char yes = 0;

	assert_int_equal(mincore(range + page * PAGE, PAGE, &yes), 0);
	return yes & 1;
}

static void check_all(void)
{
	for (int i = 0; i < PAGES; i++)
		assert_true(present(i));
	assert_memory_equal(range, source, BYTES);
}

/* A range that is several mappings is refused as a whole: it goes in page by page. */
static void test_split(void **state)
{
	if (!opened)
		skip();
	for (int protect = 0; protect < 2; protect++) {
		struct iovec all = { range, BYTES };
		size_t dropped;

		assert_int_equal(mprotect(range + 5 * PAGE, PAGE, PROT_READ), 0);
		assert_int_equal(mprotect(range + 9 * PAGE, 2 * PAGE, PROT_READ), 0);
		assert_int_equal(soda_uffd_page_ops.copy(range, source, BYTES, protect), 0);
		check_all();
		assert_int_equal(soda_uffd_page_ops.protect(range, BYTES, true), 0);
		assert_int_equal(soda_uffd_page_ops.protect(range, BYTES, false), 0);
		assert_int_equal(mprotect(range, BYTES, PROT_READ | PROT_WRITE), 0);
		range[0] ^= 1;
		range[0] ^= 1;
		assert_int_equal(soda_uffd_page_ops.drop(&all, 1, &dropped), 0);
		assert_false(present(0) || present(5) || present(15));
	}
}

/* What is there already stays as it is, and the rest comes. */
static void test_there_already(void **state)
{
	char other[PAGE];

	if (!opened)
		skip();
	memset(other, 99, sizeof(other));
	assert_int_equal(soda_uffd_page_ops.copy(range, other, PAGE, false), 0);
	assert_int_equal(soda_uffd_page_ops.copy(range + 7 * PAGE, other, PAGE, false), 0);
	assert_int_equal(soda_uffd_page_ops.copy(range + 15 * PAGE, other, PAGE, false), 0);
	assert_int_equal(soda_uffd_page_ops.copy(range, source, BYTES, false), 0);
	for (int i = 0; i < PAGES; i++)
		assert_memory_equal(range + i * PAGE,
				    i == 0 || i == 7 || i == 15 ? other : source + i * PAGE, PAGE);
}

/* Both at once, and several ranges at a time out again. */
static void test_batch(void **state)
{
	struct iovec runs[4] = { { NULL, 0 } };
	size_t dropped;

	if (!opened)
		skip();
	assert_int_equal(mprotect(range + 3 * PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(soda_uffd_page_ops.copy(range + 2 * PAGE, source + 2 * PAGE, PAGE, true),
			 0);
	assert_int_equal(soda_uffd_page_ops.copy(range, source, BYTES, true), 0);
	check_all();
	for (int i = 0; i < 4; i++)
		runs[i] = (struct iovec){ range + i * 4 * PAGE, 2 * PAGE };
	assert_int_equal(soda_uffd_page_ops.drop(runs, 4, &dropped), 0);
	for (int i = 0; i < PAGES; i++)
		assert_int_equal(present(i), i % 4 >= 2);
	/* twice is once */
	assert_int_equal(soda_uffd_page_ops.drop(runs, 4, &dropped), 0);
	assert_int_equal(soda_uffd_page_ops.copy(range, source, BYTES, true), 0);
	check_all();
}

/* Out of what is registered: an error, nothing else. */
static void test_elsewhere(void **state)
{
	char *plain = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int saved;

	if (!opened)
		skip();
	assert_ptr_not_equal(plain, MAP_FAILED);
	errno = saved = ERANGE;
	assert_true(soda_uffd_page_ops.copy(plain, source, BYTES, false) < 0);
	assert_true(soda_uffd_page_ops.protect(plain, BYTES, true) < 0);
	assert_int_equal(errno, saved);
	assert_int_equal(plain[0], 0);
	assert_int_equal(munmap(plain, BYTES), 0);
}

/* What the program has locked goes like all else, also where the kernel has no advice for that. */
static void drop_locked(void)
{
	struct iovec all = { range, BYTES }, runs[3] = { { range + 12 * PAGE, PAGE },
							 { range, 4 * PAGE },
							 { range + 4 * PAGE, 8 * PAGE } };
	size_t dropped;

	for (int batch = 0; batch < 2; batch++) {
		assert_int_equal(soda_uffd_page_ops.copy(range, source, BYTES, true), 0);
		assert_int_equal(mlock2(range + 6 * PAGE, 3 * PAGE, MLOCK_ONFAULT), 0);
		assert_int_equal(mlock2(range + 12 * PAGE, PAGE, MLOCK_ONFAULT), 0);
		assert_int_equal(batch ? soda_uffd_page_ops.drop(runs, 3, &dropped)
				       : soda_uffd_page_ops.drop(&all, 1, &dropped),
				 0);
		for (int i = 0; i < 13; i++)
			assert_false(present(i));
	}
}

static void test_locked(void **state)
{
	struct soda_why why;

	if (!opened)
		skip();
	drop_locked();
	unmake(NULL); /* and with what Linux 5.7 has */
	soda_uffd_close();
	assert_int_equal(soda_uffd_open(true, true, false, &info, &why), 0);
	make(NULL);
	drop_locked();
}

/* How far it has come: what is before the range that the kernel refuses, and nothing after it. */
static void test_half_way(void **state)
{
	struct iovec runs[3] = { { range, 4 * PAGE },
				 { range + 8 * PAGE + 1, PAGE }, /* no page begins there */
				 { range + 12 * PAGE, 4 * PAGE } };
	size_t dropped;

	if (!opened)
		skip();
	assert_int_equal(soda_uffd_page_ops.copy(range, source, BYTES, true), 0);
	assert_int_equal(soda_uffd_page_ops.drop(runs, 3, &dropped), -EINVAL);
	assert_int_equal(dropped, 4 * PAGE);
	for (int i = 0; i < PAGES; i++)
		assert_int_equal(present(i), i >= 4);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_split),	 TEST(test_there_already),
					    TEST(test_batch),	 TEST(test_elsewhere),
					    TEST(test_half_way), TEST(test_locked) };

	return cmocka_run_group_tests_name("uffd", tests, open_once, close_once);
}
