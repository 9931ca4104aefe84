/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every daemon shares: configuration from all sources, signals, readiness,
 * exit status.
 *
 *   configure -> signals_open -> (start threads, listen) -> ready -> wait ... -> exit
 *
 * Signals.  SIGTERM and SIGINT come out of soda_daemon_wait once; from then on
 * they have their default action, so that the second one ends the process at
 * once.  SIGPIPE, SIGHUP and SIGXFSZ are ignored: the calls report the error.
 */
#ifndef SODA_COMMON_DAEMON_H
#define SODA_COMMON_DAEMON_H

#include "base/conf/conf.h"

/* Exit status of every program: documented in its man page. */
enum soda_exit {
	SODA_EXIT_OK = 0,
	SODA_EXIT_FAILURE = 1, /* it ran, or tried to, and something failed */
	SODA_EXIT_USAGE = 2,   /* flags, environment or INI file */
};

enum soda_daemon_event {
	SODA_DAEMON_TIMEOUT = 0,
	SODA_DAEMON_TERMINATE = 1,   /* SIGTERM or SIGINT: drain */
	SODA_DAEMON_PARENT_GONE = 2, /* end-of-file on the parent's descriptor */
};

/* Log level for an index into soda_daemon_log_levels (a SODA_OPT_CHOICE). */
extern const char *const soda_daemon_log_levels[];
int soda_daemon_log_level(unsigned choice);

/*
 * Defaults, then the INI file that the string option `config` names (flag or
 * environment), then the environment, then the flags.  No positional arguments.
 * 0; or an error, which is printed on stderr: the program ends with SODA_EXIT_USAGE.
 */
int soda_daemon_configure(const struct soda_conf *conf, int argc, char **argv, void *values);

/* Block and collect the signals; before any thread starts. A descriptor, or negative errno. */
int soda_daemon_signals_open(void);

/*
 * Wait for a signal, for the end of parent_fd (-1: none), or timeout_ms (-1: no
 * limit).  signal_fd -1: signals had their turn.
 */
enum soda_daemon_event soda_daemon_wait(int signal_fd, int parent_fd, int timeout_ms);

/*
 * Say "READY <address>" on standard output, a line an address, and READY=1 to
 * the service manager of NOTIFY_SOCKET (sd_notify(3)), if there is one.
 */
void soda_daemon_ready(const char *const *addresses, size_t n);
/* Tell the service manager that the drain has begun. */
void soda_daemon_stopping(void);

#endif
