/* SPDX-License-Identifier: BSD-3-Clause */
/* What all commands use: options, files beside the program, the machine's description. */
#include "soda/base/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static int complain(const struct soda_conf *conf, const char *text)
{
	fprintf(stderr, "%s: %s\n", conf->program, text);
	return -1;
}

int soda_tool_options(const struct soda_conf *conf, int argc, char **argv, void *values,
		      const char **args, int max)
{
	struct soda_conf_error err;
	int first, n = 0;

	if (soda_conf_defaults(conf, values, &err) || soda_conf_environment(conf, values, &err))
		return complain(conf, err.text);
	for (;;) { /* flags, one positional argument, flags, ... */
		if (soda_conf_flags(conf, argc, argv, values, &first, &err))
			return complain(conf, err.text);
		if (first >= argc)
			return n;
		if (n == max) {
			snprintf(err.text, sizeof(err.text),
				 "unexpected argument '%.80s'; see --help", argv[first]);
			return complain(conf, err.text);
		}
		args[n++] = argv[first];
		argc -= first;
		argv += first;
	}
}

bool soda_tool_find(const char *const *places, char path[PATH_MAX])
{
	char self[PATH_MAX], joined[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (; *places; places++) {
		bool absolute = **places == '/';

		snprintf(joined, sizeof(joined), "%s%s%s", absolute ? "" : self,
			 absolute ? "" : "/", *places);
		if (realpath(joined, path))
			return true;
	}
	return false;
}

int soda_tool_choose(const struct soda_tool_command *commands, const char *none, const char *usage,
		     int argc, char **argv)
{
	const char *which = argc > 1 ? argv[1] : "";

	for (; commands->name; commands++)
		if (strcmp(which, commands->name) == 0)
			return commands->run(argc - 1, argv + 1);
	if (strcmp(which, "--help") == 0 || strcmp(which, "-h") == 0) {
		fputs(usage, stdout);
		return SODA_EXIT_OK;
	}
	if (*which)
		fprintf(stderr, "%s '%s'\n", none, which);
	fputs(usage, stderr);
	return SODA_EXIT_USAGE;
}

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

void soda_tool_wrap(FILE *out, const char *text, unsigned indent, unsigned columns)
{
	while (columns && strlen(text) > columns - indent) {
		size_t n = columns - indent;

		while (n && text[n] != ' ')
			n--;
		if (!n) /* a word that is longer: at its end */
			n = strcspn(text, " ");
		fprintf(out, "%.*s\n", (int)n, text);
		text += n + (text[n] == ' ');
		if (!*text)
			return;
		fprintf(out, "%*s", (int)indent, "");
	}
	fprintf(out, "%s\n", text);
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
