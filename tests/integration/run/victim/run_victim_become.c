/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that make another program of this one, or start one. */
#include "run_victim.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Becomes itself by each call in turn, with words in fabric memory; then it starts others. */
void case_become(void)
{
	const char *turn = getenv("TURN");
	int step = turn ? atoi(turn) : 0;
	char *path, **argv, *next, line[8];
	FILE *f;

	objects_make();
	objects_end();
	path = object(0);
	argv = object(1);
	next = object(2);
	CHECK(readlink("/proc/self/exe", path, 500) > 0);
	argv = (char **)((uintptr_t)argv / 64 * 64);
	argv[0] = path;
	argv[1] = (char *)object(3);
	argv[2] = NULL;
	strcpy(argv[1], "become");
	sprintf(next, "TURN=%d", step + 1);
	CHECK(!putenv(next));
	if (step == 9) {
		CHECK(AWAY(system("test $TURN = 10")) == 0);
		CHECK(!putenv(next));
		f = AWAY(popen("echo $TURN", "r"));
		CHECK(f && fgets(line, sizeof(line), f) && !strcmp(line, "10\n") && !pclose(f));
		return;
	}
	objects_away();
	switch (step) {
	case 0:
		execv(path, argv);
		break;
	case 1:
		execve(path, argv, environ);
		break;
	case 2:
		execvp(path, argv);
		break;
	case 3:
		execvpe(path, argv, environ);
		break;
	case 4:
		execl(path, path, argv[1], NULL);
		break;
	case 5:
		execlp(path, path, argv[1], NULL);
		break;
	case 6:
		execle(path, path, argv[1], NULL, environ);
		break;
	case 7:
		fexecve(open(path, O_RDONLY), argv, environ);
		break;
	default:
		execveat(AT_FDCWD, path, argv, environ, 0);
	}
	CHECK(!"another program");
}

/* With local memory, as what a program starts has under `soda run`. */
void case_plain(void)
{
	unsigned char *p = malloc(BIG);

	CHECK(p && !getenv("LD_PRELOAD"));
	fill(p, BIG, 1);
	CHECK(!in_fam(p));
	free(p);
}

/* This process is `pid`'s parent, or (0) its child that does not become the program. */
static void expect_end(pid_t pid)
{
	int status;

	if (!pid)
		_Exit(98);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* By every call, and goes on with its own. */
void case_starts(void)
{
	char path[512] = "", *argv[] = { path, (char *)"plain", NULL }, command[600];
	unsigned char *p = malloc(BIG);
	pid_t pid;
	FILE *f;

	CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	fill(p, BIG, 2);
	CHECK(in_fam(p));
	pid = fork();
	if (!pid)
		execv(path, argv);
	expect_end(pid);
	pid = vfork();
	if (!pid) {
		execve(path, argv, environ);
		_exit(98);
	}
	expect_end(pid);
	CHECK(!posix_spawn(&pid, path, NULL, NULL, argv, environ));
	expect_end(pid);
	snprintf(command, sizeof(command), "exec %s plain", path);
	CHECK(!system(command));
	f = popen(command, "r");
	CHECK(f && !pclose(f));
	CHECK(execl("/nonexistent", "x", NULL) == -1 && errno == ENOENT);
	verify(p, BIG, 2);
	free(p);
}
