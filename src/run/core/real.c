/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/core/run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/run.h"
#include "host_agent/life/start.h"
#include "host_agent/pages/install.h"

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

struct run_settings run_settings = { .threshold = SIZE_MAX, .stats_fd = -1 };
__thread int run_inside __attribute__((tls_model("initial-exec")));
__thread int run_local __attribute__((tls_model("initial-exec")));

static void keep_local(int step)
{
	run_local += step;
}

bool run_is_ours(const void *caller)
{
	return (const char *)caller >= __ehdr_start && (const char *)caller < _end;
}

/* The C library, and its loader, which has threads' vectors: addresses [from, to). */
static struct library {
	const char *from, *to;
} libc, loader;

bool run_others_heap;

/*
 * Whether a call of that function in the program comes to us.  An address in an executable that
 * does not define the function is where its calls begin, and leads to us as well.
 */
static bool comes_to_us(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);
	ElfW(Sym) *symbol = NULL;
	Dl_info info;

	return !p || run_is_ours(p) ||
	       (dladdr1(p, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol &&
		symbol->st_shndx == SHN_UNDEF);
}

static bool is_in(const struct library *library, const void *address)
{
	return (const char *)address >= library->from && (const char *)address < library->to;
}

bool run_is_libc(const void *caller)
{
	return is_in(&libc, caller) || is_in(&loader, caller);
}

void __libc_free(void *p);

static int find_libc(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	const char *base = (const char *)info->dlpi_addr;
	struct library found = { NULL, NULL };

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD)
			continue;
		found.from = found.from ? found.from : base + p->p_vaddr;
		found.to = base + p->p_vaddr + p->p_memsz;
	}
	if (is_in(&found, (const void *)&__libc_free))
		libc = found;
	else if (is_in(&found, (const void *)getauxval(AT_BASE)))
		loader = found;
	return libc.to && loader.to;
}

void *run_next(const char *name)
{
	void *p;

	run_inside++;
	p = dlsym(RTLD_NEXT, name);
	run_inside--;
	return p;
}

void *run_found(const char *name)
{
	void *p;

	run_inside++;
	p = dlsym(RTLD_DEFAULT, name);
	run_inside--;
	return p && !run_is_ours(p) ? p : run_next(name);
}

/*
 * The C library's unsetenv and setenv: some shells define functions of these names, which do
 * nothing before main().
 */
static void unset(const char *name)
{
	static int (*next_unsetenv)(const char *);

	RUN_NEXT(next_unsetenv, "unsetenv")(name);
}

static void set(const char *name, const char *value)
{
	static int (*next_setenv)(const char *, const char *, int);

	RUN_NEXT(next_setenv, "setenv")(name, value, 1);
}

/* Programs that this one starts get no fabric memory, unless asked for. */
static void leave_children_alone(void)
{
	const char *list = getenv("LD_PRELOAD");
	const char *ours = getenv("SODA_RUN_LIBRARY");
	char rest[4096] = "";
	size_t n;

	for (; list && *list; list += n + (list[n] != 0)) {
		n = strcspn(list, ": ");
		if (n && !(ours && strlen(ours) == n && !strncmp(list, ours, n)) &&
		    strlen(rest) + n + 2 < sizeof(rest))
			sprintf(rest + strlen(rest), "%s%.*s", rest[0] ? ":" : "", (int)n, list);
	}
	if (rest[0])
		set("LD_PRELOAD", rest);
	else
		unset("LD_PRELOAD");
	unset("SODA_RUN_LIBRARY");
	unset("SODA_RUN_THRESHOLD");
	unset("SODA_RUN_LOCAL");
	unset("SODA_RUN_STATS");
	unset("SODA_RUN_CHILDREN");
	unset("SODA_RUN_QUIET");
	unset("SODA_RUN_IO_URING");
}

/*
 * The samples are of this process alone: children do not get the variable; become.c sets it for
 * execve.
 */
static void open_samples(void)
{
	const char *fd = getenv("SODA_RUN_SAMPLES");

	if (fd)
		run_samples_open(atoi(fd));
	unset("SODA_RUN_SAMPLES");
}

/* In the child of a fork, so that a reader of that stream sees its end when the parent ends. */
static void close_stats(void)
{
	soda_fd_close(run_settings.stats_fd);
	run_settings.stats_fd = -1;
}

static enum run_children children_asked(void)
{
	const char *asked = getenv("SODA_RUN_CHILDREN");

	if (asked && !strcmp(asked, "all"))
		return RUN_CHILDREN_ALL;
	return asked && !strcmp(asked, "none") ? RUN_CHILDREN_NONE : RUN_CHILDREN_EXEC;
}

/*
 * Join the processes that share a page buffer, if there are any.  false: this process should, and
 * cannot: it has local memory, because with a buffer of its own the sum would be over what was
 * given.
 */
static bool joined(void)
{
	const char *name = getenv("SODA_RUN_TREE");
	int ret = name ? run_share_open(name) : 0;

	if (ret && !run_settings.quiet)
		soda_log_warning("soda run: process %d has no fabric memory: the soda run that it "
				 "belongs to %s",
				 getpid(),
				 ret == -ENOENT ? "has ended, or is not in its /proc"
						: soda_strerror(ret));
	return !ret;
}

static enum run_rings rings_asked(void)
{
	const char *asked = getenv("SODA_RUN_IO_URING");

	if (!asked || !strcmp(asked, "refuse"))
		return RUN_RINGS_REFUSE;
	return strcmp(asked, "hold") ? RUN_RINGS_ALLOW : RUN_RINGS_HOLD;
}

__attribute__((constructor)) static void setup(void)
{
	const char *threshold = getenv("SODA_RUN_THRESHOLD");
	const char *local = getenv("SODA_RUN_LOCAL");
	const char *stats = getenv("SODA_RUN_STATS");
	enum run_children children = children_asked();
	uint64_t bytes = 1 << 20, local_bytes = 0;

	if (threshold && soda_parse_size(threshold, &bytes))
		bytes = 1 << 20;
	run_settings.stats = stats && *stats == '1';
	run_settings.quiet = getenv("SODA_RUN_QUIET");
	run_settings.rings = rings_asked();
	soda_fds_start();
	if (run_settings.stats || children != RUN_CHILDREN_ALL) {
		/* a copy, because some programs close standard error before they end */
		run_settings.stats_fd = soda_fd_own(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100));
		pthread_atfork(NULL, NULL, close_stats);
	}
	run_report_start();
	open_samples();
	run_become_start(children);
	if (children != RUN_CHILDREN_ALL)
		leave_children_alone();
	dl_iterate_phdr(find_libc, NULL);
	run_others_heap = !comes_to_us("malloc") || !comes_to_us("realloc") || !comes_to_us("free");
	soda_fill_allowed = run_may_fill;
	soda_run_local_hook = keep_local;
	if (local && soda_parse_size(local, &local_bytes))
		local_bytes = 0;
	if (joined()) {
		run_settings.threshold = bytes ? bytes : 1;
		run_local_start(local_bytes);
	}
	if (children != RUN_CHILDREN_ALL)
		unset("SODA_RUN_TREE"); /* what it becomes gets it anew */
}

static void begin(void)
{
	struct soda_why why = { "" };
	int ret;

	soda_lock_acquire(&soda_agent.api_lock);
	ret = soda_agent_start(NULL, &why);
	soda_lock_release(&soda_agent.api_lock);
	if (ret && atomic_load(&soda_agent.life) == SODA_LIFE_NEW) {
		soda_log_error("soda run: no fabric memory: %s",
			       why.text[0] ? why.text : soda_strerror(ret));
		_exit(127);
	}
}

/*
 * At the first call after the runtime has started, perhaps by the program, which may use libsoda
 * itself.
 */
static void begun(void)
{
	static _Atomic bool known;

	if (atomic_load_explicit(&known, memory_order_relaxed) || atomic_exchange(&known, true))
		return;
	run_inside++;
	run_report_begin();
	run_samples_start();
	run_share_start();
	run_inside--;
}

bool run_ready(void)
{
	uint32_t life = atomic_load_explicit(&soda_agent.life, memory_order_relaxed);

	if (life == SODA_LIFE_NEW) {
		run_inside++;
		begin();
		run_inside--;
		life = atomic_load(&soda_agent.life);
	}
	if (life == SODA_LIFE_RUNNING)
		begun();
	return life == SODA_LIFE_RUNNING;
}

__attribute__((destructor)) static void ended(void)
{
	if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		run_samples_take();
	if (run_settings.stats)
		run_report();
	run_become_end();
}
