/* SPDX-License-Identifier: BSD-3-Clause */
/* A real memory server: files of its export directory. */
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

#include "lib/peer.h"
#include "lib/proc.h"
#include "soda.h"

#define MIB (1ull << 20)
#define DATA_BYTES (150 * 1000) /* three pieces of 64 KiB, the last one short */
#define DATA_PAGES 37

static struct server server;
static struct peer peer, other;
static char dir[] = "/tmp/soda-test-files-XXXXXX";
static int dir_fd;
static uint8_t data[DATA_BYTES], page[4096], piece[DATA_PAGES * 4096];

static void write_file(const char *name, const void *bytes, size_t n)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

static size_t read_file(const char *name, void *bytes, size_t n)
{
	int fd = openat(dir_fd, name, O_RDONLY);
	ssize_t got;

	assert_true(fd >= 0);
	got = pread(fd, bytes, n, 0);
	close(fd);
	assert_true(got >= 0);
	return (size_t)got;
}

static int start(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_DIRECTORY);
	for (size_t i = 0; i < DATA_BYTES; i++)
		data[i] = (uint8_t)(i * 13 + i / 4096);
	write_file("data", data, DATA_BYTES);
	write_file("empty", "", 0);
	mkdirat(dir_fd, "sub", 0755);
	write_file("sub/data", data, DATA_BYTES);
	if (symlinkat("../data", dir_fd, "sub/inside") ||
	    symlinkat("/etc/passwd", dir_fd, "outside") || symlinkat("..", dir_fd, "up") ||
	    mkfifoat(dir_fd, "fifo", 0644))
		return -1;
	umask(0); /* the server's, too: what it makes is nobody else's by itself */
	return SERVER_START(&server, "--capacity", "64M", "--export", dir) ||
	       peer_join(&peer, server.address) || peer_join(&other, server.address);
}

static int stop(void **state)
{
	char command[64];
	int status, complaints;

	peer_leave(&peer);
	peer_leave(&other);
	status = server_stop(&server);
	complaints = server_complaints(&server);
	server_forget(&server);
	close(dir_fd);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) || status || complaints;
}

static void expect_refusal(int got, int want, const char *says)
{
	if (got != want || !strstr(peer.why.text, says))
		fail_msg("%d '%s', expected %d '%s'", got, peer.why.text, want, says);
}

static void check_read_only(void **state)
{
	struct soda_wire_opened opened, again;
	struct soda_mr mr;

	assert_int_equal(peer_open(&peer, 1, "data", 0, SODA_READ_ONLY, &mr, &opened), 0);
	assert_int_equal(opened.bytes, DATA_BYTES);
	assert_int_not_equal(opened.file_id, 0);
	assert_int_equal(peer_read(&peer, &mr, 0, piece, sizeof(piece)), 0);
	assert_memory_equal(piece, data, DATA_BYTES);
	for (size_t i = DATA_BYTES; i < sizeof(piece); i++)
		assert_int_equal(piece[i], 0);
	mr.writable = true; /* the client's own check out of the way */
	assert_int_equal(peer_write(&peer, &mr, 0, page, sizeof(page)), -EACCES);
	soda_conn_close(peer.data);
	peer.data = NULL;

	/* A second client shares the copy. */
	assert_int_equal(peer_stat(&peer, "used_bytes"), 2 * MIB);
	assert_int_equal(peer_open(&other, 9, "./data", 0, SODA_READ_ONLY, &mr, &again), 0);
	assert_int_equal(again.file_id, opened.file_id);
	assert_int_equal(again.generation, opened.generation);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 2 * MIB);
	assert_int_equal(peer_stat(&peer, "files_loaded"), 1);
	assert_int_equal(peer_stat(&peer, "files_shared"), 1);
	assert_int_equal(peer_discard(&peer, 1, 0, 4096), -EACCES);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_read(&other, &mr, 65536, page, sizeof(page)), 0);
	assert_memory_equal(page, data + 65536, sizeof(page));
	assert_int_equal(peer_call(&other, SODA_MSG_CLOSE, 9), 0);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
}

/* Promise R1. */
static void check_changed_file_is_another(void **state)
{
	struct soda_wire_opened before, after;
	struct soda_mr mr;

	write_file("changing", "old", 3);
	assert_int_equal(peer_open(&peer, 1, "changing", 0, SODA_READ_ONLY, &mr, &before), 0);
	write_file("changing", "newer", 5);
	assert_int_equal(peer_open(&peer, 2, "changing", 0, SODA_READ_ONLY, &mr, &after), 0);
	assert_int_equal(after.bytes, 5);
	assert_int_not_equal(before.file_id, after.file_id);
	assert_true(after.generation > before.generation);
	assert_int_equal(peer_read(&peer, &mr, 0, page, sizeof(page)), 0);
	assert_memory_equal(page, "newer", 5);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 2), 0);
}

/* Promise R3. */
static void check_private(void **state)
{
	struct soda_mr mr;

	assert_int_equal(peer_open(&peer, 1, "data", 0, SODA_PRIVATE, &mr, NULL), 0);
	memset(page, 0xaa, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, 4096, page, sizeof(page)), 0);
	assert_int_equal(peer_read(&peer, &mr, 0, piece, sizeof(piece)), 0);
	assert_memory_equal(piece, data, 4096);
	assert_memory_equal(piece + 4096, page, 4096);
	assert_int_equal(peer_call(&peer, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(read_file("data", piece, sizeof(piece)), DATA_BYTES);
	assert_memory_equal(piece, data, DATA_BYTES);
}

static void check_writable(void **state)
{
	static uint8_t want[DATA_BYTES];
	uint64_t synced = peer_stat(&peer, "bytes_synced");
	struct soda_mr mr;

	memcpy(want, data, DATA_BYTES);
	write_file("mine", data, DATA_BYTES);
	assert_int_equal(peer_open(&peer, 1, "mine", 0, SODA_WRITABLE, &mr, NULL), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(peer_stat(&peer, "bytes_synced"), synced);
	/* The last page reaches over the end of the file. */
	memset(page, 0xbb, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, 36 * 4096, page, sizeof(page)), 0);
	assert_int_equal(peer_write(&peer, &mr, 0, page, sizeof(page)), 0);
	memset(want, 0xbb, 4096);
	memset(want + 36 * 4096, 0xbb, DATA_BYTES - 36 * 4096);
	assert_int_equal(read_file("mine", piece, sizeof(piece)), DATA_BYTES);
	assert_memory_equal(piece, data, DATA_BYTES);
	assert_int_equal(peer_call(&peer, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(read_file("mine", piece, sizeof(piece)), DATA_BYTES);
	assert_memory_equal(piece, want, DATA_BYTES);
	/* Only what was dirty, in 64 KiB. */
	assert_int_equal(peer_stat(&peer, "bytes_synced"), synced + 65536 + DATA_BYTES - 131072);
	/* Closing writes back too. */
	memset(page, 0xcc, sizeof(page));
	memset(want + 65536, 0xcc, 4096);
	assert_int_equal(peer_write(&peer, &mr, 65536, page, sizeof(page)), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(read_file("mine", piece, sizeof(piece)), DATA_BYTES);
	assert_memory_equal(piece, want, DATA_BYTES);
}

/* Promise R2. */
static void check_one_writer(void **state)
{
	struct soda_mr mr;

	assert_int_equal(peer_open(&other, 1, "data", 0, SODA_WRITABLE, &mr, NULL), 0);
	expect_refusal(peer_open(&peer, 1, "data", 0, SODA_WRITABLE, &mr, NULL), -EBUSY, "alone");
	expect_refusal(peer_open(&peer, 1, "data", 0, SODA_READ_ONLY, &mr, NULL), -EBUSY,
		       "writing");
	expect_refusal(peer_open(&peer, 1, "data", 0, SODA_PRIVATE, &mr, NULL), -EBUSY, "writing");
	/* By another name as well. */
	expect_refusal(peer_open(&peer, 1, "sub/inside", 0, SODA_READ_ONLY, &mr, NULL), -EBUSY, "");
	assert_int_equal(peer_call(&other, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_open(&other, 1, "data", 0, SODA_READ_ONLY, &mr, NULL), 0);
	expect_refusal(peer_open(&peer, 1, "data", 0, SODA_WRITABLE, &mr, NULL), -EBUSY, "alone");
	assert_int_equal(peer_call(&other, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_open(&other, 1, "data", 0, SODA_PRIVATE, &mr, NULL), 0);
	assert_int_equal(peer_open(&peer, 1, "data", 0, SODA_WRITABLE, &mr, NULL), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_call(&other, SODA_MSG_CLOSE, 1), 0);
}

static void check_extend_and_create(void **state)
{
	struct soda_wire_opened opened;
	struct soda_mr mr;
	struct stat st;

	write_file("grows", "abc", 3);
	expect_refusal(peer_open(&peer, 1, "grows", 4, SODA_READ_ONLY, &mr, NULL), -EFBIG, "3 B");
	expect_refusal(peer_open(&peer, 1, "grows", 4, SODA_PRIVATE, &mr, NULL), -EFBIG, "3 B");
	assert_int_equal(peer_open(&peer, 1, "grows", 70000, SODA_WRITABLE, &mr, &opened), 0);
	assert_int_equal(opened.bytes, 70000);
	memset(page, 0xdd, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, 65536, page, sizeof(page)), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(read_file("grows", piece, sizeof(piece)), 70000);
	assert_memory_equal(piece, "abc\0\0", 5);
	assert_memory_equal(piece + 65536, page, 4096);

	expect_refusal(peer_open(&peer, 1, "new", 5000, SODA_WRITABLE, &mr, NULL), -ENOENT, "new");
	assert_int_equal(peer_open(&peer, 1, "new", 5000, SODA_WRITABLE | SODA_CREATE, &mr, NULL),
			 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(read_file("new", piece, sizeof(piece)), 5000);
	assert_int_equal(fstatat(dir_fd, "new", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0660);

	/* What fails leaves no file behind, and none longer. */
	expect_refusal(
		peer_open(&peer, 1, "huge", 1ull << 40, SODA_WRITABLE | SODA_CREATE, &mr, NULL),
		-ENOSPC, "are free");
	assert_int_equal(faccessat(dir_fd, "huge", F_OK, 0), -1);
	expect_refusal(peer_open(&peer, 1, "grows", 1ull << 40, SODA_WRITABLE, &mr, NULL), -ENOSPC,
		       "");
	expect_refusal(peer_open(&peer, 1, "none", 0, SODA_WRITABLE | SODA_CREATE, &mr, NULL),
		       -EINVAL, "empty");
	assert_int_equal(faccessat(dir_fd, "none", F_OK, 0), -1);
	assert_int_equal(read_file("grows", piece, sizeof(piece)), 70000);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
}

static void check_bad_names(void **state)
{
	static const struct {
		const char *name;
		int r;
	} cases[] = {
		{ "nothing", -ENOENT },	      { "sub/nothing", -ENOENT }, { "data/x", -ENOENT },
		{ "/etc/passwd", -EACCES },   { "..", -EACCES },	  { "../x", -EACCES },
		{ "sub/../../x", -EACCES },   { "sub/..", -EACCES },	  { "outside", -EACCES },
		{ "up/etc/passwd", -EACCES }, { "up", -EACCES },	  { "sub", -EACCES },
		{ "fifo", -EACCES },	      { "empty", -EINVAL },	  { ".", -EACCES },
	};
	uint8_t head[SODA_WIRE_OPEN_BYTES];
	const struct soda_wire_open open = { .region_id = 1,
					     .name_bytes = 8,
					     .flags = SODA_READ_ONLY };
	struct iovec iov[2] = { { head, sizeof(head) }, { (void *)(uintptr_t) "data\0abc", 8 } };
	char long_name[300];
	struct soda_mr mr;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_refusal(peer_open(&peer, 1, cases[i].name, 0, SODA_READ_ONLY, &mr, NULL),
			       cases[i].r, "");
	expect_refusal(
		peer_open(&peer, 1, "up/soda-new", 9, SODA_WRITABLE | SODA_CREATE, &mr, NULL),
		-EACCES, "");
	soda_wire_put_open(head, &open);
	expect_refusal(soda_conn_call(peer.control, SODA_MSG_OPEN, iov, 2, NULL, 0, NULL, 10000,
				      &peer.why),
		       -EINVAL, "none of them 0");
	memset(long_name, 'x', sizeof(long_name));
	long_name[299] = 0;
	assert_int_not_equal(peer_open(&peer, 1, long_name, 0, SODA_READ_ONLY, &mr, NULL), 0);
	/* A link that stays inside is followed. */
	assert_int_equal(peer_open(&peer, 1, "./sub//inside", 0, SODA_READ_ONLY, &mr, NULL), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
}

/* What a file has is asked for by name or region, and of no region of another client's. */
static void check_contents(void **state)
{
	struct soda_wire_content by_name, by_region;
	struct soda_mr mr;

	if (peer_content(&peer, 0, "data", &by_name) == -ENOTSUP) { /* a build without OpenSSL */
		assert_non_null(strstr(peer.why.text, "SHA-256"));
		return;
	}
	assert_int_equal(by_name.state, SODA_WIRE_CONTENT_KNOWN); /* small */
	assert_int_equal(by_name.file_bytes, DATA_BYTES);
	assert_int_equal(peer_open(&peer, 1, "sub/data", 0, SODA_READ_ONLY, &mr, NULL), 0);
	assert_int_equal(peer_content(&peer, 1, "", &by_region), 0);
	assert_memory_equal(&by_region, &by_name, sizeof(by_name));
	expect_refusal(peer_content(&peer, 2, "", &by_region), -EINVAL, "is not open");
	assert_int_equal(peer_content(&other, 1, "", &by_region), -EINVAL);
	expect_refusal(peer_content(&peer, 0, "../data", &by_region), -EACCES, "leaves");
	expect_refusal(peer_content(&peer, 0, "", &by_region), -EINVAL, "file name");
	assert_int_equal(peer_content(&peer, 0, "outside", &by_region), -EACCES);
	assert_int_equal(peer_content(&peer, 0, "fifo", &by_region), -EACCES);
	assert_int_equal(peer_content(&peer, 0, "nothing", &by_region), -ENOENT);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	assert_int_equal(peer_open(&peer, 1, "data", 0, SODA_PRIVATE, &mr, NULL), 0);
	expect_refusal(peer_content(&peer, 1, "", &by_region), -EINVAL, "READ_ONLY");
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_read_only),  cmocka_unit_test(check_changed_file_is_another),
		cmocka_unit_test(check_private),    cmocka_unit_test(check_writable),
		cmocka_unit_test(check_one_writer), cmocka_unit_test(check_extend_and_create),
		cmocka_unit_test(check_bad_names),  cmocka_unit_test(check_contents),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
