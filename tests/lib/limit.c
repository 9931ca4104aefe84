/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void limit_begin(struct limit *l, long ms)
{
	*l = (struct limit){ .left_ms = ms, .seen_ms = now_ms() };
}

bool limit_over(struct limit *l)
{
	long now = now_ms(), passed = now - l->seen_ms;

	l->seen_ms = now;
	l->left_ms -= passed < LIMIT_LOOK_MS ? passed : LIMIT_LOOK_MS;
	return l->left_ms <= 0;
}

void limit_tell(const char *what)
{
	char command[128];

	fprintf(stderr, "%s: over its limit; where all stand:\n", what);
	snprintf(command, sizeof(command),
		 "exec timeout -k 1 39 \"${SODA_SOURCE_DIR:-.}/tests/lib/where\" %d >&2",
		 (int)getpid());
	if (system(command))
		fprintf(stderr, "(that is not all)\n");
}
