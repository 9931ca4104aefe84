/* SPDX-License-Identifier: BSD-3-Clause */
/* A real memory server on the same machine: regions whose memory is handed out. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "soda.h"

#define MIB (1ull << 20)
#define OTHER_USER 65534

static struct server server;
static struct peer peer;
static char dir[] = "/tmp/soda-test-shm-XXXXXX";
static uint8_t page[4096], got[4096];

static int start_with(const char *allow)
{
	char address[64];

	snprintf(address, sizeof(address), "shm://@soda-test-%d", (int)getpid());
	return SERVER_START(&server, "--capacity", "64M", "--export", dir, "--listen", address,
			    allow);
}

static int start(void **state)
{
	return !mkdtemp(dir) || start_with("--allow-other=no") || peer_join(&peer, server.address);
}

static int end_server(void)
{
	int status = server_stop(&server), complaints = server_complaints(&server);

	server_forget(&server);
	return status || complaints;
}

static int stop(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static void check_anonymous(void **state)
{
	struct soda_mr mr;
	const uint8_t *direct;

	assert_int_equal(peer_open(&peer, 1, NULL, 3 * MIB, 0, &mr, NULL), 0);
	assert_non_null(mr.map);
	memset(page, 0x42, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, MIB, page, sizeof(page)), 0);
	direct = soda_mr_direct(&mr, MIB, sizeof(page));
	assert_non_null(direct);
	assert_memory_equal(direct, page, sizeof(page));
	assert_int_equal(peer_read(&peer, &mr, MIB, got, sizeof(got)), 0);
	assert_memory_equal(got, page, sizeof(page));
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	soda_conn_unmap_region(&mr);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
}

static void read_file(const char *name, void *bytes, size_t n)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, bytes, n), n);
	close(fd);
}

/* A WRITE marks the shared dirty map, and SYNC finds it there. */
static void check_writable(void **state)
{
	struct soda_mr mr;

	assert_int_equal(
		peer_open(&peer, 1, "f", 3 * 65536, SODA_WRITABLE | SODA_CREATE, &mr, NULL), 0);
	memset(page, 0x24, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, 65536, page, sizeof(page)), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(peer_stat(&peer, "bytes_synced"), 65536);
	assert_int_equal(peer_call(&peer, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(peer_stat(&peer, "bytes_synced"), 65536);
	memset(page, 0x25, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, 0, page, sizeof(page)), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	soda_conn_unmap_region(&mr);
	read_file("f", got, sizeof(got));
	assert_memory_equal(got, page, sizeof(got));
}

/* Loaded once, read by two; nobody can write to it. */
static void check_read_only(void **state)
{
	struct soda_mr mr, second;
	struct peer other;

	assert_int_equal(peer_join(&other, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, "f", 0, SODA_READ_ONLY, &mr, NULL), 0);
	assert_int_equal(peer_open(&other, 1, "f", 0, SODA_READ_ONLY, &second, NULL), 0);
	assert_memory_equal(mr.map, page, sizeof(page));
	assert_memory_equal(second.map, page, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, 0, got, sizeof(got)), -EACCES);
	peer_leave(&other);
	/* The memory outlives the server's word that it is free: never zeros under a reader. */
	assert_memory_equal(second.map, page, sizeof(page));
	soda_conn_unmap_region(&second);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 1), 0);
	soda_conn_unmap_region(&mr);
}

/* What a client has closed, and keeps, is not free: it cannot have more by closing. */
static void check_kept(void **state)
{
	struct soda_mr kept[4], mr;

	for (uint16_t i = 0; i < 4; i++) {
		assert_int_equal(peer_open(&peer, i, NULL, 16 * MIB, 0, &kept[i], NULL), 0);
		assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, i), 0);
		assert_int_equal(peer_stat(&peer, "used_bytes"), (i + 1) * 16 * MIB);
	}
	assert_int_equal(peer_open(&peer, 5, NULL, 16 * MIB, 0, &mr, NULL), -ENOSPC);
	soda_conn_unmap_region(&kept[0]);
	assert_int_equal(peer_open(&peer, 5, NULL, 16 * MIB, 0, &mr, NULL), 0);
	assert_int_equal(peer_call(&peer, SODA_MSG_CLOSE, 5), 0);
	soda_conn_unmap_region(&mr);
	for (unsigned i = 1; i < 4; i++)
		soda_conn_unmap_region(&kept[i]);
	assert_int_equal(peer_stat(&peer, "used_bytes"), 0);
}

/* In a child: the result of joining as another user. */
static int join_as_other(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct peer other;
		int r = setuid(OTHER_USER) ? 99 : -peer_join(&other, server.address);

		if (!r)
			peer_leave(&other);
		_exit(r);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void check_other_users(void **state)
{
	int refused, allowed;

	if (geteuid()) {
		puts("SKIP: only root can become another user");
		skip();
	}
	refused = join_as_other();
	peer_leave(&peer);
	assert_int_equal(end_server(), 0);
	assert_int_equal(start_with("--allow-other"), 0);
	allowed = join_as_other();
	assert_int_equal(refused, EPERM);
	assert_int_equal(allowed, 0);
	assert_int_equal(peer_join(&peer, server.address), 0);
}

static void check_end(void **state)
{
	peer_leave(&peer);
	assert_int_equal(end_server(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_anonymous),   cmocka_unit_test(check_writable),
		cmocka_unit_test(check_read_only),   cmocka_unit_test(check_kept),
		cmocka_unit_test(check_other_users), cmocka_unit_test(check_end),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
