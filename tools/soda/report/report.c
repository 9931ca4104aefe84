/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda report`: hands its arguments to the package that draws (tools/report); and its page of what
 * other commands wrote.
 */
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

#include "soda/base/tool.h"

enum {
	LIMIT_MS = 300000,
	NOT_INSTALLED = 3, /* the package's exit status where matplotlib or jinja2 is missing */
	FIXED_ARGS = 3,
	ARGS_MAX = 64,
};

extern char **environ;

/* Find the package: in this build's source, or where it is installed. */
static bool find_package(char path[PATH_MAX])
{
	static const char *const places[] = { "../report/__main__.py",
					      "../share/soda/report/__main__.py",
					      SODA_REPORT_PACKAGE "/__main__.py", NULL };
	bool found = soda_tool_find(places, path);

	if (found)
		*strrchr(path, '/') = 0;
	return found;
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

/* Wait for the process's end, and kill it if that takes too long; its status as of waitpid(2). */
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

/* Run the package; its exit status, or negative errno after a message. */
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

/*
 * Become the package, with these arguments, the first of which is a name; returns after a message.
 */
static void become_package(char **argv)
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

struct options {
	char *out;
};

static const struct soda_option option_table[] = {
	OPTION("out", 'o', STRING, out, .arg = "PAGE.html",
	       .help = "The page, if it is to have another name."),
};

static const struct soda_conf conf = {
	.program = "soda report",
	.summary = "pages, figures and tables from results",
	.args = "RESULTS.json...",
	.description =
		"Makes of results what people read, on any machine, at any time after they were "
		"measured. Of results.json of soda eval: report.html beside it, and figures/, SVG. "
		"Of the JSON that soda run --report writes: its page, of the same name and .html. "
		"Of the JSON of soda bench fault, dpu, messages, node or move: tables in Markdown, "
		"on standard output; several files have one table. Of bench move with --out "
		"FILE.md: that file, and figures beside it. A page is one file, light or dark as "
		"the reader has it, and can be printed.\n"
		"\n"
		"Needs python3 with matplotlib and jinja2 (Debian: python3-matplotlib, "
		"python3-jinja2). Results of another version of their format are refused.",
	.epilogue = ".SH EXIT STATUS\n0 success, 1 results that cannot be read or a page that "
		    "cannot be written, 2 wrong usage, 3 matplotlib or jinja2 is not installed, "
		    "127 python3 is not.\n"
		    ".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-eval (1),\n.BR soda\\-run (1),\n"
		    ".BR soda\\-bench\\-fault (1),\n.BR soda\\-bench\\-dpu (1),\n"
		    ".BR soda\\-bench\\-node (1),\n.BR soda\\-bench\\-move (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

enum { RESULTS_MAX = 32, PYTHON_MISSING = 127 };

int soda_command_report(int argc, char **argv)
{
	struct options opt = { 0 };
	const char *results[RESULTS_MAX];
	char *args[RESULTS_MAX + 4] = { argv[0] };
	int n = soda_tool_options(&conf, argc, argv, &opt, results, RESULTS_MAX), at = 1;

	if (n == 0)
		fputs("soda report: of which results? soda report RESULTS.json\n", stderr);
	if (n <= 0) {
		soda_conf_free(&conf, &opt);
		return SODA_EXIT_USAGE;
	}
	if (opt.out) {
		args[at++] = (char *)"--out";
		args[at++] = opt.out;
	}
	memcpy(&args[at], results, (size_t)n * sizeof(*results));
	become_package(args);
	soda_conf_free(&conf, &opt);
	return PYTHON_MISSING;
}
