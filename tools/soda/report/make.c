/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/report/make.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	LIMIT_MS = 300000,
	NOT_INSTALLED = 3, /* the package's exit status where matplotlib or jinja2 is missing */
	FIXED_ARGS = 3,
	ARGS_MAX = 64,
};

extern char **environ;

/* The package: where this build has it, or where it is installed. */
static bool find_package(char path[PATH_MAX])
{
	static const char *const places[] = { "../report", "../share/soda/report",
					      SODA_REPORT_PACKAGE };
	char self[PATH_MAX], joined[2 * PATH_MAX], *real;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		bool absolute = places[i][0] == '/';

		snprintf(joined, sizeof(joined), "%s%s%s/__main__.py", absolute ? "" : self,
			 absolute ? "" : "/", places[i]);
		real = realpath(joined, path);
		if (real) {
			*strrchr(path, '/') = 0;
			return true;
		}
	}
	return false;
}

static void complain_of_package(const char *who)
{
	fprintf(stderr,
		"%s: the package that draws is not there (%s): the installation is not complete\n",
		who, SODA_REPORT_PACKAGE);
}

static void complain_of_python(const char *who, int err)
{
	if (err == ENOENT)
		fprintf(stderr,
			"%s: nothing can be drawn before python3 is installed (apt-get install "
			"python3 python3-matplotlib python3-jinja2)\n",
			who);
	else
		fprintf(stderr, "%s: python3: %s\n", who, strerror(err));
}

/* Its status as of waitpid(2), once it has ended; killed where it takes too long. */
static int await(pid_t pid)
{
	const struct timespec pause = { 0, 10000000 };
	int status = 0;

	for (int ms = 0;; ms += 10) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid || (got < 0 && errno != EINTR))
			return status;
		if (ms >= LIMIT_MS)
			kill(pid, SIGKILL);
		nanosleep(&pause, NULL);
	}
}

/* Its exit status; negative errno after a message. */
static int run_package(const char *who, const char *package, const char *json, const char *page)
{
	const char *const args[] = { "python3", "-B", package, json, "--out", page, NULL };
	pid_t pid;
	int err = posix_spawnp(&pid, args[0], NULL, NULL, (char *const *)args, environ), status;

	if (err) {
		complain_of_python(who, err);
		return -err;
	}
	status = await(pid);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "%s: what draws was ended by signal %d\n", who, WTERMSIG(status));
	return -EIO;
}

int soda_report_make(const char *who, const char *json, const char *page)
{
	char package[PATH_MAX];
	int status = -ENOENT;

	if (find_package(package))
		status = run_package(who, package, json, page);
	else
		complain_of_package(who);
	if (status == 0)
		return 0;
	fprintf(stderr,
		"%s: the numbers are in %s, and 'soda report %s' makes the page of them, here or "
		"elsewhere\n",
		who, json, json);
	return status == NOT_INSTALLED || status == -ENOENT ? -ENOENT : -EIO;
}

void soda_report_exec(char **argv)
{
	char package[PATH_MAX],
		*args[FIXED_ARGS + ARGS_MAX] = { (char *)"python3", (char *)"-B", package };
	int n = 0;

	if (!find_package(package)) {
		complain_of_package("soda report");
		return;
	}
	for (; argv[n + 1] && n + 1 < ARGS_MAX; n++)
		args[FIXED_ARGS + n] = argv[n + 1];
	if (argv[n + 1]) {
		fprintf(stderr, "soda report: at most %d arguments\n", ARGS_MAX - 1);
		return;
	}
	execvp(args[0], args);
	complain_of_python("soda report", errno);
}
