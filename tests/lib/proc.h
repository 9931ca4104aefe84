/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes of this build for tests: a memory server or an agent on a port of its own, and
 * programs that run to their end.  Needs no test framework; programs are found
 * below SODA_BUILD_DIR.  A server ends with the test program, however that ends.
 */
#ifndef SODA_TEST_PROC_H
#define SODA_TEST_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * How often a test looks, every 10 ms, for what must come: only a machine that is overloaded beyond
 * use takes this long, and a test that fails takes it, too.
 */
enum { LOOKS = 6000 };

struct server {
	pid_t pid;	   /* 0: not running */
	char address[128]; /* of its first READY line */
	int log_fd;	   /* what it wrote to standard error */
	int life_fd;	   /* its end ends the server */
};

/*
 * Start soda-mem-server with these arguments (NULL-terminated) and await its READY
 * line.  Without a --listen among them: tcp://127.0.0.1:0.  0; -1 with the server's
 * words on standard error.  The caller ends it with server_stop or server_kill, and
 * then server_forget.
 */
int server_start(struct server *server, const char *const *args);
#define SERVER_START(server, ...) server_start(server, (const char *const[]){ __VA_ARGS__, NULL })

/* The same with soda-dpu-agent, for which the functions below serve as well. */
int agent_start(struct server *agent, const char *const *args);

/* SIGTERM and wait. Its exit status, 128 + signal, or -1: it had to be killed after 60 s. */
int server_stop(struct server *server);
/* Wait for its end at most timeout_ms. As server_stop, but -1 leaves it running. */
int server_wait(struct server *server, int timeout_ms);
/* kill -9 and wait: no drain, no writing. */
void server_kill(struct server *server);

/*
 * SIGSTOP, and wait until each of its threads stands: after kill() they go on for a while, longer
 * than a program needs to have an answer of them that it is to miss.  SIGCONT lets it go on.
 * false: it has ended.
 */
bool process_halt(pid_t pid);

/* All that it has logged so far; a static buffer. */
const char *server_log(const struct server *server);
/* Whether it logs the text within a minute; if not, what it has logged is on standard error. */
bool server_logs(const struct server *server, const char *text);
/* Warnings and errors that it has logged, each shown on standard error. */
int server_complaints(const struct server *server);
/* Give the log and the descriptors back. */
void server_forget(struct server *server);

/*
 * A file in memory that several processes may write to: a memfd, whose position Linux does not lock
 * (6.18: two that write at once lose a line), opened to append. A descriptor, closed by exec, or
 * -1.
 */
int proc_output(const char *name);

/* Outcome of a program that has ended. */
struct program {
	int status; /* exit status, or 128 + signal */
	char out[16384];
	char err[4096];
};

/*
 * The environment of programs of `soda run`: as patient as a busy machine needs, in the C locale,
 * and with no setting from outside of the test.
 */
void program_environment(void);
/* Run a program of this build, "src/mem_server/soda-mem-server", for at most 60 s. 0 or -1. */
int program_run(const char *path, const char *const *args, struct program *program);

/* The same for at most timeout_ms. */
int program_run_within(const char *path, const char *const *args, int timeout_ms,
		       struct program *program);

/* "SODA_BUILD_DIR/path"; a static buffer. */
const char *build_path(const char *path);

/*
 * limit.c: limits of waits in tests.  While this process itself stands still (a frozen cgroup, a
 * stopped machine) its limits do, too: so does what it waits for.
 */

/* To be asked at least so often, in milliseconds: of a longer pause no more is counted. */
enum { LIMIT_LOOK_MS = 500 };

struct limit {
	long left_ms, seen_ms;
};

void limit_begin(struct limit *l, long ms);
bool limit_over(struct limit *l);

/*
 * `what` is over its limit: say on standard error where each thread of each process below this
 * one stands, the servers beside it included (tests/lib/where). Takes 40 s at most.
 */
void limit_tell(const char *what);

#endif
