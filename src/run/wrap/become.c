/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec in the process that `soda run` has started.  The program may be a shell script or a shim, so
 * the program that it becomes gets the library and the settings again, whether they were taken out
 * of the environment at the start, so that children do not get them, or the program has taken them
 * out of it.  Where children have fabric memory, what they become by exec or are started as by
 * posix_spawn gets them, too.
 * Before the exec this program gives the memory that it has back to the server.
 */
#include "run/wrap/near.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
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

enum { KEPT_MAX = 64, STACK_MAX = 128 << 10 };

/* All wrappers call these; found at the start, because signal handlers call exec, too. */
static int (*next_execve)(const char *, char *const *, char *const *);
static int (*next_execvpe)(const char *, char *const *, char *const *);
static int (*next_fexecve)(int, char *const *, char *const *);
static int (*next_execveat)(int, const char *, char *const *, char *const *, int);

/* Set before the program starts, then constant. */
static pid_t self;	    /* the process that `soda run` has started, or a fork of it; 0: none */
static bool forked;	    /* it is a fork */
static const char *library; /* path of this library; NULL: it was not `soda run` that loaded it */
static enum run_children children;
static char *kept[KEPT_MAX]; /* "SODA_X=value", of the environment at the start */
static size_t kept_n;
static long children_before; /* page faults of this process's children before this program */
static bool quiet;	     /* SODA_LOG asks for no warnings */

static long children_faults(void)
{
	struct rusage u;

	return getrusage(RUSAGE_CHILDREN, &u) ? 0 : u.ru_minflt;
}

/* In the child of a fork, not of vfork(2), where children have fabric memory. */
static void own_process(void)
{
	self = getpid();
	forked = true;
}

void run_become_start(enum run_children given)
{
	const char *level = getenv("SODA_LOG"), *path = getenv("SODA_RUN_LIBRARY");

	RUN_NEXT(next_execve, "execve");
	RUN_NEXT(next_execvpe, "execvpe");
	RUN_NEXT(next_fexecve, "fexecve");
	RUN_NEXT(next_execveat, "execveat");
	self = getpid();
	quiet = run_settings.quiet || (level && !strcmp(level, "error"));
	children_before = children_faults();
	children = given;
	if (!path || children == RUN_CHILDREN_NONE)
		return;
	if (children == RUN_CHILDREN_ALL)
		pthread_atfork(NULL, NULL, own_process);
	for (char **v = environ; *v && kept_n < KEPT_MAX; v++)
		if (!strncmp(*v, "SODA_", 5) && (kept[kept_n] = strdup(*v)))
			kept_n++;
	library = strdup(path);
}

/* The environment's entry for the same variable, or NULL. */
static char *const *find(char *const *env, const char *variable)
{
	size_t n = strcspn(variable, "=") + 1;

	for (; env && *env; env++)
		if (!strncmp(*env, variable, n))
			return env;
	return NULL;
}

/* Local memory with an environment; the caller frees it if the exec fails. */
struct becoming {
	void *place;
	size_t bytes;
};

static const char preload[] = "LD_PRELOAD=";

/*
 * The environment with what was taken out of it at the start; its LD_PRELOAD as it is if that names
 * the library already.  It is made in `place`, or, if that is NULL, in memory of b's.
 */
static char *const *complete(struct becoming *b, char *const *env, void *place, size_t bytes)
{
	char *const *given = find(env, preload), **all, *list, *samples;
	const char *others = given ? *given + strlen(preload) : "";
	size_t n = 0, list_bytes = strlen(preload) + strlen(library) + strlen(others) + 2;
	bool has = strstr(others, library);

	while (env && env[n])
		n++;
	list_bytes += (n + kept_n + 3) * sizeof(*all);
	if (!place)
		place = b->place = run_bounce_get(list_bytes, &b->bytes);
	else if (list_bytes > bytes)
		return env;
	if (!place)
		return env;
	samples = getpid() == self && !forked ? run_samples_keep() : NULL;
	all = place;
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
 * Tell the server to free this program's memory when it ends, so that the next program can have it.
 * If the exec fails after all, this program goes on with its memory; only a lost connection is not
 * made anew.
 */
static void let_go(void)
{
	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
		return;
	/*
	 * false: this is a signal handler, and the server will learn it from the connections' end
	 */
	if (!soda_lock_try(&soda_agent.api_lock))
		return;
	soda_lock_release(&soda_agent.api_lock);
	soda_agent_leave();
}

/* For the line about a program that nothing can be loaded into. */
static void tell(const char *path, const struct soda_run_refusal *why)
{
	if (getpid() == self && !forked)
		soda_log_warning("soda run: no fabric memory for what comes now: %s", why->text);
	else if (run_share_first(path)) /* the log's lock may be held for ever in a fork */
		dprintf(STDERR_FILENO, "soda run: no fabric memory for a child: %s\n", why->text);
}

/*
 * To be called before an exec of `name`, looked for in the PATH if `search`: returns the
 * environment to use.  Does nothing if the exec will fail, nor in a child that gets no fabric
 * memory.  A child of vfork(2) shares this memory, so that it has the environment made in `place`,
 * on its stack; NULL: not at all.  spawn: this process goes on, and starts `name` as another one.
 */
static char *const *prepare(struct becoming *b, const char *name, bool search, char *const *env,
			    void *place, size_t bytes, bool spawn)
{
	bool here_only = !search && name && !strchr(name, '/'), mine = getpid() == self;
	struct soda_run_refusal why;
	char path[4096], here[4096];
	int saved = errno;
	bool fits;

	*b = (struct becoming){ NULL, 0 };
	if (!name || run_inside ||
	    ((!mine || spawn) && (children != RUN_CHILDREN_ALL || !(place || mine))))
		return env;
	run_inside++;
	if (here_only && strlen(name) + 3 <= sizeof(here)) {
		stpcpy(stpcpy(here, "./"), name);
		name = here;
	}
	fits = !soda_run_check(name, path, sizeof(path), &why);
	if (mine && !spawn && (fits || why.runs))
		let_go();
	if (fits && library)
		env = complete(b, env, mine ? NULL : place, bytes);
	if (!fits && why.runs && library && !quiet)
		tell(path, &why);
	run_inside--;
	errno = saved;
	return env;
}

/* The exec has failed, and the program goes on. */
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

/* How many bytes complete() may need for this environment; 0: it needs nothing, or too much. */
static size_t room(char *const *env)
{
	char *const *list = find(env, preload);
	size_t n = 0, bytes;

	if (!library || children != RUN_CHILDREN_ALL)
		return 0;
	while (env && env[n])
		n++;
	bytes = strlen(preload) + strlen(library) + (list ? strlen(*list) : 0) + 2 +
		(n + kept_n + 3) * sizeof(*env);
	return bytes <= STACK_MAX ? bytes : 0;
}

static int become(const char *path, char *const *argv, char *const *envp, bool search)
{
	size_t bytes = getpid() == self ? 0 : room(envp);
	void *place = bytes ? __builtin_alloca(bytes) : NULL;
	struct run_near near = { 0 };
	struct becoming b;

	RUN_NEXT(next_execve, "execve");
	RUN_NEXT(next_execvpe, "execvpe");
	STRING(path);
	STRINGS(argv);
	STRINGS(envp);
	envp = prepare(&b, path, search, envp, place, bytes, false);
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

/* With the program's environment, which may be in fabric memory after putenv(3). */
RUN_API int execv(const char *path, char *const *argv)
{
	return become(path, argv, environ, false);
}

RUN_API int execvp(const char *path, char *const *argv)
{
	return become(path, argv, environ, true);
}

/* How many arguments there are before the NULL, with the first, which is a named parameter. */
static size_t count(va_list ap)
{
	size_t n = 1;

	while (va_arg(ap, char *))
		n++;
	return n;
}

/* Collect them into argv. ap by its address, because execle() takes another argument after them. */
static void collect(char **argv, const char *first, va_list *ap)
{
	*argv = (char *)(uintptr_t)first;
	while ((*++argv = va_arg(*ap, char *)))
		;
}

/* argv is on the stack: memory that a child of vfork(2) allocates would be lost to its parent. */
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

/* The path in /proc of a descriptor's file, by which prepare() looks at it. */
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
	envp = prepare(&b, path, false, envp, NULL, 0, false);
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
	envp = prepare(&b, whole, false, envp, NULL, 0, false);
	next_execveat(dir, path, argv, envp, flags);
	return failed(&b, &near);
}

/* As the exec family, but that this process goes on. */
#define SPAWNS(name, search)                                                                       \
	RUN_API int name(pid_t *restrict pid, const char *restrict path,                           \
			 const posix_spawn_file_actions_t *restrict actions,                       \
			 const posix_spawnattr_t *restrict attr, char *const *restrict argv,       \
			 char *const *restrict env)                                                \
	{                                                                                          \
		static __typeof__(&name) next;                                                     \
		struct run_near near = { 0 };                                                      \
		char *const *argv_near = argv, *const *env_near = env;                             \
		const char *path_near = path;                                                      \
		struct becoming b;                                                                 \
		int ret;                                                                           \
                                                                                                   \
		RUN_NEXT(next, #name);                                                             \
		STRING(path_near);                                                                 \
		STRINGS(argv_near);                                                                \
		STRINGS(env_near);                                                                 \
		env_near = prepare(&b, path_near, search, env_near, NULL, 0, true);                \
		ret = next(pid, path_near, actions, attr, argv_near, env_near);                    \
		run_bounce_put(b.place, b.bytes);                                                  \
		run_near_end(&near);                                                               \
		return ret;                                                                        \
	}

SPAWNS(posix_spawn, false)
SPAWNS(posix_spawnp, true)

void run_become_end(void)
{
	if (!library || children == RUN_CHILDREN_ALL || quiet || getpid() != self ||
	    atomic_load(&soda_agent.life) != SODA_LIFE_NEW || children_faults() == children_before)
		return;
	quiet = true;
	dprintf(run_settings.stats_fd >= 0 ? run_settings.stats_fd : STDERR_FILENO,
		"soda run: %s used no fabric memory, and the programs that it started had none: "
		"soda run --children=all gives them theirs\n",
		program_invocation_short_name);
}

/* Ends without exit handlers, as of some shells. */
RUN_API _Noreturn void _exit(int status)
{
	if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		run_share_note(NULL);
	run_become_end();
	for (;;)
		syscall(SYS_exit_group, status);
}

RUN_API _Noreturn void _Exit(int status)
{
	_exit(status);
}
