/* SPDX-License-Identifier: BSD-3-Clause */
/* The one memory server of a tree: asked for by many, started once, kept by who uses it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tree/tree.h"

enum { PROCESSES = 8, LONG_MS = 120000, SHORT_MS = 150 };

static struct soda_tree *tree;
static char address[128], why[SODA_TREE_WHY];
static int held = -1;

static int join(const char *program, int timeout_ms)
{
	return soda_tree_server_join(tree, program, timeout_ms, address, sizeof(address), &held,
				     why);
}

static int setup(void **state)
{
	char name[SODA_TREE_NAME];

	return soda_tree_create(0, "/a/server", &tree, name);
}

/* Children that join, say the address, and hold the server until the pipe is closed. */
static void start_joining(const int go[2], int said)
{
	for (int i = 0; i < PROCESSES; i++) {
		pid_t pid = fork();
		char c;

		assert_true(pid >= 0);
		if (pid)
			continue;
		alarm(120);
		close(go[1]);
		if (join("/a/server", LONG_MS))
			_exit(1);
		if (write(said, address, 8) != 8 || read(go[0], &c, 1) != 0)
			_exit(2);
		_exit(0);
	}
}

static int answer_first(const char *where, int life[2])
{
	uint32_t timeout_ms = soda_tree_server_asked(tree, LONG_MS);

	assert_int_equal(pipe2(life, O_CLOEXEC), 0);
	soda_tree_server_up(tree, where, life[1]);
	return (int)timeout_ms;
}

static bool at_end(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

static void test_once(void **state)
{
	int go[2], said[2], life[2], status;
	char text[9] = "";

	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	assert_int_equal(pipe2(said, O_CLOEXEC), 0);
	start_joining(go, said[1]);
	assert_int_equal(answer_first("shm://@a", life), LONG_MS);
	for (int i = 0; i < PROCESSES; i++) {
		assert_int_equal(read(said[0], text, 8), 8);
		assert_string_equal(text, "shm://@a");
	}
	assert_int_equal(soda_tree_server_asked(tree, 0), 0); /* nobody asks for another one */
	close(life[1]); /* the server goes on for those that use it, and no longer */
	close(go[0]);
	assert_false(at_end(life[0]));
	close(go[1]);
	for (int i = 0; i < PROCESSES; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_true(at_end(life[0]));
	close(life[0]);
	close(said[0]);
	close(said[1]);
}

/* `soda`, which answers so many times by turns: with a failure, with a server. */
static pid_t start_soda(int failures)
{
	pid_t pid = fork();
	int life[2];

	assert_true(pid >= 0);
	if (pid)
		return pid;
	alarm(120);
	for (int i = 0; i < failures; i++) {
		while (!soda_tree_server_asked(tree, LONG_MS))
			;
		soda_tree_server_failed(tree, "no room");
	}
	answer_first("shm://@b", life);
	for (;;)
		pause();
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A failure is said to who has asked; who comes later asks anew. */
static void test_failed(void **state)
{
	pid_t soda = start_soda(2);

	for (int i = 0; i < 2; i++) {
		assert_int_equal(join("/a/server", LONG_MS), -EIO);
		assert_string_equal(why, "no room");
	}
	assert_int_equal(join("/a/server", LONG_MS), 0);
	assert_string_equal(address, "shm://@b");
	close(held);
	end(soda);
	/* what held the server has ended with it: there is none to join */
	assert_int_equal(join("/a/server", LONG_MS), -ENOENT);
}

static void test_died(void **state)
{
	int life[2], next[2];

	assert_int_equal(join("/a/server", SHORT_MS), -ETIMEDOUT); /* it has asked */
	answer_first("shm://@c", life);
	assert_int_equal(join("/a/server", LONG_MS), 0);
	close(held);
	close(life[0]); /* the server's end */
	assert_int_equal(join("/a/server", SHORT_MS), -ETIMEDOUT);
	assert_int_equal(answer_first("shm://@d", next), SHORT_MS);
	assert_int_equal(join("/a/server", LONG_MS), 0);
	assert_string_equal(address, "shm://@d");
	close(held);
	close(life[1]);
	close(next[0]);
	close(next[1]);
}

static void test_own(void **state)
{
	assert_int_equal(join("/another/server", SHORT_MS), -ENOENT);
	assert_int_equal(join(NULL, SHORT_MS), -ENOENT);
	assert_int_equal(soda_tree_server_asked(tree, 0), 0);
	soda_tree_server_none(tree);
	assert_int_equal(join("/a/server", SHORT_MS), -ENOENT);
}

/* `soda` has ended before anybody has asked. */
static void test_alone(void **state)
{
	char name[SODA_TREE_NAME];
	int said[2];
	pid_t pid;

	assert_int_equal(pipe(said), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(120);
		if (soda_tree_create(0, NULL, &tree, name) ||
		    write(said[1], name, sizeof(name)) != sizeof(name))
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(said[0], name, sizeof(name)), sizeof(name));
	assert_int_equal(soda_tree_open(name, &tree), 0);
	end(pid);
	assert_int_equal(join(NULL, LONG_MS), -ENOENT);
	close(said[0]);
	close(said[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_once, setup),
		cmocka_unit_test_setup(test_failed, setup),
		cmocka_unit_test_setup(test_died, setup),
		cmocka_unit_test_setup(test_own, setup),
		cmocka_unit_test(test_alone),
	};

	return cmocka_run_group_tests_name("tree_server", tests, NULL, NULL);
}
