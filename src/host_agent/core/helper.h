/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own threads: all signals blocked (they touch no FAM, and the
 * program's handlers are the program's), a name, the NUMA node of the network.
 */
#ifndef SODA_HOST_HELPER_H
#define SODA_HOST_HELPER_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "transport/api/transport.h"

/* Negative errno. */
int soda_helper_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg);

/*
 * Around code of an API call that holds a lock of the fault path, so that no
 * signal handler of the program can fault while it does.
 */
void soda_signals_block(sigset_t *saved);
void soda_signals_restore(const sigset_t *saved);
/* Any mask, past the interposed functions. AS. */
void soda_signals_swap(const sigset_t *mask, sigset_t *saved);

/*
 * Placement (placement.c): the library's threads run, and its staging buffers lie, on the NUMA
 * node of the network device in use, as sysfs tells it, or on the one that the
 * settings name.  No such device (loopback, shm) or one node: nothing is bound,
 * and the log says so.
 *
 * Find the node, by the control connection. Once, at start, before there are threads.
 */
void soda_numa_detect(const struct soda_conn *control);
/* The calling thread runs on that node from now on. */
void soda_numa_run_here(void);
/* Memory that was not touched yet will lie there. */
void soda_numa_place(void *addr, size_t bytes);

#endif
