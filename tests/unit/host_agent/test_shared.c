/* SPDX-License-Identifier: BSD-3-Clause */
/* A chunk of the node's store that the process puts there itself, on the kernel itself. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "host_agent/core/agent.h"
#include "host_agent/core/link.h"
#include "host_agent/pages/shared.h"
#include "host_agent/pages/uffd.h"

enum { CHUNK = 65536, SHIFT = 16, CHUNKS = 4, PAGE = 4096 };

static struct soda_uffd_info info;
static struct soda_link server_link;
static struct soda_region object;
static char *reserved; /* aligned addresses lie in it */
static int data_fd, map_fd;
static char data[CHUNK];
static bool opened;

static int open_once(void **state)
{
	struct soda_why why = { "" };

	opened = soda_uffd_open(true, false, false, &info, &why) == 0 && info.minor;
	if (!opened)
		printf("SKIP: %s\n",
		       why.text[0] ? why.text : "minor faults of shared memory: Linux 5.14");
	memset(data, 0x5a, sizeof(data));
	return 0;
}

static int close_once(void **state)
{
	soda_uffd_close();
	return 0;
}

static int memory_of(const char *name, uint64_t bytes)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static void make_map(void)
{
	const struct soda_store_map head = { .magic = SODA_STORE_MAGIC,
					     .chunk_bytes = CHUNK,
					     .chunks = CHUNKS };

	map_fd = memory_of("a map", soda_store_map_bytes(CHUNKS));
	assert_int_equal(pwrite(map_fd, &head, sizeof(head), 0), sizeof(head));
}

static int attach(void **state)
{
	struct soda_shared_memory memory = { .stored = { .map_bytes = soda_store_map_bytes(CHUNKS),
							 .chunk_bytes = CHUNK,
							 .chunks = CHUNKS,
							 .parts = 1 } };
	struct soda_why why;

	if (!opened)
		return 0;
	reserved = mmap(NULL, (CHUNKS + 1) * CHUNK, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(reserved, MAP_FAILED);
	soda_agent.base = (char *)(((uintptr_t)reserved + CHUNK - 1) / CHUNK * CHUNK);
	soda_agent.chunk_shift = SHIFT;
	soda_agent.page_ops = &soda_uffd_page_ops;
	make_map();
	data_fd = memory_of("data", CHUNKS * CHUNK);
	memory.map_fd = map_fd;
	memory.parts = malloc(sizeof(*memory.parts));
	memory.parts[0] = data_fd;
	object = (struct soda_region){ .link = &server_link, .span = CHUNKS * CHUNK };
	assert_int_equal(soda_shared_attach(&object, &memory, &why), 0);
	return 0;
}

static int detach(void **state)
{
	if (!opened)
		return 0;
	soda_shared_forget(&object);
	return munmap(reserved, (CHUNKS + 1) * CHUNK);
}

static void assert_has_data(uint32_t chunk)
{
	assert_memory_equal(soda_chunk_address(chunk), data, CHUNK);
}

static int arrive(uint32_t chunk)
{
	const struct soda_install in = { .id = chunk, .block = -1, .shared = true, .late = true };

	return soda_shared_arrived(NULL, &object, &in, data);
}

static void test_put_where_nothing_is(void **state)
{
	if (!opened)
		skip();
	assert_int_equal(arrive(1), 0);
	assert_has_data(1);
}

/*
 * The agent has begun to fill the chunk meanwhile: with folios it makes all of its pages, and then
 * writes to them.  Nobody sees those pages as they are in between.
 */
static void test_put_over_pages_of_zeros(void **state)
{
	if (!opened)
		skip();
	assert_int_equal(fallocate(data_fd, 0, 2 * CHUNK, CHUNK), 0);
	assert_int_equal(arrive(2), 0);
	assert_has_data(2);
	assert_int_equal(fallocate(data_fd, 0, 3 * CHUNK + 5 * PAGE, 2 * PAGE), 0);
	assert_int_equal(arrive(3), 0);
	assert_has_data(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_put_where_nothing_is, attach, detach),
		cmocka_unit_test_setup_teardown(test_put_over_pages_of_zeros, attach, detach),
	};

	return cmocka_run_group_tests_name("host_shared", tests, open_once, close_once);
}
