/* SPDX-License-Identifier: BSD-3-Clause */
/* One process of soda-ligra, and other programs that `soda eval` runs to their end. */
#ifndef SODA_EVAL_APP_H
#define SODA_EVAL_APP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "soda/stage/cgroup.h"

/* Texts are borrowed; members that are NULL or 0 are left out of the command line. */
struct soda_eval_app_how {
	const char *app;
	const char *graph, *memory, *arrays; /* as soda-ligra takes them */
	const char *json, *result;	     /* files to write */
	const char *log;		     /* its output */
	const char *server, *dpu;	     /* SODA_SERVER, SODA_DPU */
	uint64_t buffer_bytes, chunk_bytes, warm_bytes;
	uint32_t threads, repeat, iterations;
	bool cache_edges;
	bool from_first; /* begin at the vertex 0 */
	const struct soda_cgroup *cap;
};

struct soda_eval_app {
	pid_t pid;  /* 0: not running */
	int status; /* as of waitpid(2), once it has ended */
	uint64_t cpu_ns;
};

/* 0 or negative errno after a message. */
int soda_eval_app_start(const struct soda_eval_app_how *how, struct soda_eval_app *app_p);
/*
 * Await the end of the first of n processes, and look at the memory of all meanwhile: *peak_p
 * is the most anonymous plus shared memory (smaps Pss) that they had at a time.  agent: one whose
 * node store they share, of which the allocated blocks count; 0: none.  0; -ETIMEDOUT; -ECHILD:
 * another one ended first.
 */
int soda_eval_app_await(struct soda_eval_app *apps, uint32_t n, pid_t agent, uint32_t timeout_ms,
			uint64_t *peak_p);
/* Wait until the log has this text. 0; -ETIMEDOUT; -ECHILD: the process has ended. */
int soda_eval_app_await_text(struct soda_eval_app *app, const char *log, const char *text,
			     uint32_t timeout_ms);
/* Kill it, and wait for its end. */
void soda_eval_app_end(struct soda_eval_app *app);

/* Check the result against the graph. 0; -EBADMSG: it is wrong; -EIO: no check was possible. */
int soda_eval_app_verify(const char *graph, const char *result, const char *log,
			 uint32_t timeout_ms);

/*
 * Run a program to its end; log NULL: its output goes to our standard error.  Its exit status; 128
 * + signal; -ETIMEDOUT, killed; -ENOENT: there is no such program; other negative errno.
 */
int soda_eval_exec(const char *const *args, const char *log, uint32_t timeout_ms);

/* The last line of a log, into text. */
void soda_eval_last_line(const char *log, char *text, size_t bytes);

#endif
