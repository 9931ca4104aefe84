/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the benchmark waits for processes of its own, and what it says when that is over:
 * who waited for whom, how long, for what.  Nothing of SODA is used, so that the floor has it, too.
 *
 * A round may take hours.  What bounds the wait for its end is that somebody works: a process that
 * has used next to no processor time since then stands still.
 */
#ifndef SODA_TOOLS_PATIENCE_H
#define SODA_TOOLS_PATIENCE_H

#include <stdint.h>
#include <sys/types.h>

/* 20 s, or what SODA_BENCH_PATIENCE says, in seconds. */
uint64_t soda_patience_ms(void);

/* Of the man pages of those who wait so. */
#define SODA_PATIENCE_MAN                                                                          \
	".SH ENVIRONMENT\n.TP\n.B SODA_BENCH_PATIENCE\nHow many seconds processes that the"        \
	" benchmark has started may\nstand still, or take to end, before that is a failure;"       \
	" default 20.\n"

/* A process of ours, for the messages. */
struct soda_patience_process {
	pid_t pid;
	const char *name; /* "the floor's server" */
};

/*
 * Wait until fd can be read (or has ended), which the process is to bring about.  0, or -ETIMEDOUT
 * after a message: it has stood still for twice that time, in which it would have noticed who it
 * waits for itself. what: "the end of a round".
 */
int soda_patience_read(int fd, const struct soda_patience_process *process, const char *what);

/*
 * Wait for the process's end, at most patience and more_ms.  Then a message, and SIGKILL.  Its
 * status as of waitpid(2).
 */
int soda_patience_end(const struct soda_patience_process *process, uint64_t more_ms);

#endif
