/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/run/parent.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t child;

/* A terminal sends these two to both processes, and the kernel tells so; kill(2) to this one. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	bool both = (sig == SIGINT || sig == SIGQUIT) && info->si_code == SI_KERNEL;
	int saved = errno;

	(void)context;
	if (child > 0 && !both)
		kill((pid_t)child, sig);
	errno = saved;
}

/* Signals stay blocked until the child's id is known, so that none of them misses the child. */
static void catch_signals(sigset_t *before)
{
	static const int signals[] = { SIGINT,	SIGQUIT, SIGTERM,  SIGHUP, SIGUSR1,
				       SIGUSR2, SIGALRM, SIGWINCH, SIGCONT };
	struct sigaction sa = { .sa_sigaction = pass_on, .sa_flags = SA_RESTART | SA_SIGINFO };
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

static _Noreturn void become(const char *program, char **argv, pid_t parent)
{
	/* nothing else would: the program is not told when this process is killed */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent) {
		execv(program, argv);
		fprintf(stderr, "soda run: %s: %s\n", program, strerror(errno));
	}
	_exit(126);
}

int soda_run_as_child(const char *program, char **argv, struct soda_tree *tree, const char *library,
		      const struct soda_run_registry *registry)
{
	pid_t self = getpid(), pid;
	sigset_t before;
	int status;

	catch_signals(&before);
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		become(program, argv, self);
	}
	if (pid < 0) {
		fprintf(stderr, "soda run: no process for %s: %s\n", program, strerror(errno));
		return -1;
	}
	child = pid;
	unsetenv("LD_PRELOAD");
	if (tree) /* now: a fork of a process with threads could do less */
		soda_run_serve(tree, library);
	if (tree && registry)
		soda_run_watch(tree, registry);
	sigprocmask(SIG_SETMASK, &before, NULL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) {
			status = -1;
			break;
		}
	child = 0;
	soda_run_unwatch();
	return status;
}

int soda_run_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int soda_run_end_as(int status)
{
	const struct rlimit no_core = { 0, 0 }; /* the program's own is there */
	sigset_t set;

	if (WIFSIGNALED(status)) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(WTERMSIG(status), SIG_DFL);
		sigemptyset(&set);
		sigaddset(&set, WTERMSIG(status));
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		fflush(NULL);
		raise(WTERMSIG(status));
	}
	return soda_run_status(status);
}
