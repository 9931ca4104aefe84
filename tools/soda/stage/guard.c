/* SPDX-License-Identifier: BSD-3-Clause */
/* Run the work in a child, and clean up however that child ends. */
#include "soda/stage/guard.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soda/base/tool.h"
#include "soda/stage/cgroup.h"
#include "soda/stage/link.h"

enum { ORPHANS_TRIES = 500, ORPHANS_PAUSE_MS = 10 };

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

/*
 * Processes that the child had started are dying, and are children of this process now: wait for
 * them, because links and cgroups can be removed only then.
 */
static void reap_orphans(void)
{
	const struct timespec pause = { .tv_nsec = ORPHANS_PAUSE_MS * 1000000l };

	for (int i = 0; i < ORPHANS_TRIES; i++) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0 && errno == ECHILD)
			return;
		if (pid == 0)
			nanosleep(&pause, NULL);
	}
	fprintf(stderr, "soda: a process that it had started does not end\n");
}

static void clean(const struct soda_bench_work *work, void *arg,
		  const struct soda_bench_guarded *guarded)
{
	reap_orphans();
	if (work->clean)
		work->clean(arg, guarded);
	soda_bench_link_remove(guarded->owner);
	soda_cgroup_remove(guarded->owner);
	nftw(guarded->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Wait until the child ends, or for one of the wanted signals; says which. */
static int await(pid_t pid, const sigset_t *wanted, int *status_p)
{
	for (;;) {
		int sig = sigwaitinfo(wanted, NULL);

		if (sig > 0 && sig != SIGCHLD)
			return sig;
		if (waitpid(pid, status_p, WNOHANG) == pid)
			return 0;
	}
}

static int guard(pid_t pid, const sigset_t *wanted, const struct soda_bench_work *work, void *arg,
		 const struct soda_bench_guarded *guarded)
{
	int status = 0, sig = await(pid, wanted, &status);

	if (sig) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	clean(work, arg, guarded);
	if (sig)
		return 128 + sig;
	if (WIFSIGNALED(status)) {
		fprintf(stderr, "soda: ended by signal %d (%s)\n", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
		return 128 + WTERMSIG(status);
	}
	return WEXITSTATUS(status);
}

int soda_bench_guard_run(const struct soda_bench_work *work, void *arg)
{
	struct soda_bench_guarded guarded = { .owner = getpid() };
	const char *tmp = getenv("TMPDIR");
	sigset_t wanted, before;
	pid_t pid;

	if (snprintf(guarded.dir, sizeof(guarded.dir), "%s/soda-bench-XXXXXX",
		     tmp && *tmp ? tmp : "/tmp") >= (int)sizeof(guarded.dir) ||
	    !mkdtemp(guarded.dir)) {
		fprintf(stderr, "soda: no temporary directory in %s: %s\n",
			tmp && *tmp ? tmp : "/tmp", strerror(errno));
		return SODA_EXIT_FAILED;
	}
	soda_bench_link_sweep();
	soda_cgroup_sweep();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	sigaddset(&wanted, SIGINT);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGHUP);
	sigprocmask(SIG_BLOCK, &wanted, &before);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		exit(work->run(arg, &guarded));
	}
	if (pid > 0)
		return guard(pid, &wanted, work, arg, &guarded);
	fprintf(stderr, "soda: fork: %s\n", strerror(errno));
	clean(work, arg, &guarded);
	return SODA_EXIT_FAILED;
}
