/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that make another program of this one, or start one. */
#include "run_victim.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
	if (step == 4) {
		CHECK(AWAY(system("test $TURN = 5")) == 0);
		CHECK(!putenv(next));
		f = AWAY(popen("echo $TURN", "r"));
		CHECK(f && fgets(line, sizeof(line), f) && !strcmp(line, "5\n") && !pclose(f));
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
	default:
		execvpe(path, argv, environ);
	}
	CHECK(!"another program");
}
