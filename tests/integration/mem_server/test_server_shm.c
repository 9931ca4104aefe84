/* SPDX-License-Identifier: BSD-3-Clause */
/* A real memory server on the same machine: regions whose memory is handed out. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

/* Start a server there and say what it logged: it must not have come up, unless it is to. */
static bool comes_up_at(const char *path, const char *words)
{
	char address[128], command[512], log[96], line[512] = "";
	struct server other;
	FILE *f;
	int status;

	snprintf(address, sizeof(address), "shm://%s", path);
	if (!words) {
		int ret = SERVER_START(&other, "--capacity", "64M", "--listen", address);

		if (!ret) {
			assert_int_equal(server_stop(&other), 0);
			server_forget(&other);
		}
		return !ret;
	}
	snprintf(log, sizeof(log), "%s/log", dir);
	snprintf(command, sizeof(command),
		 "exec timeout -k 1 60 %s --capacity 64M --listen %s </dev/null >/dev/null 2>%s",
		 build_path("src/mem_server/soda-mem-server"), address, log);
	status = system(command);
	f = fopen(log, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && !strstr(line, words))
		;
	fclose(f);
	if (!strstr(line, words))
		print_message("the server says: %s\n", line);
	assert_non_null(strstr(line, words));
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* A file where a server is to listen is nobody's to delete; a socket that was left there is. */
static void check_in_the_way(void **state)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/s", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	assert_false(comes_up_at(path, "is no socket"));
	read_file("s", got, 8);
	assert_memory_equal(got, "precious", 8);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_false(comes_up_at(path, "is no socket"));
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("f", path), 0);
	assert_false(comes_up_at(path, "is no socket"));
	assert_int_equal(unlink(path), 0);
}

/* A killed server's socket, of this user and of another one. */
static void check_left_over(void **state)
{
	struct server killed;
	char address[128], path[64];

	snprintf(path, sizeof(path), "%s/left", dir);
	snprintf(address, sizeof(address), "shm://%s", path);
	assert_int_equal(SERVER_START(&killed, "--capacity", "64M", "--listen", address), 0);
	assert_false(comes_up_at(path, "another server runs there"));
	server_kill(&killed);
	server_forget(&killed);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, OTHER_USER, OTHER_USER), 0);
		assert_false(comes_up_at(path, "another user's"));
		assert_int_equal(chown(path, 0, 0), 0);
	}
	assert_true(comes_up_at(path, NULL));
}

static bool refuses(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool refused;

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	refused =
		connect(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

/* A server that drains at this path, as long as the peer stays. */
static void begin_draining(struct server *old, struct peer *stays, const char *path)
{
	char address[128];

	snprintf(address, sizeof(address), "shm://%s", path);
	assert_int_equal(
		SERVER_START(old, "--capacity", "64M", "--drain", "10m", "--listen", address), 0);
	assert_int_equal(peer_join(stays, address), 0);
	assert_int_equal(kill(old->pid, SIGTERM), 0);
	for (int i = 0; i < LOOKS && !refuses(path); i++)
		usleep(10000);
	assert_true(refuses(path));
}

/* A server that drains lets the next one have its path, and leaves it what it made there. */
static void check_successor(void **state)
{
	char address[128], path[64];
	struct server old, next;
	struct peer stays = { 0 }, comes = { 0 };
	struct stat st;

	snprintf(path, sizeof(path), "%s/next", dir);
	snprintf(address, sizeof(address), "shm://%s", path);
	begin_draining(&old, &stays, path);
	assert_int_equal(SERVER_START(&next, "--capacity", "64M", "--listen", address), 0);
	peer_leave(&stays);
	assert_int_equal(server_wait(&old, 60000), 0);
	server_forget(&old);
	assert_int_equal(peer_join(&comes, address), 0);
	peer_leave(&comes);
	assert_int_equal(server_stop(&next), 0);
	server_forget(&next);
	assert_int_equal(lstat(path, &st), -1);
	assert_int_equal(errno, ENOENT);
}

/* Nor does it take away another thing that lies there by then. */
static void check_replaced(void **state)
{
	char address[128], path[64];
	struct server old;
	int fd;

	snprintf(path, sizeof(path), "%s/mine", dir);
	snprintf(address, sizeof(address), "shm://%s", path);
	assert_int_equal(SERVER_START(&old, "--capacity", "64M", "--listen", address), 0);
	assert_int_equal(unlink(path), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	assert_int_equal(server_stop(&old), 0);
	server_forget(&old);
	read_file("mine", got, 8);
	assert_memory_equal(got, "precious", 8);
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
		cmocka_unit_test(check_in_the_way),  cmocka_unit_test(check_left_over),
		cmocka_unit_test(check_successor),   cmocka_unit_test(check_replaced),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
