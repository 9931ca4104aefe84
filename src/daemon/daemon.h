/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shell around every daemon: from main's arguments to the exit status.  A daemon says what it
 * is in one struct soda_daemon; its main() is one call.
 *
 *   configure -> start -> listen, metrics -> announce -> READY -> wait for the end
 *     SIGTERM, SIGINT: drain: what is new is refused, clients may finish for the time of --drain
 *     the parent has gone (--parent-fd): nobody is waited for
 *   -> every connection is closed -> stop -> exit
 *
 * Signals.  The first SIGTERM or SIGINT starts the drain; from then on they have their default
 * action, so that the second one ends the process at once.  SIGPIPE, SIGHUP and SIGXFSZ are
 * ignored: the calls report the error.
 *
 * Readiness: a line "READY <address>" on standard output for each address, that of the metrics
 * last, and READY=1 to the service manager of NOTIFY_SOCKET (sd_notify(3)), if there is one.
 */
#ifndef SODA_DAEMON_DAEMON_H
#define SODA_DAEMON_DAEMON_H

#include "base/numa/numa_node.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "transport/api/service.h"

/* Exit status of every daemon: documented in its man page. */
enum soda_exit {
	SODA_EXIT_OK = 0,
	SODA_EXIT_FAILURE = 1, /* it ran, or tried to, and something failed */
	SODA_EXIT_USAGE = 2,   /* flags, environment or INI file */
};

/* All hooks are called in the main thread, with self. */
struct soda_daemon {
	const struct soda_conf *conf;	     /* with the rows of options.h */
	struct soda_daemon_options *options; /* the first member of what conf fills */
	void *self;			     /* also for the service and the walk */
	const struct soda_service *service;
	const char *metrics_prefix; /* "soda_mem_server" */
	soda_metrics_walk *walk;
	bool quiet_with_parent; /* with --parent-fd, level info of the log is left out */
	/*
	 * Threads may start, signals are blocked, and the process runs on the nodes of --numa-node.
	 * how: for the listeners, filled from the options; the hook may say more.  0; an error,
	 * which the hook has logged: then the daemon ends, without stop.
	 */
	int (*start)(void *self, const struct soda_nodes *nodes, struct soda_listener_options *how);
	void (*announce)(void *self);	   /* log what the daemon serves, just before READY */
	void (*drain)(void *self);	   /* refuse new clients from now on */
	unsigned (*connected)(void *self); /* clients that a drain waits for */
	/* Nobody is connected any more: how many lost data, each of which has been logged. */
	unsigned (*stop)(void *self);
};

/* The whole life of a daemon. Its exit status. */
int soda_daemon_run(const struct soda_daemon *daemon, int argc, char **argv);

#endif
