/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program runs as a child here, because somebody must be left to write.  What it did is in
 * memory that it shares (base/run_samples.h), so that a program that crashes has its page, too.
 */
#include "soda/run/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/run_samples.h"
#include "soda/report/make.h"
#include "soda/run/numbers.h"

static struct soda_run_samples *samples;
static char numbers[PATH_MAX]; /* the file of them */
static volatile sig_atomic_t child;

static int complain(const char *path, const char *what)
{
	fprintf(stderr, "soda run: --report %s: %s\n", path, what);
	return -1;
}

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

int soda_run_report_open(const char *path)
{
	int fd;

	soda_run_numbers_name(path, numbers);
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

/* Blocked until the child has been told apart: it would miss what comes before. */
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

int soda_run_report_run(const char *path, const char *program, char **argv)
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
	unsetenv("LD_PRELOAD"); /* what draws is no part of it */
	sigprocmask(SIG_SETMASK, &before, NULL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 126;
	child = 0;
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (!soda_run_numbers_write(numbers, argv, status, samples))
		soda_report_make("soda run", numbers, path);
	return status;
}
