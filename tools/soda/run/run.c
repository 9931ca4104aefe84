/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda run`: set the environment, and become the program, with libsoda-run.so loaded into it.
 * What cannot be loaded into is refused here, with the reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/run.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"

struct options {
	char *mem;
	char *server;
	char *dpu;
	uint64_t threshold;
	char *report;
	bool stats;
	bool children;
};

static const struct soda_option option_table[] = {
	OPTION("mem", 'm', STRING, mem, .arg = "SIZE",
	       .help = "The page buffer: how much fabric memory is resident at once (512M, or 1/3 "
		       "of what is allocated). Default: SODA_BUFFER, or 1/3, at least 16 MiB."),
	OPTION("threshold", 't', SIZE, threshold, .arg = "SIZE", .def = "1M", .min = 1,
	       .help = "Blocks of malloc and anonymous mappings of this size and more go to fabric "
		       "memory; smaller ones stay with the program's allocator."),
	OPTION("server", 's', STRING, server, .arg = "ADDRESS", .max = SODA_ADDRESS_MAX,
	       .help = "The memory server: tcp://HOST:PORT, or shm:///PATH. Default: SODA_SERVER, "
		       "or a private server, which ends with the program."),
	OPTION("dpu", 'd', STRING, dpu, .arg = "ADDRESS", .max = SODA_ADDRESS_MAX,
	       .help = "A DPU agent instead of a server: tcp://HOST:PORT, or unix:///PATH."),
	OPTION("stats", 0, BOOL, stats,
	       .help = "At the program's end print on standard error what it did with fabric "
		       "memory."),
	OPTION("report", 'r', STRING, report, .arg = "FILE.html",
	       .help = "At the program's end write a page that shows residency, faults and traffic "
		       "over time, and its numbers beside it, FILE.json. Where what draws it is "
		       "not installed (soda report), there are the numbers. The program is then a "
		       "child of soda."),
	OPTION("children", 0, BOOL, children,
	       .help = "Programs that this one starts have fabric memory of their own. Default: "
		       "none; but what it becomes has it: what a shell script ends with by exec, "
		       "what a shim stands for."),
};

static const struct soda_conf conf = {
	.program = "soda run",
	.summary = "run an unmodified program on fabric memory",
	.args = "-- PROGRAM [ARGUMENT]...",
	.description = "Runs PROGRAM with its large blocks and mappings in fabric memory: those of "
		       "malloc(3), its family and C++ new, and of mmap(2) where the mapping is "
		       "private, anonymous, readable and writable and nothing else is asked of it. "
		       "A library is loaded into the program by LD_PRELOAD; so it must be "
		       "dynamically linked, and not set-user-id.\n\n"
		       "System calls on such memory work through the C library's functions; "
		       "docs/limits.md lists those that do not. With SODA_MODE=handler and the "
		       "privilege to serve the kernel's own faults (root, or access to "
		       "/dev/userfaultfd) all of them do, and each fault costs two wake-ups more. "
		       "Chunks are of 16 KiB unless SODA_CHUNK says otherwise. The child of a fork "
		       "has no fabric memory, and other programs that it starts have none without "
		       "--children; what PROGRAM becomes by exec, as a wrapper does, has.",
	.epilogue = ".SH EXIT STATUS\nThat of PROGRAM; 126 it cannot be run, 127 it was not found "
		    "or there is no fabric memory, or the file of \\-\\-report cannot be written, "
		    "2 wrong usage.\n"
		    ".SH EXAMPLES\n.nf\n"
		    "soda run \\-\\-mem 1G \\-\\-stats \\-\\- sort \\-S 4G \\-o sorted words\n"
		    ".fi\n"
		    ".SH SEE ALSO\n.BR soda\\-report (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static void set_unless_null(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
}

static void set_environment(const struct options *opt, const char *library)
{
	const char *before = getenv("LD_PRELOAD");
	char list[2 * PATH_MAX], number[32];

	snprintf(list, sizeof(list), "%s%s%s", library, before && *before ? ":" : "",
		 before ? before : "");
	setenv("LD_PRELOAD", list, 1);
	setenv("SODA_RUN_LIBRARY", library, 1);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)opt->threshold);
	setenv("SODA_RUN_THRESHOLD", number, 1);
	setenv("SODA_RUN_STATS", opt->stats ? "1" : "0", 1);
	if (opt->children)
		setenv("SODA_RUN_CHILDREN", "1", 1);
	else
		unsetenv("SODA_RUN_CHILDREN");
	set_unless_null("SODA_BUFFER", opt->mem);
	set_unless_null("SODA_SERVER", opt->server);
	set_unless_null("SODA_DPU", opt->dpu);
	if (opt->server && !opt->dpu)
		unsetenv("SODA_DPU");
	if (opt->dpu && !opt->server)
		unsetenv("SODA_SERVER");
	/* small chunks: the program does not know of chunks, and may touch small pieces */
	setenv("SODA_CHUNK", "16K", 0);
}

/*
 * --report: the program runs as a child, because somebody must be left to write.  What it did is in
 * memory that it shares (base/run.h), so that a program that crashes has its page, too.  Its
 * numbers are written as JSON (format soda-run; tools/report reads it).
 */

static int complain(const char *path, const char *what)
{
	fprintf(stderr, "soda run: --report %s: %s\n", path, what);
	return -1;
}

#define AT(field) offsetof(struct soda_run_sample, field)

static const struct {
	const char *name;
	size_t offset;
} columns[] = {
	{ "at_ns", AT(at_ns) },	    { "reserved", AT(reserved) }, { "resident", AT(resident) },
	{ "buffer", AT(buffer) },   { "faults", AT(faults) },	  { "zero_fills", AT(zero_fills) },
	{ "fetched", AT(fetched) }, { "written", AT(written) },	  { "stalled_ns", AT(stalled_ns) },
};

/* The file that goes with a page: .json in the place of .html, or after the whole name. */
static void name_numbers(const char *page, char path[PATH_MAX])
{
	size_t n = strlen(page);

	if (n > 5 && strcmp(page + n - 5, ".html") == 0)
		n -= 5;
	snprintf(path, PATH_MAX, "%.*s.json", (int)n, page);
}

/* How many samples, from the first on, are in order: a program may end while it thins them out. */
static uint32_t in_order(const struct soda_run_samples *samples, struct soda_run_sample *out)
{
	uint32_t n = atomic_load(&samples->n), kept = 0;

	for (uint32_t i = 0; i < n && i < SODA_RUN_SAMPLES; i++)
		if (!kept || samples->samples[i].at_ns > out[kept - 1].at_ns)
			out[kept++] = samples->samples[i];
	return kept;
}

/* For each counter, the list of its values. */
static json_t *lists_of(const struct soda_run_samples *samples)
{
	static struct soda_run_sample s[SODA_RUN_SAMPLES];
	uint32_t n = in_order(samples, s);
	json_t *out = json_object();

	for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++) {
		json_t *list = json_array();

		for (uint32_t i = 0; i < n; i++) {
			uint64_t value;

			memcpy(&value, (const char *)&s[i] + columns[c].offset, sizeof(value));
			json_array_append_new(list, json_integer((json_int_t)value));
		}
		json_object_set_new(out, columns[c].name, list);
	}
	return out;
}

static json_t *command_of(char *const *argv)
{
	json_t *out = json_array();

	for (int i = 0; argv[i]; i++)
		json_array_append_new(out, soda_json_text_of(argv[i]));
	return out;
}

/* The SODA settings in the environment that the program had. */
static json_t *settings(void)
{
	static const char *const names[] = { "SODA_BUFFER",    "SODA_SERVER",	     "SODA_DPU",
					     "SODA_CHUNK",     "SODA_RUN_THRESHOLD", "SODA_MODE",
					     "SODA_MECHANISMS" };
	json_t *out = json_object();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]))
			json_object_set_new(out, names[i], soda_json_text_of(getenv(names[i])));
	return out;
}

/* 0, or -1 with one line on standard error. */
static int write_numbers(const char *path, char *const *argv, int status,
			 const struct soda_run_samples *samples)
{
	json_t *all =
		json_pack("{ss si so si so so so}", "format", "soda-run", "version", 1, "command",
			  command_of(argv), "status", status, "machine", soda_machine_describe(),
			  "settings", settings(), "samples", lists_of(samples));
	FILE *out = all ? fopen(path, "w") : NULL;
	int bad = !out;

	if (out) {
		bad = json_dumpf(all, out, JSON_COMPACT) || fputc('\n', out) == EOF;
		bad |= fclose(out);
	}
	json_decref(all);
	return bad ? complain(path, strerror(errno)) : 0;
}

static struct soda_run_samples *samples;
static char numbers[PATH_MAX]; /* the path of the JSON file */
static volatile sig_atomic_t child;

static int share(void)
{
	char number[16];
	int fd = memfd_create("soda-run-samples", 0); /* the program inherits it */

	if (fd < 0 || ftruncate(fd, sizeof(*samples)))
		return -1;
	samples = mmap(NULL, sizeof(*samples), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (samples == MAP_FAILED)
		return -1;
	samples->magic = SODA_RUN_SAMPLES_MAGIC;
	snprintf(number, sizeof(number), "%d", fd);
	return setenv("SODA_RUN_SAMPLES", number, 1);
}

/*
 * Before the program starts: that its numbers can be written, and the memory for samples, which
 * the program finds by its environment.  Whether a page can be drawn does not keep it from
 * running.  0, or -1 with one line on standard error.
 */
static int report_open(const char *path)
{
	int fd;

	name_numbers(path, numbers);
	fd = open(numbers, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return complain(numbers, strerror(errno));
	close(fd);
	return share() ? complain(path, strerror(errno)) : 0;
}

static void pass_on(int sig)
{
	int saved = errno;

	if (child > 0 && sig != SIGINT && sig != SIGQUIT) /* a terminal sends these to both */
		kill((pid_t)child, sig);
	errno = saved;
}

/* Signals stay blocked until the child's id is known, so that none of them misses the child. */
static void catch_signals(sigset_t *before)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
	struct sigaction sa = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigaction old;

		sigaddset(&set, signals[i]);
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL);
	}
	sigprocmask(SIG_BLOCK, &set, before);
}

/*
 * Run the program as a child that gets the signals of this process, and write its numbers and
 * the page; without what that needs the numbers remain, and it is said how the page is made.
 * Returns the exit status for `soda run`: the program's, or 128 + its signal.
 */
static int report_run(const char *path, const char *program, char **argv)
{
	sigset_t before;
	int status;
	pid_t pid;

	catch_signals(&before);
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		execv(program, argv);
		fprintf(stderr, "soda run: %s: %s\n", program, strerror(errno));
		_exit(126);
	}
	if (pid < 0) {
		fprintf(stderr, "soda run: no process for %s: %s\n", program, strerror(errno));
		return 126;
	}
	child = pid;
	unsetenv("LD_PRELOAD"); /* the package that draws must not run with libsoda-run.so */
	sigprocmask(SIG_SETMASK, &before, NULL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 126;
	child = 0;
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (!write_numbers(numbers, argv, status, samples))
		soda_report_make("soda run", numbers, path);
	return status;
}

int soda_command_run(int argc, char **argv)
{
	/* where this build has it, or where it is installed */
	static const char *const places[] = { "../../src/run/libsoda-run.so", SODA_RUN_LIBRARY,
					      NULL };
	struct options opt = { 0 };
	struct soda_conf_error err;
	struct soda_run_refusal why;
	char library[PATH_MAX], program[1024];
	int first;

	if (soda_conf_defaults(&conf, &opt, &err) ||
	    soda_conf_flags(&conf, argc, argv, &opt, &first, &err)) {
		fprintf(stderr, "soda run: %s\n", err.text);
		return SODA_EXIT_USAGE;
	}
	if (first >= argc) {
		fputs("soda run: which program? soda run [OPTION]... -- PROGRAM [ARGUMENT]...\n",
		      stderr);
		return SODA_EXIT_USAGE;
	}
	if (!soda_tool_find(places, library)) {
		fputs("soda run: libsoda-run.so is not there: this build has no jemalloc, or the "
		      "installation is not complete\n",
		      stderr);
		return 127;
	}
	if (soda_run_check(argv[first], program, sizeof(program), &why)) {
		fprintf(stderr, "soda run: %s\n", why.text);
		return why.status;
	}
	set_environment(&opt, library);
	if (opt.report)
		return report_open(opt.report) ? 127
					       : report_run(opt.report, program, argv + first);
	execv(program, argv + first);
	fprintf(stderr, "soda run: %s: %s\n", program, strerror(errno));
	return 126;
}
