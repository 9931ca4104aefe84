/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/harness.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Sum of one field, in bytes, of the mappings whose first line has `mapping` in it. */
static size_t sum(pid_t pid, uintptr_t from, uintptr_t to, const char *mapping, const char *field)
{
	unsigned long begin, end, kib;
	char line[512], name[64];
	bool wanted = false;
	size_t total = 0;
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/smaps", pid);
	f = fopen(line, "re");
	assert(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			wanted = begin < to && end > from && strstr(line, mapping);
		else if (wanted && sscanf(line, "%63[^:]: %lu kB", name, &kib) == 2 &&
			 !strcmp(name, field))
			total += kib * 1024;
	}
	fclose(f);
	return total;
}

size_t smaps_rss(pid_t pid, uintptr_t from, uintptr_t to)
{
	return sum(pid, from, to, "", "Rss");
}

size_t smaps_mapped(pid_t pid, const char *name)
{
	return sum(pid, 0, UINTPTR_MAX, name, "Rss");
}

size_t smaps_anonymous(pid_t pid)
{
	return sum(pid, 0, UINTPTR_MAX, "", "Anonymous");
}
