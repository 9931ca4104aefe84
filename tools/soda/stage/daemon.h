/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon of our own, so that its CPU time can be measured: a memory server, a DPU
 * agent.  It is looked for in an environment variable, beside this program, in the
 * build tree, in PATH; it ends with this process, however that ends.
 */
#ifndef SODA_BENCH_DAEMON_H
#define SODA_BENCH_DAEMON_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "soda/stage/cgroup.h"

struct soda_bench_program {
	const char *name;   /* "soda-mem-server" */
	const char *env;    /* "SODA_MEM_SERVER" */
	const char *folder; /* of the build tree */
};

/* A path to execute; one without a slash is looked for in PATH. */
void soda_bench_program_find(const struct soda_bench_program *program, char path[PATH_MAX]);

extern const struct soda_bench_program soda_bench_mem_server, soda_bench_dpu_agent;

struct soda_bench_daemon {
	pid_t pid;	  /* 0: not running */
	const char *name; /* of its program */
	int out;	  /* reads its standard output; closing this does not end the daemon */
	char address[128];
};

/*
 * Start the program and wait until it says READY.  args: NULL-terminated, without the name.  before
 * (may be NULL) runs first, in the child; if it returns non-zero, after a message, the child ends.
 * 0, with the first address that the daemon says; negative errno after a message on stderr.
 */
int soda_bench_daemon_start(struct soda_bench_daemon *daemon,
			    const struct soda_bench_program *program, const char *const *args,
			    int (*before)(void *arg), void *arg);
/* What a daemon's process does before it becomes the program; run NULL: nothing. */
struct soda_bench_start {
	int (*run)(void *arg); /* as `before` above */
	void *arg;
};
/*
 * A memory server of `bytes`, and a DPU agent before the server at that address, both quiet and
 * quick to end.  files: a folder whose files the server exports, or NULL.  Errors as above.
 */
int soda_bench_server_start(struct soda_bench_daemon *daemon, const char *listen, uint64_t bytes,
			    const char *files, const struct soda_bench_start *before);
int soda_bench_agent_start(struct soda_bench_daemon *daemon, const char *listen, const char *server,
			   const struct soda_bench_start *before);
/*
 * --dpu-cpu: make a cgroup that gets pct percent of one processor; enter_cap puts the calling
 * process into it, in a `before` of soda_bench_daemon_start().  0, or negative errno after a
 * message.
 */
int soda_bench_daemon_cap(uint32_t pct, pid_t owner, struct soda_cgroup *group);
int soda_bench_daemon_enter_cap(const struct soda_cgroup *group);
/* SIGTERM, and wait for its end. */
void soda_bench_daemon_stop(struct soda_bench_daemon *daemon);
/* CPU time of all threads of the daemon so far; UINT64_MAX: it is not running. */
uint64_t soda_bench_daemon_cpu_ns(const struct soda_bench_daemon *daemon);

#endif
