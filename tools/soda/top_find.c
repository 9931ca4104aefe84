/* SPDX-License-Identifier: BSD-3-Clause */
#include "top_find.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_known(char *const *names, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

static int add(char **names, int n, int max, const char *name)
{
	if (n < max && name && *name && !is_known(names, n, name) && (names[n] = strdup(name)))
		n++;
	return n;
}

/* Each program that uses SODA listens on the abstract socket soda/stat/PID. */
static int add_programs(char **names, int n, int max)
{
	static const char mark[] = "@soda/stat/";
	FILE *sockets = fopen("/proc/net/unix", "re");
	char line[512];

	while (sockets && fgets(line, sizeof(line), sockets)) {
		char *at = strstr(line, mark);

		if (!at)
			continue;
		at += strlen(mark);
		at[strspn(at, "0123456789")] = 0;
		n = add(names, n, max, at);
	}
	if (sockets)
		fclose(sockets);
	return n;
}

int soda_top_find(char **names, int max)
{
	int n = add(names, 0, max, getenv("SODA_SERVER"));

	n = add(names, n, max, getenv("SODA_DPU"));
	return add_programs(names, n, max);
}
