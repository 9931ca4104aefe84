/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perftest's programs, where they are installed: what the verbs stack gives without SODA, in the
 * same minute on the same device.  They find device and port by the address (-R).
 */
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soda/bench/transport/transport.h"

enum { SERVERS = 3, ATTEMPTS = 20, PAUSE_US = 250000 };

extern char **environ;

static const char *program(const struct soda_transport_point *p)
{
	static const char *const names[SODA_TRANSPORT_REQUESTS][2] = {
		{ "ib_read_lat", "ib_read_bw" },
		{ "ib_write_lat", "ib_write_bw" },
		{ "ib_send_lat", "ib_send_bw" },
	};

	return names[p->request][p->depth > 1];
}

/* The row of numbers below the line of '#bytes': column 4 is the average, of latencies 5. */
static double parse(FILE *in, bool latency)
{
	double value[6] = { 0 }, found = -1;
	char line[256];

	while (fgets(line, sizeof(line), in)) {
		int n = sscanf(line, "%lf %lf %lf %lf %lf %lf", &value[0], &value[1], &value[2],
			       &value[3], &value[4], &value[5]);

		/* numbers are infinite, or none, where the clock's rate cannot be told (emulators)
		 */
		if (n >= 5 && isfinite(value[3]) && value[3] > 0 && isfinite(value[4]))
			found = latency ? value[4] : value[3] * 1048576 / 1e9;
	}
	return found;
}

static pid_t start_server(const char *const *args)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int ret;

	posix_spawn_file_actions_init(&actions);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd ? 1 : 0, 0);
	ret = posix_spawnp(&pid, args[0], &actions, NULL, (char *const *)(uintptr_t)args, environ);
	posix_spawn_file_actions_destroy(&actions);
	return ret ? -1 : pid;
}

/* Start a server, and clients until one succeeds; the number it prints. < 0: none did. */
static double one_run(const char *const *args, const char *command, bool latency)
{
	pid_t server = start_server(args);
	double found = -1;

	if (server < 0)
		return -1;
	for (int i = 0; i < ATTEMPTS && found < 0; i++) {
		FILE *in;

		usleep(PAUSE_US); /* until it listens */
		if (waitpid(server, NULL, WNOHANG))
			return -1;
		in = popen(command, "r"); /* NOLINT: numbers only */
		if (!in)
			break;
		found = parse(in, latency);
		pclose(in);
	}
	kill(server, SIGTERM);
	waitpid(server, NULL, 0);
	return found;
}

double soda_perftest(const char *host, const struct soda_transport_point *p, uint32_t requests)
{
	char size[16], depth[16], count[16], command[256];
	const char *args[] = { program(p), "-R",  "-F", "-s",	 size,
			       "-n",	   count, "-p", "18599", p->depth > 1 ? "-t" : NULL,
			       depth,	   NULL };
	double found = -1;

	for (const char *c = host; *c; c++)
		if (!strchr("0123456789abcdefABCDEF.:", *c))
			return -1; /* it goes into a shell's line */
	snprintf(size, sizeof(size), "%u", p->bytes);
	snprintf(depth, sizeof(depth), "%u", p->depth);
	snprintf(count, sizeof(count), "%u", requests);
	snprintf(command, sizeof(command), "%s -R -F -s %s -n %s -p 18599 %s %s %s 2>/dev/null",
		 args[0], size, count, p->depth > 1 ? "-t" : "", p->depth > 1 ? depth : "", host);
	/* one whose port is still in use by the last one's connections ends at once */
	for (int i = 0; i < SERVERS && found < 0; i++)
		found = one_run(args, command, p->depth == 1);
	return found;
}
