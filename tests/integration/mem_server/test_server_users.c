/* SPDX-License-Identifier: BSD-3-Clause */
/* A real memory server that serves other users: whose permissions decide about files. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
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

enum { USER = 65533, GROUP = 65532, ALSO = 65531, STRANGER = 65530 };

static struct server server;
static char dir[] = "/tmp/soda-test-users-XXXXXX";
static int dir_fd;

static void make(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, name, strlen(name)), strlen(name));
	assert_int_equal(fchown(fd, uid, gid), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void make_dir(const char *name, mode_t mode)
{
	assert_int_equal(mkdirat(dir_fd, name, 0700), 0);
	assert_int_equal(fchmodat(dir_fd, name, mode, 0), 0);
}

static int start(void **state)
{
	char address[64];

	if (geteuid())
		return 0;
	if (!mkdtemp(dir) || chmod(dir, 0755))
		return -1;
	dir_fd = open(dir, O_DIRECTORY);
	make_dir("shut", 0700);
	make_dir("open", 0777);
	make_dir("list", 0744);
	make("mine", USER, GROUP, 0600);
	make("not-even-mine", USER, GROUP, 0044);
	make("private", 0, 0, 0600);
	make("public", 0, 0, 0644);
	make("everybodys", 0, 0, 0666);
	make("set-user-id", 0, 0, 04666);
	make("groups", 0, GROUP, 0640);
	make("other-groups", 0, ALSO, 0660);
	make("not-the-groups", 0, ALSO, 0606);
	make("shut/public", 0, 0, 0644);
	make("open/public", 0, 0, 0644);
	make("list/public", 0, 0, 0644);
	if (symlinkat("public", dir_fd, "link"))
		return -1;
	snprintf(address, sizeof(address), "shm://@soda-test-users-%d", (int)getpid());
	return SERVER_START(&server, "--capacity", "64M", "--export", dir, "--listen", address,
			    "--allow-other");
}

static int stop(void **state)
{
	char command[64];
	int status, complaints;

	if (geteuid())
		return 0;
	status = server_stop(&server);
	complaints = server_complaints(&server);
	server_forget(&server);
	close(dir_fd);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) || status || complaints;
}

static bool become(uid_t uid)
{
	const gid_t also[] = { ALSO };

	return !setgroups(uid == USER, also) && !setgid(uid == USER ? GROUP : STRANGER) &&
	       !setuid(uid);
}

/* In a child: -errno of opening the file as that user, as a positive number. */
static int open_as(uid_t uid, const char *name, uint64_t bytes, uint32_t flags)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct soda_mr mr;
		struct peer peer;
		int r = become(uid) ? -peer_join(&peer, server.address) : 99;

		if (!r) {
			r = -peer_open(&peer, 1, name, bytes, flags, &mr, NULL);
			peer_leave(&peer);
		}
		_exit(r);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void need_root(void)
{
	if (!geteuid())
		return;
	puts("SKIP: only root can become another user");
	skip();
}

/* Promise S11. */
static void check_files(void **state)
{
	static const struct {
		const char *name;
		bool reads, writes;
	} files[] = {
		{ "mine", true, true },
		{ "not-even-mine", false, false },
		{ "private", false, false },
		{ "public", true, false },
		{ "everybodys", true, true },
		{ "set-user-id", true, false },
		{ "groups", true, false },
		{ "other-groups", true, true },
		{ "not-the-groups", false, false },
		{ "shut/public", false, false },
		{ "open/public", true, false },
		{ "open/../public", false, false },
		{ "list/public", false, false },
		{ "link", false, false },
	};

	need_root();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *name = files[i].name;

		print_message("%s\n", name);
		assert_int_equal(open_as(USER, name, 0, SODA_READ_ONLY),
				 files[i].reads ? 0 : EACCES);
		assert_int_equal(open_as(USER, name, 0, SODA_PRIVATE), files[i].reads ? 0 : EACCES);
		assert_int_equal(open_as(USER, name, 0, SODA_WRITABLE),
				 files[i].writes ? 0 : EACCES);
		if (!strstr(name, ".."))
			assert_int_equal(open_as(0, name, 0, SODA_READ_ONLY), 0);
	}
	assert_int_equal(open_as(STRANGER, "groups", 0, SODA_READ_ONLY), EACCES);
	assert_int_equal(open_as(STRANGER, "public", 0, SODA_READ_ONLY), 0);
	assert_int_equal(open_as(USER, "nothing", 0, SODA_READ_ONLY), ENOENT);
	assert_int_equal(open_as(USER, "shut/nothing", 0, SODA_READ_ONLY), EACCES);
}

/* A file that is made belongs to whom it was made for; nothing is left of one that is refused. */
static void check_create(void **state)
{
	struct stat st;

	need_root();
	assert_int_equal(open_as(USER, "open/new", 10, SODA_WRITABLE | SODA_CREATE), 0);
	assert_int_equal(fstatat(dir_fd, "open/new", &st, 0), 0);
	assert_int_equal(st.st_uid, USER);
	assert_int_equal(st.st_gid, GROUP);
	assert_int_equal(open_as(USER, "open/new", 0, SODA_WRITABLE), 0);
	assert_int_equal(open_as(STRANGER, "open/new", 0, SODA_WRITABLE), EACCES);
	assert_int_equal(open_as(USER, "new", 10, SODA_WRITABLE | SODA_CREATE), EACCES);
	assert_int_equal(open_as(USER, "shut/new", 10, SODA_WRITABLE | SODA_CREATE), EACCES);
	assert_int_equal(open_as(USER, "open/large", 1ull << 40, SODA_WRITABLE | SODA_CREATE),
			 ENOSPC);
	assert_int_equal(fstatat(dir_fd, "new", &st, 0), -1);
	assert_int_equal(fstatat(dir_fd, "shut/new", &st, 0), -1);
	assert_int_equal(fstatat(dir_fd, "open/large", &st, 0), -1);
}

/*
 * A process that has learnt a client's secret is not that client if the kernel says who they are.
 * Promises R6 and S11.
 */
static void check_taken_over(void **state)
{
	struct peer mine;
	int status;
	pid_t pid;

	need_root();
	assert_int_equal(peer_join(&mine, server.address), 0);
	pid = fork();
	if (!pid) {
		struct peer thief;

		_exit(become(USER) ? -peer_return(&thief, server.address, &mine.welcome, 2) : 99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EPERM);
	peer_leave(&mine);
}

/* Somebody else's program where a server is looked for. */
struct squatter {
	pid_t pid;
	char address[64];
};

static int listen_at(const char *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "%s", name);
	if (fd < 0 ||
	    bind(fd, (struct sockaddr *)&at,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) ||
	    listen(fd, 1))
		_exit(99);
	return fd;
}

/* As that user: whether the one who comes says anything. */
static void squat(struct squatter *s, uid_t uid)
{
	int ready[2];
	char byte;

	snprintf(s->address, sizeof(s->address), "shm://@soda-test-squatter-%d", (int)getpid());
	assert_int_equal(pipe(ready), 0);
	s->pid = fork();
	if (!s->pid) {
		int fd = become(uid) ? listen_at(strchr(s->address, '@') + 1) : -1, peer;

		if (fd < 0 || write(ready[1], "", 1) != 1)
			_exit(99);
		alarm(60);
		peer = accept(fd, NULL, NULL);
		_exit(peer < 0 ? 99 : recv(peer, &byte, 1, 0) == 1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
}

static bool was_told_something(const struct squatter *s)
{
	int status;

	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 99);
	return WEXITSTATUS(status);
}

/* In a child: -errno of joining the listener there, as a positive number; 98: without words. */
static int join_squatter(const struct squatter *s, const char *server_user, bool with_key)
{
	static const struct soda_identity tenant = { .proves = true,
						     .tenant = "t",
						     .server = "localhost" };
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct peer peer;
		int r;

		if (!become(USER) || (server_user && setenv("SODA_SERVER_USER", server_user, 1)))
			_exit(99);
		r = -peer_join_as(&peer, s->address, with_key ? &tenant : NULL);
		if (r == EACCES && !strstr(peer.why.text, "user 65530"))
			r = 98;
		_exit(r);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/*
 * A server of another user is told nothing, unless that user was named or a key is to be proved.
 * Promise S11.
 */
static void check_whose_server(void **state)
{
	static const struct {
		const char *server_user;
		bool with_key;
		int error; /* 0: the squatter is told a HELLO, and what comes of that is its */
	} cases[] = {
		{ NULL, false, EACCES },      { "65531", false, EACCES },  { "", false, EACCES },
		{ "65530", false, 0 },	      { "daemon", false, EACCES }, { NULL, true, 0 },
		{ "no such", false, EINVAL },
	};

	need_root();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct squatter squatter;
		int error;

		print_message("%s\n", cases[i].server_user ? cases[i].server_user : "nobody named");
		squat(&squatter, STRANGER);
		error = join_squatter(&squatter, cases[i].server_user, cases[i].with_key);
		if (cases[i].error)
			assert_int_equal(error, cases[i].error);
		if (error == EINVAL) /* before anything is connected */
			kill(squatter.pid, SIGKILL), waitpid(squatter.pid, NULL, 0);
		else
			assert_int_equal(was_told_something(&squatter), !cases[i].error);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_whose_server), /* before this process has joined any */
		cmocka_unit_test(check_files),
		cmocka_unit_test(check_create),
		cmocka_unit_test(check_taken_over),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
