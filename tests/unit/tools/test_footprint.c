/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of processes: of this one, which makes some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soda/stage/footprint.h"

#define SIZE (8u << 20)
#define NOBODY 0x7ffffff0 /* no process has this number */

static char *map_some(int flags, int fd)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_true(p != MAP_FAILED);
	memset(p, 1, SIZE);
	return p;
}

/* Anonymous pages and pages of a file count where they belong. */
static void test_proportional_sets(void **state)
{
	struct soda_footprint before, anon, both;
	int err = soda_footprint_read(getpid(), &before), fd;
	char *own, *shared;

	if (err == -ENODATA || err == -ENOENT) {
		print_message("SKIP: the kernel does not split smaps_rollup (Linux 5.4)\n");
		skip();
	}
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: what a sanitizer keeps beside each page counts as this program's\n");
	skip();
#endif
	assert_int_equal(err, 0);
	own = map_some(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	assert_int_equal(soda_footprint_read(getpid(), &anon), 0);
	assert_in_range(anon.anon_bytes - before.anon_bytes, SIZE, SIZE + SIZE / 8);
	assert_true(anon.shmem_bytes < before.shmem_bytes + SIZE / 8);
	fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	shared = map_some(MAP_SHARED, fd);
	assert_int_equal(soda_footprint_read(getpid(), &both), 0);
	assert_in_range(both.shmem_bytes - anon.shmem_bytes, SIZE, SIZE + SIZE / 8);
	assert_true(both.anon_bytes < anon.anon_bytes + SIZE / 8);
	munmap(own, SIZE);
	munmap(shared, SIZE);
	close(fd);
	assert_true(soda_footprint_read(NOBODY, &both) < 0);
}

/* What is allocated counts, not what a file might have; others' names do not. */
static void test_memfds(void **state)
{
	int fds[] = { memfd_create("soda-some", MFD_CLOEXEC),
		      memfd_create("soda-some-more", MFD_CLOEXEC),
		      memfd_create("other-soda-some", MFD_CLOEXEC) };
	static char page[65536];
	uint64_t bytes = 1;

	for (size_t i = 0; i < 3; i++)
		assert_int_equal(ftruncate(fds[i], SIZE), 0);
	assert_int_equal(soda_footprint_memfds(getpid(), "soda-some", &bytes), 0);
	assert_int_equal(bytes, 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pwrite(fds[i], page, sizeof(page), 65536), sizeof(page));
	assert_int_equal(soda_footprint_memfds(getpid(), "soda-some", &bytes), 0);
	assert_int_equal(bytes, 2 * sizeof(page));
	assert_int_equal(soda_footprint_memfds(getpid(), "soda-some-more", &bytes), 0);
	assert_int_equal(bytes, sizeof(page));
	assert_int_equal(soda_footprint_memfds(getpid(), "soda-none", &bytes), 0);
	assert_int_equal(bytes, 0);
	for (size_t i = 0; i < 3; i++)
		close(fds[i]);
	assert_int_equal(soda_footprint_memfds(NOBODY, "soda-some", &bytes), -ENOENT);
}

/* What others share is left out by its name, and nothing else. */
static void test_beside(void **state)
{
	struct soda_footprint before, after;
	int fds[] = { memfd_create("soda-some", MFD_CLOEXEC), memfd_create("other", MFD_CLOEXEC) };
	char *maps[2], *own;

	assert_int_equal(soda_footprint_beside(getpid(), "soda-some", &before), 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(ftruncate(fds[i], SIZE), 0);
		maps[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			       fds[i], 0);
		assert_ptr_not_equal(maps[i], MAP_FAILED);
	}
	/* populated, not stored to: a sanitizer has memory of its own for each store */
	own = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		   -1, 0);
	assert_ptr_not_equal(own, MAP_FAILED);
	assert_int_equal(soda_footprint_beside(getpid(), "soda-some", &after), 0);
	assert_in_range(after.shmem_bytes - before.shmem_bytes, SIZE, SIZE + SIZE / 8);
	assert_in_range(after.anon_bytes - before.anon_bytes, SIZE, SIZE + SIZE / 8);
	munmap(own, SIZE);
	for (size_t i = 0; i < 2; i++) {
		munmap(maps[i], SIZE);
		close(fds[i]);
	}
	assert_true(soda_footprint_beside(NOBODY, "soda-some", &after) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proportional_sets),
		cmocka_unit_test(test_memfds),
		cmocka_unit_test(test_beside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
