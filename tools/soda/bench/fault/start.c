/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench start`: how long from fork to the first fault served, in a program with
 * the embedded server and nothing configured.  Two faults are timed: the first touch of
 * the object, and the first fetch from the server of a chunk that was evicted.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/fault/fault.h"
#include "soda/bench/worker/summary.h"

struct options {
	uint64_t size;
	uint32_t runs;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("size", 's', SIZE, size, .arg = "SIZE", .def = "16M", .min = 65536,
	       .max = 1ull << 40, .help = "Size of the object."),
	OPTION("runs", 'r', UINT, runs, .arg = "N", .def = "9", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX,
	       .help = "Processes to start; the results are medians."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = "soda bench start",
	.summary = "measure the time to the first fault",
	.args = "",
	.description = "Starts a program that allocates one object, with no server configured, and "
		       "touches it. Reports the time from before fork() until the first touch is "
		       "served (the library and its private server are then up), and until a chunk "
		       "that was evicted is fetched back from that server.",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* From the program under test, CLOCK_MONOTONIC. */
struct marks {
	int32_t err;
	uint32_t pad;
	uint64_t touched_ns, fetched_ns;
	char why[256];
};

static int run_program(uint64_t bytes, struct marks *marks)
{
	const uint64_t value = 0x736f6461;
	volatile uint64_t *words = soda_alloc(bytes, 0);

	if (!words)
		return -errno;
	words[0] = value;
	marks->touched_ns = soda_now_ns();
	int err = soda_advise((void *)(uintptr_t)words, 1, SODA_COLD);
	if (err)
		return err;
	if (words[0] != value)
		return -EILSEQ;
	marks->fetched_ns = soda_now_ns();
	return 0;
}

int soda_bench_start_program(int fd, uint64_t bytes)
{
	struct marks marks = { 0 };

	marks.err = run_program(bytes, &marks);
	if (marks.err)
		snprintf(marks.why, sizeof(marks.why), "%s",
			 marks.err == -EILSEQ ? "wrong value fetched" : soda_last_error());
	return write(fd, &marks, sizeof(marks)) == (ssize_t)sizeof(marks) ? 0 : 1;
}

/* Never returns. */
static void exec_program(int fd, uint64_t bytes)
{
	char number[16], size[32];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	unsetenv("SODA_SERVER");
	unsetenv("SODA_DPU");
	execl("/proc/self/exe", "soda", "bench", ".start", number, size, (char *)NULL);
	_exit(127);
}

static int start_once(uint64_t bytes, double *touch_ms_p, double *fetch_ms_p)
{
	struct marks marks = { .err = -ECHILD, .why = "the program ended early" };
	uint64_t began;
	int ends[2], err = 0;
	pid_t pid;

	if (pipe(ends)) {
		perror("soda bench start: pipe");
		return -errno;
	}
	began = soda_now_ns();
	pid = fork();
	if (pid == 0)
		exec_program(ends[1], bytes);
	close(ends[1]);
	if (pid > 0 && read(ends[0], &marks, sizeof(marks)) != (ssize_t)sizeof(marks))
		marks.err = -ECHILD;
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	err = marks.err;
	if (err) {
		fprintf(stderr, "soda bench start: %s (%s)\n", marks.why, strerror(-err));
		return err;
	}
	*touch_ms_p = (double)(marks.touched_ns - began) / 1e6;
	*fetch_ms_p = (double)(marks.fetched_ns - began) / 1e6;
	return 0;
}

static double largest(const double *values, uint32_t n)
{
	double most = 0;

	for (uint32_t i = 0; i < n; i++)
		if (values[i] > most)
			most = values[i];
	return most;
}

static int report(const struct options *opt, const double *touch, const double *fetch)
{
	double touch_ms = soda_bench_median(touch, opt->runs);
	double fetch_ms = soda_bench_median(fetch, opt->runs);

	if (!opt->json) {
		printf("first touch served  %8.2f ms  (at most %.2f)\n"
		       "first chunk fetched %8.2f ms  (at most %.2f)\n"
		       "medians of %u programs started\n",
		       touch_ms, largest(touch, opt->runs), fetch_ms, largest(fetch, opt->runs),
		       opt->runs);
		return fflush(stdout);
	}
	json_t *out = json_pack("{s:s, s:i, s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "format",
				"soda-bench-start", "version", 1, "bench", "start", "size",
				(json_int_t)opt->size, "runs", (json_int_t)opt->runs,
				"ms_first_touch", touch_ms, "ms_first_touch_max",
				largest(touch, opt->runs), "ms_first_fetch", fetch_ms,
				"ms_first_fetch_max", largest(fetch, opt->runs));
	return soda_json_print(out);
}

int soda_command_bench_start(int argc, char **argv)
{
	double touch[SODA_BENCH_ROUNDS_MAX], fetch[SODA_BENCH_ROUNDS_MAX];
	struct options opt = { 0 };

	if (soda_tool_options(&conf, argc, argv, &opt, NULL, 0) < 0)
		return SODA_EXIT_USAGE;
	for (uint32_t i = 0; i < opt.runs; i++)
		if (start_once(opt.size, &touch[i], &fetch[i]))
			return SODA_EXIT_FAILED;
	return report(&opt, touch, fetch) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}
