/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a benchmark waits for processes that it has started, and the message when that time is
 * over: who waited for whom, how long, for what.  Uses nothing of SODA, because the floor uses it.
 *
 * A round may take hours.  The wait for its end goes on as long as the process works; a process
 * that uses next to no processor time stands still, and may do so only for soda_patience_ms().
 */
#ifndef SODA_TOOLS_PATIENCE_H
#define SODA_TOOLS_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* 20 s, or what SODA_BENCH_PATIENCE says, in seconds. */
uint64_t soda_patience_ms(void);

/* For the man pages of the commands that wait so. */
#define SODA_PATIENCE_MAN                                                                          \
	".SH ENVIRONMENT\n.TP\n.B SODA_BENCH_PATIENCE\nHow many seconds processes that the"        \
	" benchmark has started may\nstand still, or take to end, before that is a failure;"       \
	" default 20.\n"

/* A process that the benchmark has started, and its name in messages. */
struct soda_patience_process {
	pid_t pid;
	const char *name; /* "the floor's server" */
	bool waits;	  /* for others itself: it reports those that stand still */
};

/*
 * Wait until the process has written to fd or closed its end.  0, or -ETIMEDOUT after a message:
 * the process has stood still for 2 * soda_patience_ms(), or for 3 * soda_patience_ms() if it waits
 * for others itself.  Such a process reports the others sooner: after one soda_patience_ms(), or
 * after two where a part of what it waited for had come.  what: "the end of a round".
 */
int soda_patience_read(int fd, const struct soda_patience_process *process, const char *what);

/*
 * Wait for the process's end, at most soda_patience_ms() and more_ms; after that print a message
 * and kill it.  Returns its status as of waitpid(2).
 */
int soda_patience_end(const struct soda_patience_process *process, uint64_t more_ms);

#endif
