/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program becomes another one: exec in the process that `soda run` has started.  It may have
 * been a wrapper, a shell script or a shim, so what it becomes gets the library and the settings,
 * which the environment does not have any more: children would find them there, and have none.
 * Before that the wrapper gives back to the server what it has itself.
 */
#include "run/wrap/near.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/run.h"
#include "host_agent/life/start.h"

enum { KEPT_MAX = 64 };

/* What all of them come down to; found at the start, because handlers of signals call them, too. */
static int (*next_execve)(const char *, char *const *, char *const *);
static int (*next_execvpe)(const char *, char *const *, char *const *);
static int (*next_fexecve)(int, char *const *, char *const *);
static int (*next_execveat)(int, const char *, char *const *, char *const *, int);

/* Set before the program starts, then constant. */
static pid_t self;	     /* the process that this is about; 0: none */
static const char *library;  /* its path; NULL: it was not `soda run` that has loaded it */
static bool alone;	     /* children have none */
static char *kept[KEPT_MAX]; /* "SODA_X=value", of the environment at the start */
static size_t kept_n;
static long children_before; /* page faults of children, of whoever was this process before */
static bool quiet;	     /* no warnings are wanted */

static long children_faults(void)
{
	struct rusage u;

	return getrusage(RUSAGE_CHILDREN, &u) ? 0 : u.ru_minflt;
}

void run_become_start(bool children)
{
	const char *level = getenv("SODA_LOG"), *path = getenv("SODA_RUN_LIBRARY");

	RUN_NEXT(next_execve, "execve");
	RUN_NEXT(next_execvpe, "execvpe");
	RUN_NEXT(next_fexecve, "fexecve");
	RUN_NEXT(next_execveat, "execveat");
	self = getpid();
	quiet = level && !strcmp(level, "error");
	children_before = children_faults();
	alone = !children;
	if (!path)
		return;
	for (char **v = environ; *v && kept_n < KEPT_MAX; v++)
		if (!strncmp(*v, "SODA_", 5) && (kept[kept_n] = strdup(*v)))
			kept_n++;
	library = strdup(path);
}

/* Where the environment has that variable, or NULL. */
static char *const *find(char *const *env, const char *variable)
{
	size_t n = strcspn(variable, "=") + 1;

	for (; env && *env; env++)
		if (!strncmp(*env, variable, n))
			return env;
	return NULL;
}

/* In a piece of local memory, which the caller gives back if the program goes on. */
struct becoming {
	void *place;
	size_t bytes;
};

static const char preload[] = "LD_PRELOAD=";

/* The environment with what was taken out of it; as it is, where somebody has seen to that. */
static char *const *complete(struct becoming *b, char *const *env)
{
	char *const *given = find(env, preload), **all, *list, *samples;
	const char *others = given ? *given + strlen(preload) : "";
	size_t n = 0, list_bytes = strlen(preload) + strlen(library) + strlen(others) + 2;
	bool has = strstr(others, library);

	while (env && env[n])
		n++;
	b->place = run_bounce_get((n + kept_n + 3) * sizeof(*all) + list_bytes, &b->bytes);
	if (!b->place)
		return env;
	samples = run_samples_keep();
	all = b->place;
	list = (char *)(all + n + kept_n + 3);
	stpcpy(stpcpy(stpcpy(stpcpy(list, preload), library), *others ? ":" : ""), others);
	n = 0;
	if (!has)
		all[n++] = list;
	for (size_t i = 0; env && env[i]; i++)
		if (has || strncmp(env[i], preload, strlen(preload)) != 0)
			all[n++] = env[i];
	for (size_t i = 0; !has && i < kept_n; i++)
		if (!find(env, kept[i]))
			all[n++] = kept[i];
	if (samples && !find(env, samples))
		all[n++] = samples;
	all[n] = NULL;
	return all;
}

/*
 * What this program has of the server's is the server's when the next one asks.  If it does not
 * become another one after all it goes on with what it has; only a lost connection is not made
 * anew.
 */
static void let_go(void)
{
	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
		return;
	if (!soda_lock_try(
		    &soda_agent.api_lock)) /* a handler came in: the server finds out later */
		return;
	soda_lock_release(&soda_agent.api_lock);
	soda_agent_leave();
}

/*
 * Before an exec of `name`, found in the PATH if `search`: the environment that it gets.  Where it
 * will fail, and the program goes on, nothing happens.  A child, also one of vfork(2), which has
 * this memory, is none of our business.
 */
static char *const *prepare(struct becoming *b, const char *name, bool search, char *const *env)
{
	struct soda_run_refusal why;
	char path[4096], here[4096];
	int saved = errno;
	bool fits;

	*b = (struct becoming){ NULL, 0 };
	if (getpid() != self || !name)
		return env;
	run_inside++;
	if (!search && !strchr(name, '/') && strlen(name) + 3 <= sizeof(here)) {
		stpcpy(stpcpy(here, "./"), name);
		name = here;
	}
	fits = !soda_run_check(name, path, sizeof(path), &why);
	if (fits || why.runs)
		let_go();
	if (fits && library)
		env = complete(b, env);
	if (!fits && why.runs && library && !quiet)
		soda_log_warning("soda run: no fabric memory for what comes now: %s", why.text);
	run_inside--;
	errno = saved;
	return env;
}

/* The program goes on. */
static int failed(struct becoming *b, struct run_near *near)
{
	int saved = errno;

	if (b->place) {
		run_samples_keep_not();
		run_bounce_put(b->place, b->bytes);
	}
	run_near_end(near);
	errno = saved;
	return -1;
}

static int become(const char *path, char *const *argv, char *const *envp, bool search)
{
	struct run_near near = { 0 };
	struct becoming b;

	RUN_NEXT(next_execve, "execve");
	RUN_NEXT(next_execvpe, "execvpe");
	STRING(path);
	STRINGS(argv);
	STRINGS(envp);
	envp = prepare(&b, path, search, envp);
	search ? next_execvpe(path, argv, envp) : next_execve(path, argv, envp);
	return failed(&b, &near);
}

RUN_API int execve(const char *path, char *const *argv, char *const *envp)
{
	return become(path, argv, envp, false);
}

RUN_API int execvpe(const char *path, char *const *argv, char *const *envp)
{
	return become(path, argv, envp, true);
}

/* With the program's own environment, which putenv(3) may have led to fabric memory. */
RUN_API int execv(const char *path, char *const *argv)
{
	return become(path, argv, environ, false);
}

RUN_API int execvp(const char *path, char *const *argv)
{
	return become(path, argv, environ, true);
}

/* Arguments in a row, as many as come before the NULL; the first has a name. */
static size_t count(va_list ap)
{
	size_t n = 1;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/* By its address: execle() goes on behind them. */
static void collect(char **argv, const char *first, va_list *ap)
{
	*argv = (char *)(uintptr_t)first;
	while ((*++argv = va_arg(*ap, char *)))
		;
}

/* On the stack: a child of vfork(2) would take memory from its parent for good. */
#define IN_A_ROW(name, environment, search)                                                        \
	RUN_API int name(const char *path, const char *first, ...)                                 \
	{                                                                                          \
		va_list ap;                                                                        \
		char **argv;                                                                       \
		int ret;                                                                           \
                                                                                                   \
		va_start(ap, first);                                                               \
		argv = __builtin_alloca((count(ap) + 1) * sizeof(*argv));                          \
		va_end(ap);                                                                        \
		va_start(ap, first);                                                               \
		collect(argv, first, &ap);                                                         \
		ret = become(path, argv, environment, search);                                     \
		va_end(ap);                                                                        \
		return ret;                                                                        \
	}

IN_A_ROW(execl, environ, false)
IN_A_ROW(execlp, environ, true)
IN_A_ROW(execle, va_arg(ap, char *const *), false)

/* By descriptor: what can be loaded into is looked at where /proc has it. */
static void path_of(char path[64], int fd)
{
	snprintf(path, 64, "/proc/self/fd/%d", fd);
}

RUN_API int fexecve(int fd, char *const *argv, char *const *envp)
{
	struct run_near near = { 0 };
	struct becoming b;
	char path[64];

	RUN_NEXT(next_fexecve, "fexecve");
	STRINGS(argv);
	STRINGS(envp);
	path_of(path, fd);
	envp = prepare(&b, path, false, envp);
	next_fexecve(fd, argv, envp);
	return failed(&b, &near);
}

RUN_API int execveat(int dir, const char *path, char *const *argv, char *const *envp, int flags)
{
	struct run_near near = { 0 };
	struct becoming b;
	char whole[4096];

	RUN_NEXT(next_execveat, "execveat");
	STRING(path);
	STRINGS(argv);
	STRINGS(envp);
	if (*path == '/' || dir == AT_FDCWD)
		snprintf(whole, sizeof(whole), "%s", path);
	else
		snprintf(whole, sizeof(whole), "/proc/self/fd/%d%s%s", dir, *path ? "/" : "", path);
	envp = prepare(&b, whole, false, envp);
	next_execveat(dir, path, argv, envp, flags);
	return failed(&b, &near);
}

void run_become_end(void)
{
	if (!library || !alone || quiet || getpid() != self ||
	    atomic_load(&soda_agent.life) != SODA_LIFE_NEW || children_faults() == children_before)
		return;
	quiet = true;
	dprintf(run_settings.stats_fd >= 0 ? run_settings.stats_fd : STDERR_FILENO,
		"soda run: %s used no fabric memory, and the programs that it started had none: "
		"soda run --children gives them theirs\n",
		program_invocation_short_name);
}

/* Without exit handlers, as some shells end. */
RUN_API _Noreturn void _exit(int status)
{
	run_become_end();
	for (;;)
		syscall(SYS_exit_group, status);
}

RUN_API _Noreturn void _Exit(int status)
{
	_exit(status);
}
