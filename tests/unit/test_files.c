/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's files below the protocol: old kernels, failing disks, loads at the same time. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem_server/beneath.h"
#include "mem_server/counters.h"
#include "mem_server/file_io.h"
#include "mem_server/files.h"
#include "soda.h"

#define MIB (1ull << 20)
#define BIG_BYTES (40 * MIB + 12345) /* more pieces than the queue is deep */

static char dir[] = "/tmp/soda-test-XXXXXX";
static int dir_fd;
static struct soda_store store;
static struct soda_files files;
static struct soda_account account;
static struct soda_why why;
static uint8_t *big;

static void write_file(const char *name, const void *bytes, size_t n)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

static int start(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_DIRECTORY);
	soda_store_init(&store, 256 * MIB);
	big = malloc(BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		big[i] = (uint8_t)(i ^ i >> 12);
	write_file("big", big, BIG_BYTES);
	write_file("file", "text", 4);
	mkdirat(dir_fd, "sub", 0755);
	write_file("sub/file", "text", 4);
	if (symlinkat("file", dir_fd, "link") || symlinkat("sub", dir_fd, "sublink"))
		return -1;
	return soda_files_init(&files, &store, dir);
}

static int stop(void **state)
{
	char command[64];

	free(big);
	close(files.dir);
	close(dir_fd);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static int open_file(const char *name, uint64_t bytes, unsigned flags, struct soda_file **file_p)
{
	const struct soda_file_request req = {
		.name = name, .bytes = bytes, .flags = flags, .account = &account
	};

	return soda_files_open(&files, &req, file_p, &why);
}

static void expect_opens(const char *name, bool opens)
{
	int fd = soda_beneath_open(dir_fd, name, O_RDONLY, &why);

	assert_int_equal(fd >= 0, opens);
	if (fd >= 0)
		close(fd);
}

/* Before Linux 5.6: no symbolic links at all, the rest as ever. */
static void check_walk(void **state)
{
	soda_beneath_walk_only = true;
	expect_opens("file", true);
	expect_opens("sub/file", true);
	expect_opens(".//sub/./file", true);
	expect_opens("link", false);
	expect_opens("sublink/file", false);
	expect_opens("sub", false);
	expect_opens("file/file", false);
	expect_opens("nothing", false);
	soda_beneath_walk_only = false;
	expect_opens("link", true);
	expect_opens("sublink/file", true);
}

static void check_create_by_walking(void **state)
{
	struct soda_file *file;

	for (int walk = 0; walk < 2; walk++) {
		soda_beneath_walk_only = walk;
		assert_int_equal(open_file("sub/new", 10, SODA_WRITABLE | SODA_CREATE, &file), 0);
		soda_files_close(&files, file, &account);
		assert_int_equal(unlinkat(dir_fd, "sub/new", 0), 0);
		assert_int_equal(
			open_file("sub/new", 1ull << 60, SODA_WRITABLE | SODA_CREATE, &file),
			-ENOSPC);
		assert_int_equal(unlinkat(dir_fd, "sub/new", 0), -1);
	}
	soda_beneath_walk_only = false;
}

static void check_big_load(void **state)
{
	struct soda_file *file;

	for (int plain = 0; plain < 2; plain++) {
		soda_file_io_plain_only = plain;
		assert_int_equal(open_file("big", 0, SODA_READ_ONLY, &file), 0);
		assert_int_equal(file->bytes, BIG_BYTES);
		assert_memory_equal(file->memory.map, big, BIG_BYTES);
		soda_files_close(&files, file, &account);
	}
	soda_file_io_plain_only = false;
	assert_int_equal(soda_store_free_bytes(&store), 256 * MIB);
	assert_int_equal(account.used, 0);
}

/* A part of a file, and two parts are two copies. */
static void check_prefix(void **state)
{
	struct soda_file *a, *b, *c;

	assert_int_equal(open_file("big", 5000, SODA_READ_ONLY, &a), 0);
	assert_int_equal(open_file("big", 5000, SODA_READ_ONLY, &b), 0);
	assert_int_equal(open_file("big", 5001, SODA_READ_ONLY, &c), 0);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_memory_equal(a->memory.map, big, 5000);
	assert_int_equal(a->memory.map[5000], 0);
	assert_int_equal(account.used, 6 * MIB);
	soda_files_close(&files, a, &account);
	soda_files_close(&files, b, &account);
	soda_files_close(&files, c, &account);
}

static void *load(void *arg)
{
	struct soda_file **file_p = arg;

	if (open_file("big", 0, SODA_READ_ONLY, file_p))
		*file_p = NULL;
	return NULL;
}

/* Many at once: one loads, the others wait for it. */
static void check_joined_loads(void **state)
{
	enum { LOADERS = 8 };
	struct soda_file *got[LOADERS];
	uint64_t before = soda_count_get(SODA_COUNT_files_loaded);
	pthread_t threads[LOADERS];

	for (int i = 0; i < LOADERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, load, &got[i]), 0);
	for (int i = 0; i < LOADERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(soda_count_get(SODA_COUNT_files_loaded), before + 1);
	for (int i = 0; i < LOADERS; i++) {
		assert_ptr_equal(got[i], got[0]);
		soda_files_close(&files, got[i], &account);
	}
	assert_int_equal(soda_store_free_bytes(&store), 256 * MIB);
}

static void check_ids(void **state)
{
	struct soda_file a = { .version = { .dev = 1, .ino = 2, .size = 3 } }, b = a;

	assert_int_equal(soda_file_id(&a), soda_file_id(&b));
	b.version.mtime.tv_nsec = 1;
	assert_int_not_equal(soda_file_id(&a), soda_file_id(&b));
	b = a;
	b.version.size = 4;
	assert_int_not_equal(soda_file_id(&a), soda_file_id(&b));
}

/* What could not be written is dirty still, and goes with the next sync. */
static void check_failing_sync(void **state)
{
	struct soda_file *file;
	uint8_t got[4];
	int good, bad, fd;

	for (int plain = 0; plain < 2; plain++) {
		soda_file_io_plain_only = plain;
		assert_int_equal(open_file("sub/full", 200000, SODA_WRITABLE | SODA_CREATE, &file),
				 0);
		memcpy(file->memory.map + 131072, "data", 4);
		file->memory.dirty[2] = 1;
		good = file->fd;
		bad = open("/dev/full", O_RDWR);
		file->fd = bad;
		assert_int_equal(soda_file_sync(file, &why), -ENOSPC);
		assert_non_null(strstr(why.text, "No space left"));
		assert_int_equal(file->memory.dirty[2], 1);
		assert_int_equal(file->memory.dirty[1], 0);
		close(bad);
		file->fd = good;
		assert_int_equal(soda_file_sync(file, &why), 0);
		assert_int_equal(file->memory.dirty[2], 0);
		fd = openat(dir_fd, "sub/full", O_RDONLY);
		assert_int_equal(pread(fd, got, 4, 131072), 4);
		assert_memory_equal(got, "data", 4);
		close(fd);
		soda_files_close(&files, file, &account);
		unlinkat(dir_fd, "sub/full", 0);
	}
	soda_file_io_plain_only = false;
}

/* Every unit dirty: more writes than the queue is deep, and not a byte behind the end. */
static void check_big_sync(void **state)
{
	struct soda_file *file;
	struct stat st;

	assert_int_equal(open_file("big", 0, SODA_WRITABLE, &file), 0);
	for (size_t i = 0; i < BIG_BYTES; i++)
		file->memory.map[i] = big[i] ^= 0xff;
	memset(file->memory.dirty, 1, (BIG_BYTES + SODA_DIRTY_UNIT - 1) / SODA_DIRTY_UNIT);
	memset(file->memory.map + BIG_BYTES, 0xee, 100);
	assert_int_equal(soda_file_sync(file, &why), 0);
	soda_files_close(&files, file, &account);
	assert_int_equal(fstatat(dir_fd, "big", &st, 0), 0);
	assert_int_equal(st.st_size, BIG_BYTES);
	check_big_load(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_walk),	      cmocka_unit_test(check_create_by_walking),
		cmocka_unit_test(check_big_load),     cmocka_unit_test(check_prefix),
		cmocka_unit_test(check_joined_loads), cmocka_unit_test(check_ids),
		cmocka_unit_test(check_failing_sync), cmocka_unit_test(check_big_sync),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
