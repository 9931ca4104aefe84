/* SPDX-License-Identifier: BSD-3-Clause */
#include "seeds.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fibers.h"
#include "nodes.h"

enum {
	SECONDS = 8, /* of processor time, a seed */
	LISTED_MAX = 1000
};

long sim_watched_chunk = -1;

static const struct sim_seeds *program;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* A crash is a verdict, too. */
static void crashed(int signal)
{
	sim_fail("CRASH: %s", strsignal(signal));
}

/* Of its own time, not of a busy machine's. */
static void limit_time(int seconds)
{
	const struct itimerval limit = { .it_value.tv_sec = seconds };

	setitimer(ITIMER_PROF, &limit, NULL);
}

static void catch_crashes(void)
{
	static char stack[64 << 10];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_handler = crashed, .sa_flags = SA_ONSTACK };

	sigaltstack(&alternate, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGABRT, &sa, NULL);
	sigaction(SIGFPE, &sa, NULL);
	sigaction(SIGPROF, &sa, NULL);
}

/* True: it passed. What it says is in text. */
static bool in_child(uint64_t seed, enum sim_notes notes, char *text, size_t room, int *status_p)
{
	int out = memfd_create("seed", 0);
	ssize_t n;
	pid_t pid = fork();

	if (!pid) {
		sim_notes = notes;
		if (notes != SIM_NOTES_PRINTED)
			dup2(out, 1);
		catch_crashes();
		limit_time(notes ? 10 * SECONDS : SECONDS);
		program->one(seed);
		fflush(stdout);
		exit(0);
	}
	waitpid(pid, status_p, 0);
	n = pread(out, text, room - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close(out);
	return WIFEXITED(*status_p) && !WEXITSTATUS(*status_p);
}

/* The line of the verdict. */
static void verdict_of(const char *text, int status, char out[400])
{
	const char *at = strstr(text, "VERDICT: ");

	if (at)
		snprintf(out, 400, "%.*s", (int)strcspn(at, "\n"), at);
	else if (WIFSIGNALED(status))
		snprintf(out, 400, "VERDICT: %s", strsignal(WTERMSIG(status)));
	else
		snprintf(out, 400, "VERDICT: it ended with %d", WEXITSTATUS(status));
}

/* A seed that fails runs once more, to say how: it must fail in the same way. */
static bool one(uint64_t seed, enum sim_notes notes, bool quiet)
{
	static char text[4 << 20];
	char verdict[400], again[400];
	int status = 0;

	if (in_child(seed, notes, text, sizeof(text), &status))
		return true;
	if (notes)
		return false;
	verdict_of(text, status, verdict);
	printf("seed %llu: %s\n", (unsigned long long)seed, verdict);
	if (!quiet) {
		in_child(seed, SIM_NOTES_KEPT, text, sizeof(text), &status);
		verdict_of(text, status, again);
		fputs(text, stdout);
		if (strcmp(verdict, again))
			printf("the second run of seed %llu ended otherwise: %s\n",
			       (unsigned long long)seed, again);
		printf("seed %llu failed; again: %s --seed %llu --trace\n",
		       (unsigned long long)seed, program->name, (unsigned long long)seed);
	}
	fflush(stdout);
	return false;
}

/*
 * A number begins a line; what follows it, and lines without one, are words.  All is read before
 * the first one runs: a child that ends sets the offset of what it has in common with us.  False:
 * no such file.
 */
static bool run_list(const char *path, bool quiet, uint64_t *passed_p, uint64_t *failed_p)
{
	unsigned long long seeds[LISTED_MAX];
	FILE *f = fopen(path, "re");
	char line[512];
	size_t n = 0;

	if (!f) {
		perror(path);
		return false;
	}
	while (n < LISTED_MAX && fgets(line, sizeof(line), f))
		n += sscanf(line, "%llu", &seeds[n]) == 1;
	fclose(f);
	for (size_t i = 0; i < n; i++) {
		if (one(seeds[i], SIM_NOTES_NONE, quiet))
			++*passed_p;
		else
			++*failed_p;
	}
	return true;
}

int sim_seeds_main(int argc, char **argv, const struct sim_seeds *what)
{
	static const struct option options[] = {
		{ "seeds", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "first", required_argument, NULL, 'f' },
		{ "seconds", required_argument, NULL, 't' },
		{ "list", required_argument, NULL, 'l' }, /* of seeds that run before the others */
		{ "until-failure", no_argument, NULL, 'u' },
		{ "pool", no_argument, NULL, 'p' }, /* only seeds with several servers */
		{ "watch", required_argument, NULL, 'w' },
		{ "trace", no_argument, NULL, 'v' },
		{ "quiet", no_argument, NULL, 'q' },
		{ NULL, 0, NULL, 0 },
	};
	uint64_t first = 1, seeds = 100, passed = 0, failed = 0;
	double began = now(), seconds = 0;
	bool quiet = false, stops = false, pools = false;
	const char *list = NULL;
	enum sim_notes notes = SIM_NOTES_NONE;
	int c;

	program = what;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'n':
			seeds = strtoull(optarg, NULL, 0);
			break;
		case 's':
			first = strtoull(optarg, NULL, 0);
			seeds = 1;
			break;
		case 'f':
			first = strtoull(optarg, NULL, 0);
			break;
		case 'l':
			list = optarg;
			break;
		case 't':
			seconds = strtod(optarg, NULL);
			break;
		case 'u':
			stops = true;
			break;
		case 'p':
			pools = program->has_pool;
			break;
		case 'v':
			notes = SIM_NOTES_PRINTED;
			break;
		case 'w':
			sim_watched_chunk = atol(optarg);
			break;
		case 'q':
			quiet = true;
			break;
		default:
			return 2;
		}
	sim_at_failure = program->say;
	/* What was freed is used again: another page costs more than all that a seed does with it.
	 */
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TOP_PAD, 1 << 20);
	sim_prepare();
	sim_memory_prepare();
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (list && !run_list(list, quiet, &passed, &failed))
		return 2;
	for (uint64_t i = 0;
	     i < seeds && !(stops && failed) && !(seconds > 0 && now() - began > seconds); i++) {
		if (pools && !program->has_pool(first + i))
			continue;
		if (one(first + i, notes, quiet))
			passed++;
		else
			failed++;
		if (failed && stops)
			break;
	}
	printf("%llu passed, %llu failed, 0 skipped (seeds from %llu on; %.1f s)\n",
	       (unsigned long long)passed, (unsigned long long)failed, (unsigned long long)first,
	       now() - began);
	return failed ? 1 : 0;
}
