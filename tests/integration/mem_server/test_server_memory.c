/* SPDX-License-Identifier: BSD-3-Clause */
/* A real memory server: what it promises, holds and gives back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "soda.h"

#define MIB (1ull << 20)

static struct server server;
static struct peer peer;

static int start(void **state)
{
	return SERVER_START(&server, "--capacity", "64M", "--quota", "32M") ||
	       peer_join(&peer, server.address);
}

/* Everything must have been given back by then, and nothing complained of. */
static int stop(void **state)
{
	int status, complaints;

	peer_leave(&peer);
	status = server_stop(&server);
	complaints = server_complaints(&server);
	server_forget(&server);
	return status || complaints;
}

static void expect_refusal(int got, int want, const char *says)
{
	if (got != want || !strstr(peer.why.text, says))
		fail_msg("%d '%s', expected %d '%s'", got, peer.why.text, want, says);
}

static void check_welcome(void **state)
{
	assert_int_equal(peer.welcome.version, SODA_WIRE_VERSION);
	assert_int_equal(peer.welcome.capacity, 64 * MIB);
	assert_int_equal(peer.welcome.free_bytes, 64 * MIB);
	assert_int_not_equal(peer.welcome.instance_id, 0);
	assert_int_not_equal(peer.welcome.client_id, 0);
	assert_int_equal(peer.welcome.known, 0);
}

static void check_zero_filled_and_kept(void **state)
{
	static uint8_t in[65536], out[65536], zeros[65536];
	struct soda_wire_opened opened;
	struct soda_mr mr;

	assert_int_equal(peer_open(&peer, 7, NULL, 3 * MIB + 1, 0, &mr, &opened), 0);
	assert_int_equal(opened.bytes, 3 * MIB + 1);
	assert_int_equal(opened.file_id, 0);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 4 * MIB);
	assert_int_equal(peer_read(&peer, &mr, 65536, in, sizeof(in)), 0);
	assert_memory_equal(in, zeros, sizeof(in));
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7);
	assert_int_equal(peer_write(&peer, &mr, 65536, out, sizeof(out)), 0);
	assert_int_equal(peer_read(&peer, &mr, 65536, in, sizeof(in)), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(peer_call(&peer, SODA_MSG_SYNC, 7), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 7), 0);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
	assert_int_equal(peer_stat(&peer, "regions"), 0);
}

static void check_capacity_and_quota(void **state)
{
	struct soda_mr mr;
	struct peer other, third;

	assert_int_equal(peer_open(&peer, 1, NULL, 32 * MIB, 0, &mr, NULL), 0);
	expect_refusal(peer_open(&peer, 2, NULL, 1, 0, &mr, NULL), -EDQUOT, "--quota");
	assert_int_equal(peer_join(&other, server.address), 0);
	assert_int_equal(peer_open(&other, 1, NULL, 31 * MIB, 0, &mr, NULL), 0);
	assert_int_equal(peer_join(&third, server.address), 0);
	assert_int_equal(third.welcome.free_bytes, 0);
	assert_int_equal(peer_open(&third, 1, NULL, 1, 0, &mr, NULL), -ENOSPC);
	assert_non_null(strstr(third.why.text, "only 0 B of 64 MiB are free"));
	peer_leave(&other);
	assert_int_equal(peer_open(&third, 1, NULL, 1, 0, &mr, NULL), 0);
	peer_leave(&third);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
}

static void check_bad_requests(void **state)
{
	uint64_t before = peer_stat(&peer, "opens_refused");
	struct soda_mr mr;

	expect_refusal(peer_open(&peer, 1, NULL, UINT64_MAX, 0, &mr, NULL), -ENOSPC, "");
	expect_refusal(peer_open(&peer, 1, NULL, UINT64_MAX - (2 * MIB), 0, &mr, NULL), -ENOSPC,
		       "");
	expect_refusal(peer_open(&peer, 1, NULL, INT64_MAX, 0, &mr, NULL), -ENOSPC, "");
	expect_refusal(peer_open(&peer, 1, NULL, 65 * MIB, 0, &mr, NULL), -EDQUOT, "");
	expect_refusal(peer_open(&peer, 1, NULL, 0, 0, &mr, NULL), -EINVAL, "size");
	expect_refusal(peer_open(&peer, 1, "x", 4096, 0, &mr, NULL), -EINVAL, "no name");
	expect_refusal(peer_open(&peer, 1, "x", 4096, 0x80, &mr, NULL), -EINVAL, "exactly one");
	expect_refusal(peer_open(&peer, 1, "x", 4096, 0x3, &mr, NULL), -EINVAL, "exactly one");
	expect_refusal(peer_open(&peer, 1, "x", 4096, 0x9, &mr, NULL), -EINVAL, "CREATE");
	expect_refusal(peer_open(&peer, 1, "x", 4096, 0x1, &mr, NULL), -EACCES, "--export");
	expect_refusal(peer_call(&peer, SODA_MSG_CLOSE, 9), -EINVAL, "no region 9");
	expect_refusal(peer_call(&peer, SODA_MSG_SYNC, 9), -EINVAL, "no region 9");
	assert_int_equal(peer_stat(&peer, "opens_refused"), before + 10);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
	assert_int_equal(peer_open(&peer, 1, NULL, 1, 0, &mr, NULL), 0);
	expect_refusal(peer_open(&peer, 1, NULL, 1, 0, &mr, NULL), -EBUSY, "in use");
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
}

/* A region that is gone is an error, never zeros. */
static void check_requests_outside(void **state)
{
	static uint8_t page[4096];
	struct soda_mr mr, longer;

	assert_int_equal(peer_open(&peer, 3, NULL, 2 * MIB, 0, &mr, NULL), 0);
	longer = mr;
	longer.bytes = 1ull << 40;
	assert_int_equal(peer_read(&peer, &longer, 2 * MIB - 4096, page, 4096), 0);
	assert_int_not_equal(peer_read(&peer, &longer, 2 * MIB, page, 4096), 0);
	soda_conn_close(peer.data);
	peer.data = NULL;
	assert_int_not_equal(peer_write(&peer, &longer, 1ull << 39, page, 4096), 0);
	soda_conn_close(peer.data);
	peer.data = NULL;
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 3), 0);
	assert_int_not_equal(peer_read(&peer, &mr, 0, page, 4096), 0);
	soda_conn_close(peer.data);
	peer.data = NULL;
	assert_int_equal(peer_stat(&peer, "requests_bad"), 3);
}

/* kB of the server's resident memory, files apart: regions are shared or anonymous. */
static unsigned long resident_kib(void)
{
	char path[64], line[128];
	unsigned long kib = 0, one;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)server.pid);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssShmem: %lu", &one) == 1 ||
		    sscanf(line, "RssAnon: %lu", &one) == 1)
			kib += one;
	fclose(file);
	return kib;
}

static void check_memory_goes_back(void **state)
{
	static uint8_t data[1 << 20];
	unsigned long before = resident_kib();
	struct soda_mr mr;

	assert_int_equal(peer_open(&peer, 1, NULL, 16 * MIB, 0, &mr, NULL), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(peer_write(&peer, &mr, i * MIB, data, sizeof(data)), 0);
	assert_true(resident_kib() >= before + 16 * 1024);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_true(resident_kib() < before + 1024);
}

static unsigned long free_huge_pages(void)
{
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	unsigned long n = 0;

	if (file && fscanf(file, "%lu", &n) != 1)
		n = 0;
	if (file)
		fclose(file);
	return n;
}

static void check_huge_pages(void **state)
{
	static uint8_t out[65536], in[65536];
	struct server huge;
	struct peer user;
	struct soda_mr mr;
	unsigned long before = free_huge_pages();

	if (before < 8) {
		puts("SKIP: fewer than 8 free huge pages (vm.nr_hugepages)");
		skip();
	}
	assert_int_equal(SERVER_START(&huge, "--hugepages", "--capacity", "8M"), 0);
	assert_int_equal(peer_join(&user, huge.address), 0);
	assert_int_equal(peer_open(&user, 1, NULL, 5 * MIB, 0, &mr, NULL), 0);
	memset(out, 0x33, sizeof(out));
	assert_int_equal(peer_write(&user, &mr, 4 * MIB, out, sizeof(out)), 0);
	assert_int_equal(peer_read(&user, &mr, 4 * MIB, in, sizeof(in)), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_true(free_huge_pages() < before);
	assert_int_equal(peer_open(&user, 2, NULL, 4 * MIB, 0, &mr, NULL), -ENOSPC);
	peer_leave(&user);
	assert_int_equal(server_stop(&huge), 0);
	assert_int_equal(server_complaints(&huge), 0);
	server_forget(&huge);
	assert_int_equal(free_huge_pages(), before);
}

/* All pages that are free. */
static void *take_huge_pages(unsigned long n)
{
	return n ? mmap(NULL, n * 2 * MIB, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0)
		 : NULL;
}

/*
 * A local client gives the page of its dirty map back to the pool, somebody else takes it: the
 * server serves on.
 */
static void check_punched_hole(void **state)
{
	char dir[] = "/tmp/soda-test-huge-XXXXXX", address[64], command[64];
	struct server huge;
	struct peer user;
	struct soda_mr mr;
	unsigned long free_now;
	void *taken;

	if (free_huge_pages() < 8) {
		puts("SKIP: fewer than 8 free huge pages (vm.nr_hugepages)");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(address, sizeof(address), "shm://@soda-test-huge-%d", (int)getpid());
	assert_int_equal(SERVER_START(&huge, "--hugepages", "--capacity", "8M", "--export", dir,
				      "--listen", address),
			 0);
	assert_int_equal(peer_join(&user, huge.address), 0);
	assert_int_equal(peer_open(&user, 1, "f", MIB, SODA_WRITABLE | SODA_CREATE, &mr, NULL), 0);
	assert_int_equal(madvise(mr.dirty_map, 2 * MIB, MADV_REMOVE), 0);
	free_now = free_huge_pages();
	taken = take_huge_pages(free_now);
	assert_ptr_not_equal(taken, MAP_FAILED);
	peer_call(&user, SODA_MSG_SYNC, 1); /* whatever it says */
	assert_int_equal(peer_stat(&user, "regions"), 1);
	assert_int_equal(peer_call(&user, SODA_MSG_CLOSE, 1), 0);
	munmap(taken, free_now * 2 * MIB);
	soda_conn_unmap_region(&mr);
	peer_leave(&user);
	assert_int_equal(server_stop(&huge), 0);
	assert_int_equal(server_complaints(&huge), 0);
	server_forget(&huge);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_welcome),
		cmocka_unit_test(check_zero_filled_and_kept),
		cmocka_unit_test(check_capacity_and_quota),
		cmocka_unit_test(check_bad_requests),
		cmocka_unit_test(check_requests_outside),
		cmocka_unit_test(check_memory_goes_back),
		cmocka_unit_test(check_huge_pages),
		cmocka_unit_test(check_punched_hole),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
