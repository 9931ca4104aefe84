/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/base/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* The text after the colon of the first line that begins with `key`. */
static void find_line(const char *path, const char *key, char *text, size_t bytes)
{
	char line[512], *colon;
	FILE *in = fopen(path, "r");

	*text = 0;
	while (in && !*text && fgets(line, sizeof(line), in)) {
		colon = strchr(line, ':');
		if (strncmp(line, key, strlen(key)) != 0 || !colon)
			continue;
		colon += strspn(colon, ": \t");
		colon[strcspn(colon, "\n")] = 0;
		snprintf(text, bytes, "%s", colon);
	}
	if (in)
		fclose(in);
}

json_t *soda_machine_describe(void)
{
	char cpu[128], text[32];
	struct utsname name = { 0 };
	time_t now = time(NULL);
	struct tm t;

	uname(&name);
	find_line("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &t));
	return json_pack("{ss ss ss si sI ss ss}", "cpu", *cpu ? cpu : name.machine, "kernel",
			 name.release, "architecture", name.machine, "processors",
			 (int)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
			 (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), "soda",
			 SODA_VERSION, "date", text);
}
