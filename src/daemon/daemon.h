/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of every daemon: from main's arguments to the exit status.  A daemon describes itself
 * in one struct soda_daemon; its main() is one call.
 *
 *   configure -> start -> listen, metrics -> listening -> announce -> READY -> wait for the end
 *     SIGTERM, SIGINT: drain: new clients are refused, others have the time of --drain to finish
 *     the parent has ended (--parent-fd): no client is waited for
 *   -> every connection is closed -> stop -> exit
 *
 * Signals.  The first SIGTERM or SIGINT starts the drain; from then on they have their default
 * action, so that the second one ends the process at once.  SIGPIPE and SIGXFSZ are
 * ignored: the calls report the error.  SIGHUP makes a daemon read its files again, where it has
 * some; else it is ignored.
 *
 * Readiness: the daemon prints a line "READY <address>" on standard output for each address, that
 * of the metrics last, and sends READY=1 to the service manager of NOTIFY_SOCKET (sd_notify(3)), if
 * there is one.
 */
#ifndef SODA_DAEMON_DAEMON_H
#define SODA_DAEMON_DAEMON_H

#include "base/numa/numa_node.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "transport/api/service.h"

/* The exit status of every daemon, as its man page says. */
enum soda_exit {
	SODA_EXIT_OK = 0,
	SODA_EXIT_FAILURE = 1, /* it ran, or tried to, and something failed */
	SODA_EXIT_USAGE = 2,   /* flags, environment or INI file are wrong */
};

/* The main thread calls all hooks, with self. */
struct soda_daemon {
	const struct soda_conf *conf;	     /* with the rows of options.h */
	struct soda_daemon_options *options; /* the first member of what conf fills */
	void *self;			     /* also the argument of the service and the walk */
	const struct soda_service *service;
	const char *metrics_prefix; /* "soda_mem_server" */
	soda_metrics_walk *walk;
	bool quiet_with_parent; /* with --parent-fd, messages of level info are not logged */
	/*
	 * Start what the daemon consists of.  Signals are blocked, and the process runs on the
	 * nodes of --numa-node.  how: filled from the options; the hook may change it before the
	 * listeners are opened with it.  0, or an error that the hook has logged: the daemon ends
	 * without stop.
	 */
	int (*start)(void *self, const struct soda_nodes *nodes, struct soda_listener_options *how);
	/*
	 * It listens on these addresses, with the ports that it has; nobody has been told yet.  0,
	 * or an error that the hook has logged: the daemon ends, with stop.  NULL: nothing to do.
	 */
	int (*listening)(void *self, const char *const *addresses, size_t n);
	void (*announce)(void *self);	   /* log what the daemon serves, just before READY */
	void (*reload)(void *self);	   /* SIGHUP, until the drain; NULL: it is ignored */
	void (*drain)(void *self);	   /* refuse new clients from now on */
	unsigned (*connected)(void *self); /* clients that a drain waits for */
	/*
	 * End, when no client is connected. Returns how many clients lost data, which was logged.
	 */
	unsigned (*stop)(void *self);
};

/* Run a daemon to its end. Returns its exit status. */
int soda_daemon_run(const struct soda_daemon *daemon, int argc, char **argv);

#endif
